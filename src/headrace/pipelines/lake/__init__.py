"""Tables in the lake: Delta and Iceberg sinks without a jar, and their verification."""
