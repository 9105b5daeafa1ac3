"""Who leads what: the picture of the cluster, and the store behind it."""
