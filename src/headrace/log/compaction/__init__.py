"""Compaction: keeps the last value of every key."""
