"""Configs of topics, brokers and groups."""
