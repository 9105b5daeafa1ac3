"""Compaction: the last value of every key stays."""
