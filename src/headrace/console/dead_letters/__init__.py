"""Reads dead letters, and sends them back to their topics in the background."""
