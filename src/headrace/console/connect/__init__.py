"""Connectors: a client of Kafka Connect's REST interface, and what the console shows of it."""
