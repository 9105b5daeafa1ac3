"""Topics and their metadata."""
