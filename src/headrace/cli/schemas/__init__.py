"""`headrace schemas` and `headrace registry`."""
