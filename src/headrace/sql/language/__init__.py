"""The language: scripts, statements, and SELECTs in Spark's SQL."""
