// Words that the SQL editor completes and colours.

export const KEYWORDS = [
  "ADVANCE BY", "ALTER STREAM", "ALTER TABLE", "AND", "AS", "ASSERT", "BETWEEN", "CASE", "CAST", "CREATE OR REPLACE STREAM", "CREATE OR REPLACE TABLE", "CREATE SINK CONNECTOR", "CREATE SOURCE CONNECTOR",
  "CREATE STREAM", "CREATE TABLE", "CREATE TYPE", "DEFINE", "DELETE TOPIC", "DESCRIBE", "DISTINCT", "DROP CONNECTOR", "DROP STREAM", "DROP TABLE", "ELSE", "EMIT CHANGES", "EMIT FINAL", "END", "EXPLAIN", "EXTENDED", "FALSE",
  "FROM", "FROM BEGINNING", "FULL JOIN", "GRACE PERIOD", "GROUP BY", "HAVING", "HEADERS", "HOPPING", "IF EXISTS", "IF NOT EXISTS", "IN", "INNER JOIN", "INSERT INTO", "IS", "JOIN", "KEY", "LEFT JOIN", "LIKE", "LIMIT",
  "LIST CONNECTORS", "LIST FUNCTIONS", "LIST PROPERTIES", "LIST QUERIES", "LIST STREAMS", "LIST TABLES", "LIST TOPICS", "LIST TYPES", "NOT", "NULL", "ON", "OR", "ORDER BY", "PARTITION BY", "PAUSE", "PRIMARY KEY", "PRINT",
  "RESUME", "RETENTION", "RIGHT JOIN", "SELECT", "SESSION", "SET", "SIZE", "TERMINATE", "THEN", "TRUE", "TUMBLING", "UNDEFINE", "UNSET", "VALUES", "WHEN", "WHERE", "WINDOW", "WITH", "WITHIN",
  "DAYS", "HOURS", "MINUTES", "SECONDS", "MILLISECONDS",
]; // prettier-ignore

export const TYPES = ["ARRAY", "BIGINT", "BOOLEAN", "BYTES", "DATE", "DECIMAL", "DOUBLE", "INT", "MAP", "STRUCT", "TIME", "TIMESTAMP", "VARCHAR"];

/** Columns that every stream and table has. */
export const PSEUDO_COLUMNS = ["ROWTIME", "ROWPARTITION", "ROWOFFSET", "WINDOWSTART", "WINDOWEND"];

/** Properties of WITH. */
export const PROPERTIES = ["kafka_topic", "partitions", "replicas", "key_format", "value_format", "format", "timestamp", "timestamp_format", "window_type", "window_size", "value_delimiter", "start", "retention_ms", "cleanup_policy"];
