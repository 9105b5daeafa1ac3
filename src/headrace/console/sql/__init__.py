"""SQL: a client of the SQL server's REST interface, and what the console checks before it asks."""
