"""How data flows between topics, queries, connectors and groups, and at which rates."""
