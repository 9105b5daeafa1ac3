"""Pipelines on Spark: sources, sinks and the programs that use them. Ordinary Kafka clients.

The name below is for programs of one's own (docs/spark-sinks.md).
"""

from headrace.pipelines.foreach_batch import write_epochs

__all__ = ["write_epochs"]
