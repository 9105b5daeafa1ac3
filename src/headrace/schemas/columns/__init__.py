"""Columns of encoded values as Arrow arrays: what the column readers of all formats share."""
