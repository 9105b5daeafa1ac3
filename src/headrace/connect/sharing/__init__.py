"""How several workers share the connectors of a cluster: slots, the group, owners, forwarding."""
