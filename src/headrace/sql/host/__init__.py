"""The Spark driver that runs the queries of statements."""
