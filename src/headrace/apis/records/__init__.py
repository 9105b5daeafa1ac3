"""Produce, fetch, look up and delete records."""
