"""The roles of users of HTTP interfaces."""

from enum import IntEnum


class Role(IntEnum):
    """The role of a user of an HTTP interface; each role includes the ones before it."""

    VIEW = 1
    READ = 2
    WRITE = 3
    ADMIN = 4


ROLE_NAMES = tuple(role.name.lower() for role in Role)
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
"""Addresses that other machines cannot reach."""
