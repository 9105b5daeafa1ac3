"""Forks: logs that begin with the records of another partition, without a copy of them."""
