"""The kinds of consumer group, and the registry that holds them."""
