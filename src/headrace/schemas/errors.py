"""Errors of schemas, values and columns. The messages are for users."""

from headrace.client.errors import ClientError


class InvalidSchema(ClientError):
    """An invalid schema; the message has the reason."""


class TooManyPairs(InvalidSchema):
    """The comparison exceeds the limit on pairs of types."""

    def __init__(self, pairs: int) -> None:
        super().__init__(f"The schemas are too large to compare: more than {pairs} pairs of types")


class BadValue(ClientError):
    """A value that does not match its schema; the message has the position."""


class BadColumn(ClientError):
    """A column that cannot be written with its schema; the message has its name and the reason."""


class Unreadable(Exception):
    """Values of one schema cannot be read with another; the message has the field."""


def unknown_form(form: str, known: str) -> InvalidSchema:
    return InvalidSchema(f"Unknown format {form[:50]!r} of this schema type; known: {known}")
