"""The schema registry: an ordinary Kafka client that keeps schemas in a compacted topic.

Its HTTP interface is the one that existing registry clients speak. It imports neither the broker
nor the log, and runs as well against an Apache Kafka.
"""
