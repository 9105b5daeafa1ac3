"""Plans of SELECTs, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sql.language.errors import SqlError
from headrace.sql.language.parsing import parse
from headrace.sql.language.planning import PlanDefaults, plan
from headrace.sql.language.statements import CreateAs, SelectStatement
from headrace.sql.plans import Input, PlanKind, StateJoin, plan_from_json, plan_to_json
from headrace.sql.sources import Window
from tests.sql.language.cases import CASES, PlanCase, planned, source


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.text)
def test_plans(case: PlanCase) -> None:
    found = planned(case.text)
    assert found.kind is case.kind
    assert [name.replace(" ", "_") for name in found.columns] == case.columns.split()
    assert [name.replace(" ", "_") for name in found.keys] == case.keys.split()
    text, at = " ".join(found.sql.split()).lower(), 0
    for part in case.sql.lower().split("..."):
        assert part in text[at:]
        at = text.index(part, at) + len(part)
    if case.sql and not case.sql.endswith("..."):
        assert at == len(text)
    assert plan_from_json(plan_to_json(found)) == found


def test_windows_and_watermarks() -> None:
    select = "CREATE TABLE t AS SELECT id, COUNT(*) AS n FROM orders WINDOW {} GROUP BY id EMIT {}"
    tumbling = planned(select.format("TUMBLING (SIZE 1 HOUR)", "CHANGES"))
    assert tumbling.window == Window("TUMBLING", 3_600_000)
    assert tumbling.watermark_ms == 10_000
    assert not tumbling.emit_final
    hopping = planned(
        select.format("HOPPING (SIZE 1 HOUR, ADVANCE BY 1 MINUTE, GRACE PERIOD 0 SECONDS)", "FINAL")
    )
    assert hopping.window == Window("HOPPING", 3_600_000, 60_000, 0)
    assert hopping.watermark_ms == 0
    assert hopping.emit_final
    session = planned(select.format("SESSION (1 MINUTE, RETENTION 1 DAY)", "FINAL"))
    assert session.window == Window("SESSION", None, retention_ms=86_400_000)
    plain = planned("CREATE TABLE t AS SELECT id, COUNT(*) AS n FROM orders GROUP BY id")
    assert (plain.window, plain.watermark_ms) == (None, None)


def test_the_grace_of_joins_is_that_of_the_latest() -> None:
    found = planned(
        "CREATE STREAM j AS SELECT o.id FROM orders o"
        " JOIN payments p WITHIN 1 HOUR GRACE PERIOD 2 MINUTES ON o.id = p.order_id"
        " JOIN shipments s WITHIN 1 HOUR ON o.id = s.order_id"
    )
    assert found.watermark_ms == 120_000


def test_another_default_of_the_grace() -> None:
    statement = parse(
        "SELECT id, COUNT(*) FROM orders WINDOW SESSION (1 DAY) GROUP BY id EMIT FINAL"
    )
    assert isinstance(statement, SelectStatement)
    defaults = PlanDefaults(grace_ms=5)
    assert plan(statement.select, source, into_table=None, defaults=defaults).watermark_ms == 5


def test_a_push_query_has_a_limit() -> None:
    assert planned("SELECT * FROM payments EMIT CHANGES LIMIT 3").limit == 3


def test_a_chain_of_state_joins_reads_the_view_of_the_one_before() -> None:
    found = planned(
        "CREATE STREAM j AS SELECT c.region, r.name FROM orders o"
        " LEFT JOIN customers c ON o.customer = c.id JOIN regions r ON c.region = r.id"
    )
    assert found.inputs == (Input("orders", "o"), Input("customers", "c"), Input("regions", "r"))
    assert found.joins == (
        StateJoin(
            "__join_0",
            Input("orders", "o"),
            Input("customers", "c"),
            "`customer`",
            "`id`",
            "LEFT",
            left_is_stream=True,
        ),
        StateJoin(
            "__join_1",
            Input("", "__join_0"),
            Input("regions", "r"),
            "`r__region`",
            "`id`",
            "INNER",
            left_is_stream=True,
        ),
    )


@pytest.mark.parametrize(
    ("text", "left", "kind", "is_stream"),
    [
        (
            (
                "CREATE STREAM j AS SELECT c.id, o.qty FROM customers c JOIN orders o"
                " ON c.id = o.customer"
            ),
            "orders",
            "INNER",
            True,
        ),
        (
            (
                "CREATE STREAM j AS SELECT o.customer, name FROM customers c RIGHT JOIN orders o"
                " ON c.id = o.customer"
            ),
            "orders",
            "LEFT",
            True,
        ),
        (
            (
                "CREATE TABLE j AS SELECT t.region, name FROM regions r RIGHT JOIN taxes t"
                " ON r.id = t.region"
            ),
            "taxes",
            "LEFT",
            False,
        ),
        (
            (
                "CREATE TABLE j AS SELECT ROWKEY AS id, name FROM regions r FULL JOIN taxes t"
                " ON r.id = t.region"
            ),
            "regions",
            "FULL",
            False,
        ),
    ],
)
def test_sides_of_state_joins(text: str, left: str, kind: str, is_stream: bool) -> None:
    (join,) = planned(text).joins
    assert (join.left.source, join.kind, join.left_is_stream) == (left, kind, is_stream)


def test_keys_of_several_columns_are_structs() -> None:
    (join,) = planned(
        "CREATE TABLE j AS SELECT s.warehouse, s.sku, price FROM stock s"
        " JOIN prices p ON p.sku = s.sku AND s.warehouse = p.shop"
    ).joins
    assert join.left_key == "struct(`sku` AS `k0`, `warehouse` AS `k1`)"
    assert join.right_key == "struct(`sku` AS `k0`, `shop` AS `k1`)"


def test_whole_numbers_of_different_sizes_are_joined() -> None:
    (join,) = planned(
        "CREATE STREAM j AS SELECT customer, name FROM orders JOIN regions r ON customer = r.id"
    ).joins
    assert (join.left_key, join.right_key) == ("CAST(`customer` AS BIGINT)", "CAST(`id` AS BIGINT)")


def test_views_have_plain_names() -> None:
    found = planned(
        "SELECT `a b`.id FROM payments `a b` JOIN payments a_b WITHIN 1 DAY"
        " ON `a b`.order_id = a_b.order_id EMIT CHANGES"
    )
    assert [each.view for each in found.inputs] == ["a_b", "a_b_"]


REFUSED = [
    # Names
    ("SELECT custmer FROM orders EMIT CHANGES", "Did you mean customer?"),
    ("SELECT o.nope FROM orders o EMIT CHANGES", "There is no column nope in o"),
    ("SELECT address->stret FROM orders EMIT CHANGES", "Did you mean street?"),
    ("SELECT qty->x FROM orders EMIT CHANGES", "qty has no fields: its type is int"),
    ("SELECT qty->* FROM orders EMIT CHANGES", "qty is neither a source nor a struct"),
    ("SELECT x.* FROM orders EMIT CHANGES", "no column x"),
    ("SELECT id FROM nothing EMIT CHANGES", "There is no stream or table nothing"),
    ("SELECT WINDOWSTART FROM orders EMIT CHANGES", "needs a WINDOW clause"),
    ("SELECT ROWKEY FROM orders EMIT CHANGES", "ROWKEY is only the key of a JOIN"),
    ("SELECT qty, qty FROM orders EMIT CHANGES", "two columns qty"),
    ("SELECT qty, id AS QTY FROM orders EMIT CHANGES", "two columns QTY"),
    (
        "SELECT id FROM orders o JOIN payments p WITHIN 1 DAY ON o.id = p.id EMIT CHANGES",
        "id is ambiguous: write o.id or p.id",
    ),
    (
        "SELECT o.id FROM orders o JOIN payments o WITHIN 1 DAY ON o.id = o.id EMIT CHANGES",
        "o is there twice",
    ),
    ("SELECT id FROM orders WHERE ROWTIME > 'soon' EMIT CHANGES", "'soon' is no time"),
    ("SELECT id FROM orders WHERE ROWTIME > '2026-13' EMIT CHANGES", "is no time"),
    # Stored results
    ("CREATE STREAM s AS SELECT amount FROM orders", "needs id (the key of orders)"),
    (
        "CREATE STREAM s AS SELECT id AS a, id AS b FROM orders",
        "more than once: a and b. For a copy in the value, write AS_VALUE(id)",
    ),
    ("CREATE STREAM s AS SELECT id FROM orders PARTITION BY qty", "needs qty (of PARTITION BY)"),
    ("CREATE TABLE t AS SELECT name FROM customers", "needs id (the primary key of customers)"),
    ("CREATE TABLE t AS SELECT COUNT(*) AS n FROM orders GROUP BY id", "needs id (of GROUP BY)"),
    (
        (
            "CREATE STREAM j AS SELECT qty FROM orders o JOIN payments p WITHIN 1 DAY"
            " ON o.id = p.order_id"
        ),
        "needs o.id or p.order_id (of ON)",
    ),
    (
        (
            "CREATE STREAM j AS SELECT o.id FROM orders o FULL JOIN payments p WITHIN 1 DAY"
            " ON o.id = p.order_id"
        ),
        "needs ROWKEY (of ON)",
    ),
    ("CREATE STREAM s AS SELECT id, ROWTIME FROM orders", "ROWTIME is reserved"),
    ("CREATE STREAM s AS SELECT * FROM orders LIMIT 3", "LIMIT is only for queries"),
    ("CREATE TABLE t AS SELECT id FROM orders", "is a stream: use CREATE STREAM"),
    ("CREATE STREAM s AS SELECT * FROM customers", "create a stream over its topic"),
    (
        "CREATE STREAM s AS SELECT id, COUNT(*) AS n FROM orders GROUP BY id",
        "is a table: use CREATE TABLE",
    ),
    # What only pull queries have
    ("CREATE STREAM s AS SELECT DISTINCT id FROM orders", "Use GROUP BY"),
    ("SELECT id FROM orders ORDER BY id EMIT CHANGES", "ORDER BY is only for pull queries"),
    ("CREATE STREAM s AS SELECT * FROM (SELECT * FROM orders)", "Create a stream or table"),
    # Aggregates
    ("SELECT COUNT(*) FROM orders EMIT CHANGES", "COUNT is over the rows of a group"),
    ("SELECT id, qty, COUNT(*) FROM orders GROUP BY id EMIT CHANGES", "qty is neither in GROUP BY"),
    (
        "SELECT id, COUNT(*) FROM orders GROUP BY id HAVING qty > 1 EMIT CHANGES",
        "qty is neither in GROUP BY",
    ),
    ("SELECT * FROM orders GROUP BY id EMIT CHANGES", "is neither in GROUP BY"),
    ("SELECT id FROM orders HAVING id > 'a' EMIT CHANGES", "HAVING needs GROUP BY"),
    ("SELECT id FROM orders WINDOW SESSION (1 DAY) EMIT CHANGES", "WINDOW needs GROUP BY"),
    ("SELECT id, COUNT(*) FROM orders GROUP BY id EMIT FINAL", "EMIT FINAL needs a WINDOW"),
    (
        "CREATE TABLE t AS SELECT id, COUNT(*) AS n FROM orders WINDOW SESSION (1 DAY) GROUP BY id",
        "WINDOW SESSION needs EMIT FINAL",
    ),
    ("SELECT id FROM orders EMIT FINAL", "EMIT FINAL needs a WINDOW"),
    (
        "SELECT id, COUNT(*) FROM orders GROUP BY id PARTITION BY id EMIT CHANGES",
        "PARTITION BY is not possible with GROUP BY",
    ),
    (
        "SELECT id, COUNT(*) FROM orders WHERE COUNT(*) > 1 GROUP BY id EMIT CHANGES",
        "conditions on aggregates are in HAVING",
    ),
    ("SELECT id, COUNT(DISTINCT qty) FROM orders GROUP BY id EMIT CHANGES", "COUNT_DISTINCT(x)"),
    (
        "SELECT region, COUNT(*) FROM customers GROUP BY region EMIT CHANGES",
        "GROUP BY over the table customers is not possible",
    ),
    ("SELECT id, COUNT(*) FROM orders GROUP BY 7 EMIT CHANGES", "there are 2 columns"),
    (
        (
            "SELECT name, COUNT(*) FROM orders o JOIN customers c ON o.customer = c.id"
            " GROUP BY name EMIT CHANGES"
        ),
        "takes two statements",
    ),
    ("SELECT LATEST_BY_OFFSET(id) FROM orders EMIT CHANGES", "needs GROUP BY"),
    # Joins of streams
    (
        "SELECT * FROM orders o JOIN payments p ON o.id = p.order_id EMIT CHANGES",
        "needs a time range, as in JOIN p WITHIN 1 HOUR",
    ),
    (
        "SELECT * FROM orders o JOIN payments p WITHIN 1 DAY ON o.amount > p.amount EMIT CHANGES",
        "needs ON with an equality of both sides",
    ),
    ("SELECT * FROM orders o JOIN payments p WITHIN 1 DAY EMIT CHANGES", "needs ON"),
    (
        "SELECT * FROM orders o JOIN payments p WITHIN 1 DAY ON o.id = id EMIT CHANGES",
        "id is ambiguous",
    ),
    # Joins with tables
    (
        "SELECT * FROM orders o JOIN customers c WITHIN 1 DAY ON o.customer = c.id EMIT CHANGES",
        "WITHIN is only for joins of two streams",
    ),
    (
        "SELECT * FROM orders o JOIN customers c ON o.qty = c.region EMIT CHANGES",
        "by its primary key: ON c.id = ...",
    ),
    (
        "SELECT qty FROM orders JOIN customers c ON customer = c.id AND c.region > 1 EMIT CHANGES",
        "c.region > 1 belongs to WHERE",
    ),
    (
        "SELECT * FROM orders o RIGHT JOIN customers c ON o.customer = c.id EMIT CHANGES",
        "RIGHT JOIN of a stream with a table is not possible",
    ),
    (
        "SELECT * FROM customers c LEFT JOIN orders o ON o.customer = c.id EMIT CHANGES",
        "Write the stream first",
    ),
    (
        (
            "SELECT * FROM regions r JOIN taxes t ON r.id = t.region JOIN orders o ON o.qty = r.id"
            " EMIT CHANGES"
        ),
        "Write the stream first",
    ),
    (
        "SELECT * FROM orders o JOIN customers c ON o.id = c.id EMIT CHANGES",
        "join keys have the same type",
    ),
    (
        "CREATE TABLE j AS SELECT c.id, r.name FROM customers c JOIN regions r ON c.region = r.id",
        "For a join by a foreign key, create a stream over the topic of c",
    ),
    (
        (
            "SELECT * FROM regions r JOIN taxes t ON r.id = t.region RIGHT JOIN regions u"
            " ON r.id = u.id EMIT CHANGES"
        ),
        "only possible as the first JOIN",
    ),
    (
        (
            "SELECT * FROM orders o JOIN payments p WITHIN 1 DAY ON o.id = p.id JOIN customers c"
            " ON o.customer = c.id EMIT CHANGES"
        ),
        "take two statements",
    ),
    ("SELECT * FROM orders o JOIN hourly h ON o.id = h.id EMIT CHANGES", "windowed keys"),
    # Tables
    ("CREATE TABLE t AS SELECT id FROM customers PARTITION BY id", "PARTITION BY is only for str"),
    ("SELECT EXPLODE(ARRAY[id]) FROM customers EMIT CHANGES", "EXPLODE is only for streams"),
    (
        "SELECT x FROM customers LATERAL VIEW explode(array(id)) y AS x EMIT CHANGES",
        "LATERAL VIEW is only for streams",
    ),
    # Functions
    ("SELECT EXPLODE(attrs) FROM orders EMIT CHANGES", "attrs is a map"),
    ("SELECT EXPLODE(EXPLODE(tags)) FROM orders EMIT CHANGES", "cannot be nested"),
    ("SELECT JSON_CONCAT(id, id) FROM orders EMIT CHANGES", "JSON_CONCAT is not possible"),
    ("SELECT SLICE(tags, 1) FROM orders EMIT CHANGES", "SLICE takes 3 arguments, not 2"),
    ("SELECT ARRAY_LENGTH() FROM orders EMIT CHANGES", "ARRAY_LENGTH takes 1 argument, not 0"),
    ("SELECT TO_BYTES(id, 'x') FROM orders EMIT CHANGES", "'hex', 'utf8', 'ascii' or 'base64'"),
    ("SELECT DATEADD(x, 1, day) FROM orders EMIT CHANGES", "is a unit: DAYS"),
    ("SELECT tags[0] FROM orders EMIT CHANGES", "has the index 1"),
]


@pytest.mark.parametrize(("text", "part"), REFUSED, ids=[text for text, _ in REFUSED])
def test_refusals_say_why_and_what_works(text: str, part: str) -> None:
    with pytest.raises(SqlError) as raised:
        planned(text)
    assert part in raised.value.message


def test_a_refusal_has_its_place() -> None:
    with pytest.raises(SqlError) as raised:
        planned("SELECT id,\n  custmer FROM orders EMIT CHANGES")
    assert (raised.value.line, raised.value.column) == (2, 3)
    assert str(raised.value).startswith("line 2, column 3: There is no column custmer")


def test_unknown_sources_are_compared_with_known_ones() -> None:
    statement = parse("CREATE STREAM s AS SELECT * FROM ordrs")
    assert isinstance(statement, CreateAs)
    with pytest.raises(SqlError, match=r"Did you mean orders\?"):
        plan(
            statement.select,
            source,
            into_table=False,
            defaults=PlanDefaults(known_sources=("orders", "payments")),
        )


def test_every_kind_of_plan_has_cases() -> None:
    assert {case.kind for case in CASES} == set(PlanKind)


PARTS = st.sampled_from(
    [
        "id", "o.id", "qty", "amount", "tags", "tags[1]", "address->geo->lat", "address->*", "*",
        "o.*", "p.*", "c.*", "p.amount", "c.name", "attrs['x']", "ROWTIME", "ROWKEY", "WINDOWSTART",
        "COUNT(*)", "SUM(qty)", "LATEST_BY_OFFSET(amount)", "EXPLODE(tags)", "UCASE(id)", "1",
        "NULL", "'x'", "TRANSFORM(tags, x => UCASE(x))", "CASE WHEN paid THEN 1 END",
        "AS_VALUE(id)",
        "CAST(qty AS VARCHAR)", "qty + 1 AS n", "ARRAY[1][1]", "STRUCT(a := 1)->a", "nope",
        "f(qty)", "`odd name`", "REDUCE(attrs, 0, (s, k, v) => s)", "TOPK(qty)",
        "DATEADD(DAYS, 1, day)",
    ]
)  # fmt: skip
SOURCES_OF_A_QUERY = st.sampled_from(
    [
        "orders",
        "orders o",
        "customers c",
        "hourly",
        "visits",
        "orders o JOIN payments p WITHIN 1 DAY ON o.id = p.order_id",
        "orders o FULL JOIN payments p WITHIN 1 DAY ON UCASE(o.id) = p.order_id AND o.qty > 1",
        "orders o LEFT JOIN customers c ON o.customer = c.id",
        "customers c JOIN customers o ON c.id = o.id",
        "customers c RIGHT JOIN orders o ON c.id = o.customer",
        "nothing",
    ]
)
CLAUSES = st.lists(
    st.sampled_from(
        [
            "WINDOW TUMBLING (SIZE 1 HOUR)", "WINDOW SESSION (1 HOUR)", "WHERE qty > 1",
            "WHERE ROWTIME > '2026'", "GROUP BY id", "GROUP BY 1", "GROUP BY (qty, id)",
            "GROUP BY UCASE(id), n", "HAVING COUNT(*) > 1", "PARTITION BY qty", "PARTITION BY NULL",
            "EMIT CHANGES", "EMIT FINAL", "LIMIT 2",
        ]
    ),
    max_size=4,
).map(" ".join)  # fmt: skip


@given(
    st.sampled_from(["", "CREATE STREAM x AS ", "CREATE TABLE x AS ", "INSERT INTO x "]),
    st.lists(PARTS, min_size=1, max_size=4).map(", ".join),
    SOURCES_OF_A_QUERY,
    CLAUSES,
)
def test_every_select_is_planned_or_refused(
    head: str, columns: str, sources: str, clauses: str
) -> None:
    try:
        found = planned(f"{head}SELECT {columns} FROM {sources} {clauses}")
    except SqlError:
        return
    assert len(set(found.columns)) == len(found.columns)
    assert set(found.keys) <= set(found.columns)
