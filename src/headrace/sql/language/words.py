"""Words that a prompt completes."""

from headrace.sql.language.grammar.properties import CREATE_AS_PROPERTIES, CREATE_PROPERTIES
from headrace.sql.language.grammar.reading import DURATIONS_MS
from headrace.sql.language.parsing import HEADS, LISTED
from headrace.sql.language.planner.functions import AGGREGATES, SPARK_SQL
from headrace.sql.plans import PSEUDO_COLUMNS

STATEMENT_STARTS = (
    *(f"{head} " for head in HEADS),
    *(f"LIST {each}" for each in LISTED),
    *(f"SHOW {each}" for each in LISTED),
    "CREATE STREAM ", "CREATE OR REPLACE STREAM ", "CREATE SOURCE STREAM ",
    "CREATE TABLE ", "CREATE OR REPLACE TABLE ", "CREATE SOURCE TABLE ",
    "CREATE TYPE ", "CREATE FUNCTION ", "CREATE SOURCE CONNECTOR ", "CREATE SINK CONNECTOR ",
    "CREATE REPLAY ", "INSERT INTO ",
    "DROP STREAM ", "DROP TABLE ", "DROP TYPE ", "DROP FUNCTION ", "DROP CONNECTOR ",
    "DROP REPLAY ",
    "ALTER STREAM ", "ALTER TABLE ", "ASSERT TOPIC ", "ASSERT SCHEMA ", "RUN SCRIPT ",
    "DESCRIBE FUNCTION ", "DESCRIBE CONNECTOR ", "DESCRIBE REPLAY ",
)  # fmt: skip
"""What statements begin with; those that more must follow end with a space."""

KEYWORDS = (
    "AND", "ARRAY", "AS", "BETWEEN", "BIGINT", "BOOLEAN", "BYTES", "CASE", "CAST", "CHANGES",
    "DATE", "DECIMAL", "DELETE TOPIC", "DOUBLE", "ELSE", "EMIT CHANGES", "EMIT FINAL", "END",
    "EXTENDED", "FALSE", "FROM", "FROM BEGINNING", "FULL JOIN", "GRACE PERIOD", "GROUP BY",
    "HAVING", "HEADERS", "HOPPING", "IF EXISTS", "IF NOT EXISTS", "IN", "INNER JOIN", "INT", "IS",
    "JOIN", "KEY", "LEFT JOIN", "LIKE", "LIMIT", "MAP", "NOT", "NULL", "ON", "OR", "PARTITION BY",
    "PRIMARY KEY", "RETENTION", "RIGHT JOIN", "SESSION", "SIZE", "STRUCT", "THEN", "TIME",
    "TIMESTAMP", "TRUE", "TUMBLING", "VALUES", "VARCHAR", "WHEN", "WHERE", "WINDOW", "WITH",
    "WITHIN", "ADVANCE BY",
    *(f"{unit}S" for unit in DURATIONS_MS),
    *PSEUDO_COLUMNS,
)  # fmt: skip
"""What is inside of statements."""

FUNCTION_NAMES = tuple(
    sorted({name.partition("/")[0] for name in SPARK_SQL if name.isupper()} | AGGREGATES)
)
"""Functions of ksqlDB and aggregates; the server knows Spark's others."""

PROPERTY_NAMES = tuple(sorted(CREATE_PROPERTIES | CREATE_AS_PROPERTIES))
"""Properties of WITH."""
