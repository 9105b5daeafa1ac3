"""The pages `/metrics` and `/health` of a broker."""
