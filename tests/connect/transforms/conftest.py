"""The fixtures of Spark and of Kafka Connect's own classes."""

from tests.connect.spark_session import kafka_connect, needs_java, spark

__all__ = ["kafka_connect", "needs_java", "spark"]
