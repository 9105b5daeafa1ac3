"""A real broker for tests, with fault injection."""
