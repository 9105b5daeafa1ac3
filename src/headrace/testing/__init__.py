"""The real broker inside a test, with faults on demand."""
