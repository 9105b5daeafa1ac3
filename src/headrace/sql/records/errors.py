"""Errors of records and rows. The messages are for users."""

from headrace.client.errors import ClientError


class UnreadableRecord(ClientError):
    """A record is not a row of its source; `reason` tells which part, and why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class UnwritableRow(ClientError):
    """A row cannot be written as a record of its source."""


class WrongValue(ValueError):
    """A value is not of the type of its column; the message has the place."""
