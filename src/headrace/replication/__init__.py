"""Partitions of this broker: leadership, high watermarks, who waits for what."""
