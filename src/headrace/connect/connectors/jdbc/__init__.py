"""The JDBC connectors: tables of PostgreSQL, MariaDB, MySQL and SQLite, by Python's drivers.

The names and options are those of Confluent's JDBC connectors; there is no Java in it.
"""
