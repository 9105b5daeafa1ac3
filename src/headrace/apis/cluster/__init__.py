"""The cluster: brokers, features, leaders, reassignments, data folders."""
