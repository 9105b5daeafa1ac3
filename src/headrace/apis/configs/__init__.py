"""Settings of topics, brokers and groups."""
