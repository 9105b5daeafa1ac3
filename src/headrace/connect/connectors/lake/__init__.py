"""Sinks for tables and files in a lake: on disk, in S3 and in HDFS."""
