"""Records: written, fetched, looked up and deleted."""
