"""`headrace topics` and `headrace configs`."""
