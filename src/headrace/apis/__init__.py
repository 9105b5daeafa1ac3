"""What the broker answers: a module an API or small family; `routes.py` is the one table."""
