"""What can be wrong with a schema."""

from headrace.client.errors import ClientError


class BadSchema(ClientError):
    """A schema that cannot be used; says which and why."""


class Unreadable(Exception):
    """Records of one schema cannot be read with another; names the field."""


class BadColumn(ClientError):
    """A column that cannot be written with its schema; says which and why."""
