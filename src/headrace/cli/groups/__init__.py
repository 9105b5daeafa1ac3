"""`headrace groups`."""
