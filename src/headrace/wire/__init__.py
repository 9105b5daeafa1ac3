"""Kafka's protocol: bytes in, bytes out. No sockets and no event loop live here."""
