"""Encoding and decoding of Kafka's protocol, without sockets and event loop."""
