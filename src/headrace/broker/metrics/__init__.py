"""What a broker shows on `/metrics` and `/health`."""
