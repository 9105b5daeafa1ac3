"""The Spark driver that hosts the queries of a service."""
