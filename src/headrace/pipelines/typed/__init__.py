"""Typed topics: bytes with a schema's id become columns, and columns become such bytes."""
