"""Who may connect, who may do what, and who may use how much."""
