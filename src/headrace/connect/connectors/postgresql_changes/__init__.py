"""Change data capture of PostgreSQL: rows of tables as change events, from the write-ahead log."""
