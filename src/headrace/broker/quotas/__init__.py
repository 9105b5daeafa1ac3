"""How much clients may use: quotas, and limits of connections."""
