"""`headrace connect`."""
