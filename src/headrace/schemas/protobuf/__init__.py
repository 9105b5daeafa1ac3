"""Protobuf: schemas, compatibility, values and columns; `format.py` is the entry in the table."""
