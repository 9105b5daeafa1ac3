"""Change data capture of MySQL and MariaDB: rows as change events, from the binary log."""
