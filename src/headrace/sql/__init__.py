"""Continuous SQL: ksqlDB's statements over topics, run as streaming queries of Spark."""
