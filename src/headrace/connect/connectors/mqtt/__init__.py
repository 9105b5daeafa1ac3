"""Connectors for MQTT: a source that subscribes, and a sink that publishes."""
