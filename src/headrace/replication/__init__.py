"""Partitions of this broker: leadership, high watermarks, replication."""
