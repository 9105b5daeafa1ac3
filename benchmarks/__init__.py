"""Headrace beside a warm Apache Kafka, on the same machine and with the same work."""
