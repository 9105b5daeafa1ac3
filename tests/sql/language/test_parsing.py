"""Statements, as they are read."""

import contextlib
import dataclasses
import datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sql.language import statements as sql
from headrace.sql.language.errors import SqlError
from headrace.sql.language.parsing import HEADS, parse
from headrace.sql.language.select import Within
from headrace.sql.language.statements import Statement
from headrace.sql.language.words import KEYWORDS, STATEMENT_STARTS
from headrace.sql.sources import ColumnRole, SqlColumn, Window

NUMBER = SqlColumn("id", "int")

CASES: list[tuple[str, Statement]] = [
    # Streams and tables
    (
        (
            "CREATE STREAM s (id INT KEY, v VARCHAR) WITH (KAFKA_TOPIC = 't', Value_Format='JSON',"
            " partitions=3, wrap_single_value = FALSE)"
        ),
        sql.CreateSource(
            "",
            "s",
            False,
            (SqlColumn("id", "int", ColumnRole.KEY), SqlColumn("v", "string")),
            {
                "kafka_topic": "t",
                "value_format": "JSON",
                "partitions": "3",
                "wrap_single_value": "false",
            },
        ),
    ),
    (
        "create or replace source table if not exists `my table` with ('kafka_topic'='t')",
        sql.CreateSource(
            "", "my table", True, (), {"kafka_topic": "t"}, True, if_not_exists=True, read_only=True
        ),
    ),
    (
        "CREATE TABLE t (a INT PRIMARY KEY, b STRING PRIMARY KEY)",
        sql.CreateSource(
            "",
            "t",
            True,
            (
                SqlColumn("a", "int", ColumnRole.KEY),
                SqlColumn("b", "string", ColumnRole.KEY),
            ),
            {},
        ),
    ),
    (
        "CREATE STREAM s (h ARRAY<STRUCT<key STRING, value BYTES>> HEADERS, x BYTES HEADER('x'))",
        sql.CreateSource(
            "",
            "s",
            False,
            (
                SqlColumn("h", "array<struct<key: string, value: binary>>", ColumnRole.HEADER),
                SqlColumn("x", "binary", ColumnRole.HEADER, "x"),
            ),
            {},
        ),
    ),
    ("DROP STREAM s", sql.DropSource("", "s", False)),
    (
        'DROP TABLE IF EXISTS "T" DELETE TOPIC',
        sql.DropSource("", "T", True, if_exists=True, delete_topic=True),
    ),
    ("ALTER STREAM s ADD COLUMN id INT", sql.AlterSource("", "s", False, (NUMBER,))),
    (
        "ALTER TABLE t ADD id INT, ADD COLUMN b MAP<STRING, DOUBLE>",
        sql.AlterSource("", "t", True, (NUMBER, SqlColumn("b", "map<string, double>"))),
    ),
    # Values
    (
        "INSERT INTO s VALUES (1, -2, 1.5, 1e3, .5, 'it''s', TRUE, NULL)",
        sql.InsertValues(
            "", "s", (), (1, -2, Decimal("1.5"), 1000.0, Decimal("0.5"), "it's", True, None)
        ),
    ),
    (
        "INSERT INTO s (a, `b c`) VALUES (ARRAY[1, 2], MAP('k' := ARRAY['x']))",
        sql.InsertValues("", "s", ("a", "b c"), ([1, 2], {"k": ["x"]})),
    ),
    (
        (
            "INSERT INTO s VALUES (STRUCT(a := 1, b := STRUCT(c := NULL)), 1 + 2 * 3, 7 / 2,"
            " -7 / 2, 'a' || 'b', CONCAT('a', NULL, 1), UCASE('x'), ARRAY[], MAP())"
        ),
        sql.InsertValues(
            "", "s", (), ({"a": 1, "b": {"c": None}}, 7, 3, -3, "ab", "a1", "X", [], {})
        ),
    ),
    (
        (
            "INSERT INTO s VALUES (CAST('5' AS BIGINT), CAST(1.26 AS DECIMAL(5, 1)),"
            " CAST(1 AS VARCHAR), TO_BYTES('ff', 'hex'), CAST('2026-01-02' AS DATE),"
            " CAST('12:30' AS TIME), TIMESTAMP '2026-01-02T03:04:05', CAST('x' AS BYTES),"
            " CAST(NULL AS INT))"
        ),
        sql.InsertValues(
            "",
            "s",
            (),
            (
                5,
                Decimal("1.3"),
                "1",
                b"\xff",
                datetime.date(2026, 1, 2),
                datetime.time(12, 30),
                datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
                b"x",
                None,
            ),
        ),
    ),
    # Queries
    ("TERMINATE CTAS_T_1", sql.TerminateQuery("", "CTAS_T_1")),
    ("TERMINATE ALL", sql.TerminateQuery("", None)),
    ("PAUSE `q-1`", sql.PauseQuery("", "q-1")),
    ("PAUSE ALL", sql.PauseQuery("", None)),
    ("RESUME q", sql.ResumeQuery("", "q")),
    ("RESUME all", sql.ResumeQuery("", None)),
    ("EXPLAIN CTAS_T_1", sql.ExplainQuery("", "CTAS_T_1")),
    # Lists
    ("LIST STREAMS", sql.ListObjects("", "STREAMS")),
    ("SHOW TABLES EXTENDED", sql.ListObjects("", "TABLES", True)),
    ("SHOW TOPICS", sql.ListObjects("", "TOPICS")),
    ("LIST ALL TOPICS EXTENDED", sql.ListObjects("", "ALL TOPICS", True)),
    ("SHOW QUERIES", sql.ListObjects("", "QUERIES")),
    ("LIST PROPERTIES", sql.ListObjects("", "PROPERTIES")),
    ("LIST FUNCTIONS", sql.ListObjects("", "FUNCTIONS")),
    ("LIST TYPES", sql.ListObjects("", "TYPES")),
    ("SHOW VARIABLES", sql.ListObjects("", "VARIABLES")),
    ("LIST CONNECTORS", sql.ListObjects("", "CONNECTORS")),
    ("LIST SINK CONNECTORS", sql.ListObjects("", "SINK CONNECTORS")),
    ("LIST SOURCE CONNECTORS", sql.ListObjects("", "SOURCE CONNECTORS")),
    ("SHOW CONNECTOR PLUGINS", sql.ListObjects("", "CONNECTOR PLUGINS")),
    ("LIST REPLAYS", sql.ListObjects("", "REPLAYS")),
    ("DESCRIBE STREAMS EXTENDED", sql.ListObjects("", "STREAMS", True)),
    # Descriptions
    ("DESCRIBE s", sql.DescribeSource("", "s")),
    ("DESCRIBE s EXTENDED", sql.DescribeSource("", "s", True)),
    ("DESCRIBE EXTENDED s", sql.DescribeSource("", "s", True)),
    ("DESCRIBE function", sql.DescribeSource("", "function")),
    ("DESCRIBE FUNCTION f", sql.DescribeFunction("", "f")),
    ("DESCRIBE CONNECTOR c", sql.DescribeConnector("", "c")),
    ("DESCRIBE REPLAY r", sql.DescribeReplay("", "r")),
    ("PRINT 'my.topic'", sql.PrintTopic("", "my.topic")),
    (
        "PRINT t FROM BEGINNING INTERVAL 5 LIMIT 3",
        sql.PrintTopic("", "t", True, interval=5, limit=3),
    ),
    ("PRINT t SAMPLE 2", sql.PrintTopic("", "t", interval=2)),
    # The session
    ("SET 'auto.offset.reset' = 'earliest'", sql.SetProperty("", "auto.offset.reset", "earliest")),
    ("UNSET 'a.b'", sql.UnsetProperty("", "a.b")),
    ("DEFINE v = 'x''y'", sql.DefineVariable("", "v", "x'y")),
    ("UNDEFINE v", sql.UndefineVariable("", "v")),
    ("ALTER SYSTEM 'a' = 'b'", sql.AlterSystem("", "a", "b")),
    ("RUN SCRIPT 'a/b.sql'", sql.RunScript("", "a/b.sql")),
    ("SPOOL '/tmp/x'", sql.SpoolOutput("", "/tmp/x")),
    ("SPOOL OFF", sql.SpoolOutput("", None)),
    # Types, functions, connectors
    (
        "CREATE TYPE address AS STRUCT<a INT, b ARRAY<STRING>>",
        sql.CreateType("", "address", "struct<a: int, b: array<string>>"),
    ),
    (
        "CREATE TYPE IF NOT EXISTS n AS DECIMAL(10, 2)",
        sql.CreateType("", "n", "decimal(10,2)", if_not_exists=True),
    ),
    ("DROP TYPE IF EXISTS n", sql.DropType("", "n", if_exists=True)),
    (
        (
            "CREATE OR REPLACE FUNCTION f (id INT) RETURNS ARRAY<STRING> LANGUAGE python"
            " WITH (deterministic = false) AS $$\nreturn [str(id);]\n$$"
        ),
        sql.CreateFunction(
            "",
            "f",
            (NUMBER,),
            "array<string>",
            "PYTHON",
            "\nreturn [str(id);]\n",
            {"deterministic": "false"},
            or_replace=True,
        ),
    ),
    (
        "CREATE FUNCTION IF NOT EXISTS f () RETURNS INT LANGUAGE PYTHON AS 'return 1'",
        sql.CreateFunction("", "f", (), "int", "PYTHON", "return 1", if_not_exists=True),
    ),
    ("DROP FUNCTION f", sql.DropFunction("", "f")),
    (
        "CREATE SOURCE CONNECTOR c WITH ('connector.class' = 'x.Y', \"tasks.max\" = 2)",
        sql.CreateConnector("", "c", True, {"connector.class": "x.Y", "tasks.max": "2"}),
    ),
    (
        "CREATE SINK CONNECTOR IF NOT EXISTS `c-1` WITH (topics = 't')",
        sql.CreateConnector("", "c-1", False, {"topics": "t"}, if_not_exists=True),
    ),
    ("DROP CONNECTOR IF EXISTS c", sql.DropConnector("", "c", if_exists=True)),
    # Assertions
    ("ASSERT TOPIC t", sql.AssertTopic("", "t", True, {})),
    (
        "ASSERT NOT EXISTS TOPIC 'a.b' WITH (PARTITIONS=3, replicas=1) TIMEOUT 10 SECONDS",
        sql.AssertTopic("", "a.b", False, {"partitions": "3", "replicas": "1"}, 10_000),
    ),
    ("ASSERT SCHEMA SUBJECT 's-value' ID 3", sql.AssertSchema("", True, "s-value", 3)),
    (
        "ASSERT NOT EXISTS SCHEMA ID 7 TIMEOUT 2 MINUTES",
        sql.AssertSchema("", False, None, 7, 120_000),
    ),
    # Replays
    ("CREATE REPLAY b OF a", sql.CreateReplay("", "b", "a", "EARLIEST", None)),
    (
        "CREATE REPLAY b OF a FROM '2026-01-01' WITH (kafka_topic = 'a.g2')",
        sql.CreateReplay("", "b", "a", "2026-01-01", None, {"kafka_topic": "a.g2"}),
    ),
    ("COMPARE b WITH a", sql.CompareReplay("", "b", "a")),
    (
        "COMPARE b WITH a IGNORE (ts, x) TOLERANCE (total = 0.01)",
        sql.CompareReplay("", "b", "a", ("ts", "x"), {"total": 0.01}),
    ),
    ("SWITCH a TO b", sql.SwitchReplay("", "a", "b")),
    ("SWITCH a TO b WITH (mode = 'merge')", sql.SwitchReplay("", "a", "b", {"mode": "merge"})),
    ("ROLLBACK a", sql.RollbackReplay("", "a")),
    ("DROP REPLAY IF EXISTS b", sql.DropReplay("", "b", if_exists=True)),
    ("DROP REPLAY b DELETE TOPIC", sql.DropReplay("", "b", delete_topic=True)),
]


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[text for text, _ in CASES])
def test_statements(text: str, expected: Statement) -> None:
    for written in (text, f"{text};", f"-- why\n  {text} /* and */ ; "):
        assert parse(written) == dataclasses.replace(expected, text=written)


TYPES = [
    ("VARCHAR", "string"),
    ("VARCHAR(255)", "string"),
    ("VARCHAR(STRING)", "string"),
    ("string", "string"),
    ("INTEGER", "int"),
    ("BIGINT", "bigint"),
    ("BOOLEAN", "boolean"),
    ("DOUBLE", "double"),
    ("BYTES", "binary"),
    ("DATE", "date"),
    ("TIME", "time"),
    ("TIMESTAMP", "timestamp"),
    ("DECIMAL(5,2)", "decimal(5,2)"),
    ("DECIMAL(5)", "decimal(5,0)"),
    ("ARRAY<ARRAY<INT>>", "array<array<int>>"),
    ("INT ARRAY", "array<int>"),
    ("MAP<STRING, STRUCT<a INT>>", "map<string, struct<a: int>>"),
    ("STRUCT<`a b` INT, c: STRING, `x``y` INT>", "struct<`a b`: int, c: string, `x``y`: int>"),
    ("STRUCT<>", "struct<>"),
    ("Address", "struct<street: string>"),
    ("ARRAY<address>", "array<struct<street: string>>"),
]


@pytest.mark.parametrize(("written", "expected"), TYPES)
def test_types(written: str, expected: str) -> None:
    statement = parse(f"CREATE TYPE t AS {written}", {"address": "struct<street: string>"})
    assert isinstance(statement, sql.CreateType)
    assert statement.type == expected


def select_of(text: str) -> sql.Select:
    statement = parse(text)
    assert isinstance(statement, sql.SelectStatement | sql.CreateAs | sql.InsertSelect)
    return statement.select


def test_a_select_has_the_clauses_of_ksqldb_beside_the_expression() -> None:
    select = select_of(
        "CREATE OR REPLACE TABLE t WITH (kafka_topic='x', start='earliest') AS SELECT a, COUNT(*) n"
        " FROM s AS x WINDOW w HOPPING (SIZE 1 MINUTE, ADVANCE BY 10 SECONDS, RETENTION 1 DAY,"
        " GRACE PERIOD 0 SECONDS) WHERE b->c > 1 GROUP BY (a) HAVING COUNT(*) > 1 EMIT FINAL"
    )
    assert select.text.startswith("SELECT a")
    assert select.text.endswith("EMIT FINAL")
    assert select.expression.sql("spark") == (
        "SELECT a, COUNT(*) AS n FROM s AS x WHERE b.c > 1 GROUP BY (a) HAVING COUNT(*) > 1"
    )
    assert select.first is not None
    assert (select.first.name, select.first.alias) == ("s", "x")
    assert select.window == Window("HOPPING", 60_000, 10_000, 0, 86_400_000)
    assert select.emit == "FINAL"
    assert [each.sql("spark") for each in select.group_by] == ["a"]
    assert select.only_pull is None


def test_joins_have_their_time_ranges() -> None:
    select = select_of(
        "SELECT * FROM a JOIN b WITHIN (1 HOUR, 2 HOURS) GRACE PERIOD 1 DAY ON a.x = b.x"
        " LEFT OUTER JOIN c AS d ON a.y = d.y FULL JOIN e WITHIN 5 SECONDS ON a.z = e.z"
        " RIGHT JOIN f ON a.w = f.w PARTITION BY a.x, b.y EMIT CHANGES LIMIT 7"
    )
    assert [(join.kind, join.source.alias, join.within) for join in select.joins] == [
        ("INNER", "b", Within(3_600_000, 7_200_000, 86_400_000)),
        ("LEFT", "d", None),
        ("FULL", "e", Within(5_000, 5_000)),
        ("RIGHT", "f", None),
    ]
    assert [each.sql("spark") for each in select.partition_by or ()] == ["a.x", "b.y"]
    assert select.limit == 7


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT DISTINCT a FROM t", "DISTINCT"),
        ("SELECT a FROM t ORDER BY a", "ORDER BY"),
        ("WITH q AS (SELECT 1) SELECT * FROM q", "WITH"),
        ("SELECT a FROM t UNION ALL SELECT b FROM u", "UNION"),
        ("SELECT a FROM (SELECT * FROM t)", "subqueries"),
        ("SELECT a FROM t WHERE a IN (SELECT b FROM u)", "subqueries"),
        ("SELECT a, ROW_NUMBER() OVER (PARTITION BY a ORDER BY b) FROM t", "OVER"),
        ("SELECT a FROM t, u", "JOINs"),
        ("SELECT a FROM t JOIN u USING (a)", "JOINs"),
        ("SELECT a FROM t LEFT SEMI JOIN u ON t.a = u.a", "JOINs"),
        ("SELECT 1", "FROM"),
        ("(SELECT a FROM t) LIMIT 3", "one SELECT"),
        ("SELECT a FROM t OFFSET 3", "OFFSET"),
    ],
)
def test_any_query_can_be_a_pull_query(text: str, reason: str) -> None:
    select = select_of(text)
    assert select.only_pull is not None
    assert reason in select.only_pull
    assert select.emit is None


@pytest.mark.parametrize(
    "text",
    [
        "EXPLAIN SELECT * FROM s EMIT CHANGES",
        "EXPLAIN CREATE TABLE t AS SELECT a, COUNT(*) FROM s GROUP BY a",
        "EXPLAIN INSERT INTO t SELECT * FROM s",
    ],
)
def test_explain_of_a_statement(text: str) -> None:
    explained = parse(text)
    assert isinstance(explained, sql.ExplainQuery)
    assert explained.statement == parse(text.removeprefix("EXPLAIN "))


def test_places_in_an_explained_statement_are_those_of_the_whole() -> None:
    with pytest.raises(SqlError) as raised:
        parse("EXPLAIN\n SELECT a b c FROM s")
    assert (raised.value.line, raised.value.column) == (2, 13)


ERRORS = [
    ("", "empty", None),
    ("-- nothing", "empty", None),
    ("CREAT STREAM s", "Did you mean CREATE?", (1, 1)),
    ("42", "No statement begins with '42'", (1, 1)),
    ("CREATE STREEM s", "Did you mean STREAM?", (1, 8)),
    ("CREATE STREAM", "the name of the stream, found the end of the statement", (1, 14)),
    ("CREATE STREAM select (a INT)", "Put reserved words in backticks", (1, 15)),
    ("CREATE STREAM s (a INT", "Expected )", (1, 23)),
    ("CREATE STREAM s (a INT, A INT)", "The column A is there twice", (1, 25)),
    ("CREATE STREAM s (a INTT)", "Did you mean INT?", (1, 20)),
    ("CREATE STREAM s (a ADDRESS)", "Unknown type ADDRESS", (1, 20)),
    ("CREATE STREAM s (a DECIMAL)", "precision and a scale", (1, 27)),
    ("CREATE STREAM s (a DECIMAL(50, 2))", "from 1 to 38", (1, 27)),
    ("CREATE STREAM s (a INT PRIMARY KEY)", "PRIMARY KEY is for tables", (1, 24)),
    ("CREATE TABLE s (a INT KEY)", "KEY alone is for streams", (1, 23)),
    ("CREATE STREAM s (a INT HEADER('x'))", "has the type BYTES", (1, 24)),
    ("CREATE STREAM s WITH (kafka_topc='x')", "Did you mean kafka_topic?", (1, 23)),
    ("CREATE STREAM s WITH (start='x')", "Unknown property start of CREATE STREAM", (1, 23)),
    (
        "CREATE STREAM s WITH (window_type='x') AS SELECT * FROM t",
        "Unknown property window_type of CREATE STREAM AS SELECT",
        (1, 23),
    ),
    ("CREATE STREAM s WITH (format='x', FORMAT='y')", "twice", (1, 35)),
    ("CREATE STREAM s WITH (format=json)", "Expected a value in single quotes", (1, 30)),
    ("CREATE STREAM s WITH (format='${f}', partitions=${p})", "The variable p", (1, 49)),
    ("CREATE STREAM s (a INT) AS SELECT a FROM t", "no list of columns", (1, 17)),
    ("CREATE SOURCE STREAM s AS SELECT a FROM t", "only reads a topic", (1, 24)),
    ("CREATE OR REPLACE TYPE t AS INT", "not possible for a TYPE", (1, 8)),
    ("CREATE CONNECTOR c WITH (a='b')", "SOURCE or SINK before CONNECTOR", (1, 8)),
    ("CREATE SINK STREAM s", "Expected CONNECTOR after SINK", (1, 8)),
    ("CREATE STREAM s AS", "Expected SELECT", (1, 19)),
    ("CREATE STREAM s (a INT) b", "'b' does not belong to the statement", (1, 25)),
    ("INSERT INTO s (a, b) VALUES (1)", "2 columns and 1 values", (1, 22)),
    ("INSERT INTO s VALUES (a)", "a is a name", (1, 23)),
    ("INSERT INTO s VALUES (1), (2)", "takes one row", (1, 15)),
    ("INSERT INTO s VALUES (1 / 0)", "cannot be computed", (1, 23)),
    ("INSERT INTO s VALUES (RANDOM())", "not possible in VALUES", (1, 23)),
    ("INSERT INTO s SET a = 1", "VALUES or SELECT", (1, 15)),
    ("SELECT", "no columns", (1, 1)),
    ("SELECT a b c FROM t", "'c' is not expected here", (1, 12)),
    ("SELECT a\nFROM t WHERE", "missing after 'WHERE'", (2, 8)),
    ("SELECT f(a FROM t", "no closing one", (1, 9)),
    ("SELECT a) FROM t", "closes nothing", (1, 9)),
    ("SELECT 'a FROM t", "no closing quote", (1, 8)),
    ("SELECT ${x} FROM t", "The variable x is not defined", (1, 8)),
    ("SELECT a FROM t LIMIT x", "whole number", None),
    ("SELECT a FROM t EMIT CHANGES EMIT CHANGES", "EMIT is there twice", (1, 30)),
    ("SELECT a FROM t WITHIN 1 HOUR", "WITHIN belongs", (1, 17)),
    ("SELECT a FROM t WINDOW TUMBLING (1 HOUR)", "Expected SIZE", (1, 34)),
    ("SELECT a FROM t WINDOW TUMBLING (SIZE 1 WEEK)", "DAYS, HOURS", (1, 41)),
    ("SELECT a FROM t WINDOW TUMBLING (SIZE 0 DAYS)", "at least 1 MILLISECOND", (1, 34)),
    (
        "SELECT a FROM t WINDOW HOPPING (SIZE 1 HOUR, ADVANCE BY 2 HOURS)",
        "at most the SIZE",
        (1, 33),
    ),
    (
        "SELECT a FROM t WINDOW TUMBLING (SIZE 1 HOUR, RETENTION 1 MINUTE)",
        "RETENTION is at least",
        (1, 34),
    ),
    ("SELECT CAST(a AS nope) FROM t", "Unknown type nope", None),
    ("DROP STREM s", "Did you mean STREAM?", (1, 6)),
    ("LIST STREEMS", "Did you mean STREAMS?", (1, 6)),
    ("LIST TYPES EXTENDED", "EXTENDED is not possible for TYPES", (1, 6)),
    ("EXPLAIN LIST STREAMS", "EXPLAIN takes the id of a query", (1, 9)),
    ("EXPLAIN CREATE STREAM s (a INT)", "EXPLAIN takes the id of a query", (1, 9)),
    ("PRINT t INTERVAL 0", "at least 1", (1, 18)),
    ("SET a = 'b'", "the name of a setting in single quotes", (1, 5)),
    ("ASSERT SCHEMA", "needs SUBJECT", (1, 14)),
    ("ASSERT VALUES s VALUES (1)", "Expected TOPIC or SCHEMA", (1, 8)),
    ("CREATE FUNCTION f () RETURNS INT LANGUAGE JAVA AS $$$$", "Expected PYTHON", (1, 43)),
    ("CREATE FUNCTION f () RETURNS INT LANGUAGE PYTHON AS x", "between $$ and $$", (1, 53)),
    ("CREATE REPLAY b OF a FROM SOMEWHERE", "EARLIEST, LATEST or NOW", (1, 27)),
    ("COMPARE b WITH a TOLERANCE (x = 'y')", "is not a number", (1, 28)),
]


@pytest.mark.parametrize(("text", "part", "place"), ERRORS, ids=[text for text, _, _ in ERRORS])
def test_errors_say_what_where_and_what_was_expected(
    text: str, part: str, place: tuple[int, int] | None
) -> None:
    with pytest.raises(SqlError) as raised:
        parse(text)
    assert part in raised.value.message
    assert (raised.value.line, raised.value.column) == (place or (None, None))


WORDS = st.sampled_from(
    [
        *HEADS, *KEYWORDS, *STATEMENT_STARTS, "(", ")", "[", "]", ",", "->", "=>", ":=", "*", "=",
        "<", ">", ".", "'a'", "1", "2.5", "x", "y", "\"q\"", "`b`", "$$z$$", "${v}", ";", "--", "-",
        "||", "TOPIC", "CONNECTOR", "CAST(x AS INT)", "ARRAY[1]", "1 HOUR", "(a INT)",
    ]
)  # fmt: skip


@given(st.text() | st.lists(WORDS, max_size=25).map(" ".join))
def test_parse_reads_any_text_or_says_what_is_wrong(text: str) -> None:
    with contextlib.suppress(SqlError):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "(" * 5_000 + "1" + ")" * 5_000,
        "SELECT " + "f(" * 5_000 + "1" + ")" * 5_000,
        "SELECT " + "CASE WHEN " * 3_000 + "1",
        "SELECT " + "NOT " * 5_000 + "1 FROM t",
        "CREATE TYPE t AS " + "ARRAY<" * 5_000,
        "INSERT INTO s VALUES (" + "-" * 5_000 + "1)",
        "INSERT INTO s VALUES (" + "1" * 5_000 + ")",
    ],
    ids=["parentheses", "calls", "cases", "nots", "types", "signs", "digits"],
)
def test_too_much_of_something_is_an_error_of_the_statement(text: str) -> None:
    with pytest.raises(SqlError):
        parse(text)
