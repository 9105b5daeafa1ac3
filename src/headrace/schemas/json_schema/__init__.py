"""JSON Schema: schemas, compatibility, values, columns; `format.py` is the entry in the table."""
