"""Pull queries in Spark's SQL, and in that of SQLite."""

import pytest

from headrace.sql.language.errors import SqlError
from headrace.sql.language.parsing import parse
from headrace.sql.language.pull_query import spark_query
from headrace.sql.language.statements import SelectStatement

CASES = [
    ("SELECT * FROM t WHERE id = 'a''b'", "SELECT * FROM t WHERE id = 'a''b'"),
    (
        "SELECT UCASE(a) AS u, LEN(b) FROM t WHERE WINDOWSTART >= '2026-01-01' LIMIT 3",
        "SELECT UPPER(a) AS u, LENGTH(b) FROM t WHERE WINDOWSTART >= 1767225600000 LIMIT 3",
    ),
    (
        (
            "WITH q AS (SELECT a, COUNT(*) AS n FROM t GROUP BY a HAVING COUNT(*) > 1)"
            " SELECT q.a, IFNULL(u.b, 'none') AS b FROM q LEFT JOIN u ON q.a = u.a ORDER BY n DESC"
        ),
        (
            "WITH q AS (SELECT a, COUNT(*) AS n FROM t GROUP BY a HAVING COUNT(*) > 1)"
            " SELECT q.a, COALESCE(u.b, 'none') AS b FROM q LEFT JOIN u ON q.a = u.a"
            " ORDER BY n DESC"
        ),
    ),
    (
        "SELECT CAST(a AS BIGINT), EXTRACTJSONFIELD(j, '$.a') FROM t UNION ALL SELECT 1, 'x'",
        "SELECT CAST(a AS INTEGER), j ->> '$.a' FROM t UNION ALL SELECT 1, 'x'",
    ),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_a_pull_query_can_be_translated(text: str, expected: str) -> None:
    statement = parse(text)
    assert isinstance(statement, SelectStatement)
    assert spark_query(statement.select).sql("sqlite") == expected


def test_functions_of_streams_are_refused() -> None:
    statement = parse("SELECT LATEST_BY_OFFSET(a) FROM t GROUP BY b")
    assert isinstance(statement, SelectStatement)
    with pytest.raises(SqlError, match="only for streams"):
        spark_query(statement.select)
