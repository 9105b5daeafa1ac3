"""`headrace cluster`, and plans to move replicas."""
