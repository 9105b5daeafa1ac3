"""`headrace spark` and `headrace lake`."""
