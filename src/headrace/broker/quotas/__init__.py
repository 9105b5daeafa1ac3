"""Client quotas and limits of connections."""
