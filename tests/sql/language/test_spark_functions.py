"""Functions of ksqlDB, computed by Spark."""

import datetime
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from headrace.sql.language.grammar.dialect import read_query, sql_of
from headrace.sql.language.grammar.reading import TokenReader
from headrace.sql.language.grammar.select_parsing import read_select
from headrace.sql.language.planner.function_rewriting import RewriteContext, rewritten
from headrace.sql.language.planner.functions import SPARK_SQL

pytestmark = pytest.mark.spark

SCALARS: list[tuple[str, object]] = [
    # Numbers
    ("GENERATE_SERIES(1, 3)", [1, 2, 3]),
    ("GENERATE_SERIES(5, 1, -2)", [5, 3, 1]),
    ("ROUND(GEO_DISTANCE(37.4, -122.1, 40.7, -74.0))", 4118),
    ("ROUND(GEO_DISTANCE(37.4, -122.1, 40.7, -74.0, 'MILES'))", 2559),
    ("10000 / GEO_DISTANCE(0, 0, 0, 90) > 0.99", True),
    ("LOG(100)", 2.0),
    ("LOG(2, 8)", 3.0),
    ("SIGN(-3.5)", -1),
    ("TRUNC(-2.7)", -2),
    ("TRUNC(12345.678, 1)", 12345.6),
    ("TRUNC(-12345.678, -2)", -12300.0),
    ("TRUNC(DATE '2026-03-04', 'MONTH')", datetime.date(2026, 3, 1)),
    ("RANDOM() BETWEEN 0 AND 1", True),
    ("ABS(-1) + CEIL(1.2) + FLOOR(1.8)", Decimal(4)),
    # Collections
    ("ARRAY_CONCAT(ARRAY[1, 2], ARRAY[2])", [1, 2, 2]),
    ("ARRAY_CONCAT(ARRAY[1, 2], CAST(NULL AS ARRAY<INT>))", [1, 2]),
    ("ARRAY_JOIN(ARRAY['a', 'b'])", "a,b"),
    ("ARRAY_JOIN(ARRAY['a', 'b'], '-')", "a-b"),
    ("ARRAY_LENGTH(ARRAY[1, 2])", 2),
    ("ARRAY_LENGTH(CAST(NULL AS ARRAY<INT>))", None),
    ("ARRAY_SORT(ARRAY[2, NULL, 3, 1])", [1, 2, 3, None]),
    ("ARRAY_SORT(ARRAY[2, NULL, 3, 1], 'DESC')", [3, 2, 1, None]),
    ("ARRAY_SORT(ARRAY[2, 1], 'ASC')", [1, 2]),
    ("ARRAY[7, 8][1]", 7),
    ("ARRAY[7, 8][-1]", 8),
    ("ARRAY[7, 8][5]", None),
    ("MAP('a' := 1, 'b' := 2)['b']", 2),
    ("MAP('a' := 1)['x']", None),
    ("STRUCT(a := 1, b := 'x')->b", "x"),
    ("AS_MAP(ARRAY['a', 'b'], ARRAY[1, 2])", {"a": 1, "b": 2}),
    ("AS_VALUE(5)", 5),
    (
        "CUBE_EXPLODE(ARRAY[1, 2])",
        [[None, None], [None, 2], [1, None], [1, 2]],
    ),
    ("CUBE_EXPLODE(ARRAY[1, NULL])", [[None, None], [1, None]]),
    ("TRANSFORM(ENTRIES(MAP('b' := 2, 'a' := 1), TRUE), e => CONCAT(e->K, e->V))", ["a1", "b2"]),
    ("FIELD('b', 'a', 'b')", 2),
    ("FIELD('x', 'a', 'b')", 0),
    ("FIELD(CAST(NULL AS STRING), 'a')", 0),
    ("ELT(2, 'a', 'b')", "b"),
    ("JSON_ARRAY_CONTAINS('[1, 2]', 2)", True),
    ("JSON_ARRAY_CONTAINS('[\"x\"]', 'y')", False),
    ("JSON_ITEMS('[1, {\"a\": 2}]')", ["1", '{"a":2}']),
    ('JSON_KEYS(\'{"a": 1, "b": 2}\')', ["a", "b"]),
    ('JSON_RECORDS(\'{"a": 1, "b": [2]}\')', {"a": "1", "b": "[2]"}),
    ("MAP_UNION(MAP('a' := 1, 'b' := 2), MAP('a' := 9))", {"a": 9, "b": 2}),
    ("SLICE(ARRAY[1, 2, 3, 4], 2, 3)", [2, 3]),
    # Lambdas
    ("TRANSFORM(ARRAY[1, 2], x => x + 1)", [2, 3]),
    ("TRANSFORM(MAP('a' := 1), (k, v) => UCASE(k), (k, v) => v + 1)", {"A": 2}),
    ("FILTER(ARRAY[1, 2, 3], x => x > 1)", [2, 3]),
    ("FILTER(MAP('a' := 1, 'b' := 2), (k, v) => v = 2)", {"b": 2}),
    ("REDUCE(ARRAY[1, 2, 3], 10, (s, x) => s + x)", 16),
    ("REDUCE(MAP('a' := 1, 'b' := 2), 0, (s, k, v) => s + v * LEN(k))", 3),
    # Strings
    ("CONCAT('a', NULL, 'b', 1)", "ab1"),
    ("CONCAT(ARRAY[1], ARRAY[2])", [1, 2]),
    ("EXTRACTJSONFIELD('{\"a\": {\"b\": 5}}', '$.a.b')", "5"),
    ("INSTR('banana', 'an')", 2),
    ("INSTR('banana', 'an', 3)", 4),
    ("IS_JSON_STRING('[1, 2]')", True),
    ("IS_JSON_STRING('abc')", False),
    ("IS_JSON_STRING(NULL)", False),
    ("MASK('My Test $123')", "Xx-Xxxx--nnn"),
    ("MASK_KEEP_LEFT('My Test $123', 4)", "My Txxx--nnn"),
    ("MASK_KEEP_RIGHT('My Test $123', 4)", "Xx-Xxxx-$123"),
    ("MASK_LEFT('My Test $123', 4)", "Xx-Xest $123"),
    ("MASK_RIGHT('My Test $123', 4)", "My Test -nnn"),
    ("REGEXP_EXTRACT('[0-9]+', 'ab12')", "12"),
    ("REGEXP_EXTRACT('[0-9]+', 'ab')", None),
    ("REGEXP_EXTRACT('(.*) (.*)', 'hello there', 2)", "there"),
    ("REGEXP_EXTRACT_ALL('[a-z]', 'a1b')", ["a", "b"]),
    (r"REGEXP_EXTRACT_ALL('(\w+) (\w+)', 'hello there nice day', 2)", ["there", "day"]),
    ("REGEXP_SPLIT_TO_ARRAY('a1b22c', '[0-9]+')", ["a", "b", "c"]),
    ("SPLIT('a.b..c', '.')", ["a", "b", "", "c"]),
    ("SPLIT_TO_MAP('a=1|b=2', '|', '=')", {"a": "1", "b": "2"}),
    ("TO_JSON_STRING('abc')", '"abc"'),
    ("TO_JSON_STRING(15)", "15"),
    ("TO_JSON_STRING(STRUCT(a := 1, b := CAST(NULL AS INT)))", '{"a":1,"b":null}'),
    ("UCASE(LCASE('Ab')) || LEN('abc')", "AB3"),
    ("URL_DECODE_PARAM('a%20b')", "a b"),
    ("URL_ENCODE_PARAM('a b&c')", "a+b%26c"),
    ("URL_EXTRACT_FRAGMENT('http://h/p#f')", "f"),
    ("URL_EXTRACT_HOST('http://host:80/p')", "host"),
    ("URL_EXTRACT_PARAMETER('http://h/p?a=1&b=2', 'b')", "2"),
    ("URL_EXTRACT_PATH('http://h/p/q')", "/p/q"),
    ("URL_EXTRACT_PORT('http://host:8080/p')", 8080),
    ("URL_EXTRACT_PORT('http://host/p')", None),
    ("URL_EXTRACT_PROTOCOL('https://h')", "https"),
    ("URL_EXTRACT_QUERY('http://h/p?a=1')", "a=1"),
    # Bytes
    ("TO_BYTES('ff00', 'hex')", bytearray(b"\xff\x00")),
    ("FROM_BYTES(TO_BYTES('aGk=', 'base64'), 'utf8')", "hi"),
    ("ENCODE('6869', 'hex', 'ascii')", "hi"),
    ("BIGINT_FROM_BYTES(TO_BYTES('FFFFFFFFFFFFFFFE', 'hex'))", -2),
    ("BIGINT_FROM_BYTES(TO_BYTES('000000012A05F200', 'hex'))", 5_000_000_000),
    ("INT_FROM_BYTES(TO_BYTES('000007E5', 'hex'))", 2021),
    ("INT_FROM_BYTES(TO_BYTES('FFFFFFFF', 'hex'))", -1),
    ("INT_FROM_BYTES(TO_BYTES('FF', 'hex'))", None),
    # Dates and times
    (
        "CONVERT_TZ(TIMESTAMP '2026-01-01 12:00:00', 'UTC', 'Europe/Vienna')",
        datetime.datetime(2026, 1, 1, 13),
    ),
    ("DATEADD(DAYS, 2, DATE '2026-01-30')", datetime.date(2026, 2, 1)),
    ("DATESUB(MONTHS, 1, DATE '2026-03-31')", datetime.date(2026, 2, 28)),
    (
        "TIMESTAMPADD(HOURS, 2, TIMESTAMP '2026-01-01 23:00:00')",
        datetime.datetime(2026, 1, 2, 1),
    ),
    (
        "TIMESTAMPSUB(MILLISECONDS, 1, TIMESTAMP '2026-01-01 00:00:00')",
        datetime.datetime(2025, 12, 31, 23, 59, 59, 999000),
    ),
    ("FORMAT_TIME(TIMEADD(HOURS, 3, PARSE_TIME('22:30', 'HH:mm')), 'HH:mm')", "01:30"),
    ("FORMAT_TIME(TIMESUB(MINUTES, 31, PARSE_TIME('00:30', 'HH:mm')), 'HH:mm')", "23:59"),
    ("DATETOSTRING(1, 'yyyy-MM-dd')", "1970-01-02"),
    ("STRINGTODATE('1970-01-03', 'yyyy-MM-dd')", 2),
    ("FORMAT_DATE(DATE '2026-01-02', 'dd.MM.yyyy')", "02.01.2026"),
    ("FORMAT_TIMESTAMP(FROM_UNIXTIME(0), 'yyyy-MM-dd''T''HH:mm:ss')", "1970-01-01T00:00:00"),
    ("FORMAT_TIMESTAMP(FROM_UNIXTIME(0), 'HH:mm', 'America/New_York')", "19:00"),
    ("FROM_DAYS(1)", datetime.date(1970, 1, 2)),
    ("PARSE_DATE('02.01.2026', 'dd.MM.yyyy')", datetime.date(2026, 1, 2)),
    ("PARSE_DATE('nonsense', 'dd.MM.yyyy')", None),
    ("UNIX_TIMESTAMP(PARSE_TIMESTAMP('1970-01-01 00:00:01', 'yyyy-MM-dd HH:mm:ss'))", 1000),
    ("UNIX_TIMESTAMP(PARSE_TIMESTAMP('1970-01-01 02', 'yyyy-MM-dd HH', 'Europe/Vienna'))", 3600000),
    ("STRINGTOTIMESTAMP('1970-01-01 00:00:00.005', 'yyyy-MM-dd HH:mm:ss.SSS')", 5),
    ("STRINGTOTIMESTAMP('1970-01-01 01', 'yyyy-MM-dd HH', 'Europe/Vienna')", 0),
    ("STRINGTOTIMESTAMP('x', 'yyyy')", None),
    ("TIMESTAMPTOSTRING(1, 'HH:mm:ss.SSS')", "00:00:00.001"),
    ("TIMESTAMPTOSTRING(0, 'HH:mm', 'Europe/Vienna')", "01:00"),
    ("UNIX_DATE() > 20000", True),
    ("UNIX_DATE(DATE '1970-01-05')", 4),
    ("UNIX_TIMESTAMP() > 1700000000000", True),
    # Failures are null, and kill no query.
    ("CAST('x' AS INT)", None),
    ("1 / 0", None),
]
AGGREGATES: list[tuple[str, object]] = [
    ("ATTR(one)", 1),
    ("ATTR(n)", None),
    ("ATTR(word)", None),
    ("ROUND(CORRELATION(n, n), 3)", 1.0),
    ("COUNT_DISTINCT(word)", 2),
    ("HISTOGRAM(word)", {"a": 2, "b": 1}),
    ("ROUND(STDDEV_SAMPLE(n), 3)", 1.291),
    ("SUM_LIST(list)", 8),
    ("TOPK(n, 2)", [4, 3]),
    ("TOPKDISTINCT(word, 5)", ["b", "a"]),
    ("TRANSFORM(TOPK(n, word, 2), x => CONCAT(x->sort_col, x->col0))", ["4", "3b"]),
    ("LATEST_BY_OFFSET(word)", "b"),
    ("LATEST_BY_OFFSET(word, FALSE)", None),
    ("LATEST_BY_OFFSET(word, 2)", ["a", "b"]),
    ("EARLIEST_BY_OFFSET(n)", 1),
    ("EARLIEST_BY_OFFSET(n, 3)", [1, 2, 3]),
]


def written(text: str) -> str:
    """As the parser of SELECTs prepares it."""
    (node,) = read_select(TokenReader(f"SELECT {text}")).projections
    order = read_query("SELECT ROWOFFSET").selects[0]
    return sql_of(rewritten(node, RewriteContext(order=order)))


@pytest.mark.parametrize(("text", "expected"), SCALARS, ids=[text for text, _ in SCALARS])
def test_scalar_functions(spark: SparkSession, text: str, expected: object) -> None:
    ((found,),) = spark.sql(f"SELECT {written(text)} AS found").collect()
    assert found == expected


@pytest.mark.parametrize(("text", "expected"), AGGREGATES, ids=[text for text, _ in AGGREGATES])
def test_aggregate_functions(spark: SparkSession, text: str, expected: object) -> None:
    spark.sql(
        "SELECT * FROM VALUES (1, 'a', array(1, 2), 1), (2, 'a', array(), 1),"
        " (3, 'b', array(5), 1), (4, CAST(NULL AS STRING), CAST(NULL AS ARRAY<INT>), 1)"
        " AS t (n, word, list, one)"
    ).selectExpr("*", "n AS ROWOFFSET").createOrReplaceTempView("rows_of_a_group")
    ((found,),) = spark.sql(f"SELECT {written(text)} AS found FROM rows_of_a_group").collect()
    assert found == expected


def test_every_function_of_the_table_is_computed() -> None:
    tested = " ".join(text for text, _ in [*SCALARS, *AGGREGATES])
    names = {name.partition("/")[0] for name in SPARK_SQL if name.isupper()}
    assert [name for name in sorted(names) if f"{name}(" not in tested] == []
