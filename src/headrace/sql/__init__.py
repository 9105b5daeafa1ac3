"""Continuous SQL: statements over topics, as streaming queries of Spark, with ksqlDB's statements."""
