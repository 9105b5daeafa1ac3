"""Commands for users, ACLs, quotas and certificates."""
