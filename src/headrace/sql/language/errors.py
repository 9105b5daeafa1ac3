"""The error of the SQL language: what is wrong, and where in the statement."""

from collections.abc import Iterable
from difflib import get_close_matches


class SqlError(Exception):
    """A statement that cannot be read, or that cannot be planned.

    `message` is a sentence for the author of the statement. `line` and `column` count from 1 in the
    statement; they are None if the error is not at one place.
    """

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column

    def __str__(self) -> str:
        if self.line is None:
            return self.message
        return f"line {self.line}, column {self.column}: {self.message}"


class Unfinished(SqlError):
    """The text ends inside a quoted string, a quoted name or a comment: a prompt asks for more."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the closest known one, or nothing."""
    by_folded = {each.casefold(): each for each in known}
    close = get_close_matches(name.casefold(), by_folded, n=1)
    return f" Did you mean {by_folded[close[0]]}?" if close else ""
