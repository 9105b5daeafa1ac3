"""Users, ACLs, quotas and delegation tokens."""
