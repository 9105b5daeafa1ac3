"""Typed topics: converts bytes with a schema id to columns, and columns to such bytes."""
