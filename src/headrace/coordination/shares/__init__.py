"""Share groups: delivery of records to many members, and the coordinator that keeps its state."""
