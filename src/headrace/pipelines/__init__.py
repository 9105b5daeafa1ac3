"""Pipelines on Spark: sources, sinks and the programs that use them. Ordinary Kafka clients."""
