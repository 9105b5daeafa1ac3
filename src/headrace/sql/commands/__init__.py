"""The command topic, which stores the statements of a server: its records and its only writer."""
