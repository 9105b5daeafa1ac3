"""Streams groups (KIP-1071): the broker assigns the tasks of Kafka Streams applications."""
