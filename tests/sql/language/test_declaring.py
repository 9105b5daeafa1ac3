"""Streams and tables out of statements."""

import pytest

from headrace.sql.language.declaring import (
    FormatDefaults,
    TopicRequest,
    columns_to_look_up,
    declared_source,
    derived_source,
    requested_topic,
)
from headrace.sql.language.errors import SqlError
from headrace.sql.language.parsing import parse
from headrace.sql.language.statements import CreateAs, CreateSource
from headrace.sql.sources import ColumnRole, Format, SqlColumn, SqlSource, Window
from tests.sql.language.cases import CATALOG, planned


def created(text: str) -> CreateSource:
    statement = parse(text)
    assert isinstance(statement, CreateSource)
    return statement


def test_a_stream_with_all_properties() -> None:
    found = declared_source(
        created(
            "CREATE SOURCE STREAM s (a INT KEY, b VARCHAR KEY, t VARCHAR, v INT) WITH ("
            "kafka_topic='x', key_format='json', value_format='delimited', timestamp='T',"
            "timestamp_format='yyyy-MM-dd', value_delimiter='TAB', window_type='hopping',"
            "window_size='30 SECONDS')"
        )
    )
    assert found == SqlSource(
        name="s",
        is_table=False,
        topic="x",
        columns=(
            SqlColumn("a", "int", ColumnRole.KEY),
            SqlColumn("b", "string", ColumnRole.KEY),
            SqlColumn("t", "string"),
            SqlColumn("v", "int"),
        ),
        key_format=Format.JSON,
        value_format=Format.DELIMITED,
        timestamp="t",
        timestamp_format="yyyy-MM-dd",
        window=Window("HOPPING", 30_000),
        delimiter="\t",
        read_only=True,
    )


def test_formats() -> None:
    text = "CREATE STREAM s (v INT) WITH (kafka_topic='x'{})"
    both = declared_source(created(text.format(", format='json'")))
    assert (both.key_format, both.value_format) == (Format.JSON, Format.JSON)
    default = declared_source(created(text.format("")), (), FormatDefaults(value=Format.JSON_SR))
    assert (default.key_format, default.value_format) == (Format.KAFKA, Format.JSON_SR)
    bare = declared_source(
        created(text.format(", value_format='avro', value_schema_id=3, wrap_single_value=false"))
    )
    assert (bare.value_schema_id, bare.wrap_single_value) == (3, False)


def test_columns_of_the_registry() -> None:
    statement = created("CREATE TABLE t WITH (kafka_topic='x', format='avro')")
    assert columns_to_look_up(statement, FormatDefaults()) == (ColumnRole.KEY, ColumnRole.VALUE)
    columns = (SqlColumn("v", "int"), SqlColumn("k", "string", ColumnRole.KEY))
    assert declared_source(statement, columns).columns == (columns[1], columns[0])
    half = created(
        "CREATE TABLE t (k INT PRIMARY KEY) WITH (kafka_topic='x', value_format='protobuf')"
    )
    assert columns_to_look_up(half, FormatDefaults()) == (ColumnRole.VALUE,)
    plain = created("CREATE STREAM t (k INT) WITH (kafka_topic='x', value_format='avro')")
    assert columns_to_look_up(plain, FormatDefaults()) == ()


def test_the_topic_of_a_statement() -> None:
    statement = created(
        "CREATE STREAM s (v INT) WITH (kafka_topic='x', partitions=3, replicas='1',"
        " retention_ms=-1, cleanup_policy='compact, delete')"
    )
    assert requested_topic(statement.properties) == TopicRequest(3, 1, -1, "compact,delete")
    assert requested_topic({}) == TopicRequest(None, None, None, None)


JSON = "kafka_topic='x', value_format='json'"
REFUSED = [
    ("CREATE STREAM s (v INT) WITH (value_format='json')", "needs a topic"),
    ("CREATE STREAM s (v INT) WITH (kafka_topic='x')", "WITH needs value_format"),
    ("CREATE STREAM s (v INT) WITH (kafka_topic='x', value_format='jso')", "Did you mean JSON?"),
    ("CREATE STREAM s (v INT) WITH (kafka_topic='x', value_format='none')", "NONE is not possible"),
    (f"CREATE STREAM s (v INT) WITH (format='json', {JSON})", "leave it out"),
    (f"CREATE STREAM s WITH ({JSON})", "needs columns"),
    (f"CREATE STREAM s (k INT KEY) WITH ({JSON})", "has no value columns"),
    (f"CREATE TABLE t (v INT) WITH ({JSON})", "needs a PRIMARY KEY"),
    (f"CREATE STREAM s (k INT KEY, v INT) WITH ({JSON}, key_format='none')", "cannot be NONE"),
    (f"CREATE STREAM s (a INT KEY, b INT KEY, v INT) WITH ({JSON})", "key_format='JSON'"),
    (f"CREATE STREAM s (k DATE KEY, v INT) WITH ({JSON})", "KAFKA has no type date"),
    (
        f"CREATE STREAM s (k MAP<STRING, INT> KEY, v INT) WITH ({JSON}, key_format='json')",
        "MAP in its key",
    ),
    (
        "CREATE STREAM s (v ARRAY<INT>) WITH (kafka_topic='x', value_format='delimited')",
        "DELIMITED has no type array<int>",
    ),
    (
        "CREATE STREAM s (a INT, b INT) WITH (kafka_topic='x', value_format='kafka')",
        "KAFKA has only one",
    ),
    (f"CREATE STREAM s (v INT) WITH ({JSON}, timestamp='w')", "w is not a column"),
    (f"CREATE STREAM s (v VARCHAR) WITH ({JSON}, timestamp='v')", "Add timestamp_format"),
    (f"CREATE STREAM s (v INT) WITH ({JSON}, timestamp='v')", "it needs to be BIGINT"),
    (f"CREATE STREAM s (v INT) WITH ({JSON}, timestamp_format='yyyy')", "needs the property times"),
    (f"CREATE STREAM s (v INT) WITH ({JSON}, window_type='session')", "needs a key column"),
    (f"CREATE STREAM s (k INT KEY, v INT) WITH ({JSON}, window_type='x')", "TUMBLING, HOPPING"),
    (
        f"CREATE STREAM s (k INT KEY, v INT) WITH ({JSON}, window_type='tumbling')",
        "needs window_size",
    ),
    (f"CREATE STREAM s (v INT) WITH ({JSON}, window_size='1 HOUR')", "needs window_type"),
    (
        (
            f"CREATE STREAM s (k INT KEY, v INT) WITH ({JSON}, window_type='tumbling',"
            " window_size='an hour')"
        ),
        "a number and a unit",
    ),
    (
        (
            f"CREATE STREAM s (k INT KEY, v INT) WITH ({JSON}, window_type='session',"
            " window_size='1 HOUR')"
        ),
        "not for SESSION",
    ),
    (f"CREATE STREAM s (v INT) WITH ({JSON}, value_delimiter='|')", "only for the format DELIM"),
    (
        (
            "CREATE STREAM s (v INT) WITH (kafka_topic='x', value_format='delimited',"
            " value_delimiter='||')"
        ),
        "one character",
    ),
    (f"CREATE STREAM s (v INT) WITH ({JSON}, value_schema_id=3)", "needs a format of the schema"),
    (f"CREATE STREAM s (v INT, w INT) WITH ({JSON}, wrap_single_value=false)", "a single column"),
    (f"CREATE STREAM s (v INT) WITH ({JSON}, wrap_single_value='maybe')", "true or false"),
    (f"CREATE STREAM s (rowtime INT) WITH ({JSON})", "The name rowtime is reserved"),
    (f"CREATE STREAM s (__x INT) WITH ({JSON})", "internal"),
    (
        f"CREATE STREAM s (v INT) WITH ({JSON}, value_schema_full_name='a.b')",
        "value_schema_full_name is not supported",
    ),
]


@pytest.mark.parametrize(("text", "part"), REFUSED, ids=[text for text, _ in REFUSED])
def test_refused_declarations(text: str, part: str) -> None:
    with pytest.raises(SqlError) as raised:
        declared_source(created(text))
    assert part in raised.value.message


@pytest.mark.parametrize(
    "properties",
    [
        {"partitions": "0"},
        {"partitions": "many"},
        {"replicas": "-1"},
        {"retention_ms": "-2"},
        {"cleanup_policy": "shred"},
    ],
)
def test_refused_topics(properties: dict[str, str]) -> None:
    with pytest.raises(SqlError):
        requested_topic(properties)


def derived(text: str, *types: str) -> SqlSource:
    statement = parse(text)
    assert isinstance(statement, CreateAs)
    plan = planned(text)
    first = CATALOG[plan.inputs[0].source.casefold()]
    return derived_source(statement, plan, types, first)


def test_the_table_of_an_aggregate() -> None:
    found = derived(
        "CREATE TABLE totals WITH (value_format='avro') AS SELECT COUNT(*) AS n, customer"
        " FROM orders WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY customer",
        "bigint",
        "bigint",
    )
    assert found == SqlSource(
        name="totals",
        is_table=True,
        topic="totals",
        columns=(SqlColumn("customer", "bigint", ColumnRole.KEY), SqlColumn("n", "bigint")),
        key_format=Format.KAFKA,
        value_format=Format.AVRO,
        window=Window("TUMBLING", 3_600_000),
    )


def test_a_result_without_a_key() -> None:
    found = derived(
        "CREATE STREAM s WITH (kafka_topic='y', timestamp='t') AS SELECT url, ROWTIME AS t"
        " FROM clicks",
        "string",
        "bigint",
    )
    assert (found.topic, found.key_format, found.timestamp) == ("y", Format.NONE, "t")
    assert not found.is_table


def test_a_key_of_two_columns_needs_a_format_for_it() -> None:
    text = "CREATE TABLE t {}AS SELECT id, qty, COUNT(*) AS n FROM orders GROUP BY id, qty"
    types = ("string", "int", "bigint")
    with pytest.raises(SqlError, match="key_format='JSON'"):
        derived(text.format(""), *types)
    found = derived(text.format("WITH (key_format='json') "), *types)
    assert found.key_format is Format.JSON


@pytest.mark.parametrize(
    ("text", "types", "part"),
    [
        ("CREATE STREAM s AS SELECT id FROM orders", ["string"], "no value columns"),
        ("CREATE STREAM s AS SELECT id, NULL AS n FROM orders", ["string", "void"], "CAST"),
    ],
)
def test_refused_results(text: str, types: list[str], part: str) -> None:
    with pytest.raises(SqlError) as raised:
        derived(text, *types)
    assert part in raised.value.message
