"""Classic groups and consumer groups, and the registry of the groups of a shard."""
