"""The schema registry: a Kafka client that stores schemas in a compacted topic.

Its HTTP API is the one of Confluent's registry. It imports nothing of the broker and also runs
against Apache Kafka.
"""
