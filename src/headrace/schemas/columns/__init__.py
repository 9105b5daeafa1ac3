"""Common parts of the column readers of all formats: encoded values as Arrow arrays."""
