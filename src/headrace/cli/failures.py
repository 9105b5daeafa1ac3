"""Exit codes, and the exception that ends a command with one.

It does not import the client library, so that importing it is cheap.
"""

from collections.abc import Sequence
from enum import IntEnum

from headrace.admin.errors import AdminError, InvalidRequest, NotFound


class ExitCode(IntEnum):
    """Exit codes of commands. Scripts rely on the numbers."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    INTERRUPTED = 130


EXIT_CODES_HELP = (
    "[bold]Exit codes[/bold]  0 done · 1 the operation failed · 2 bad usage · "
    "3 cluster unreachable · 4 not found"
)


class Failure(Exception):
    """Ends a command with a message, and a hint on what to do."""

    def __init__(
        self,
        message: str,
        *,
        exit_code: ExitCode = ExitCode.FAILED,
        code: str = "FAILED",
        hint: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.code = code
        self.hint = hint


def bad_usage(message: str, hint: str = "") -> Failure:
    """A usage error that is found only after parsing."""
    return Failure(message, exit_code=ExitCode.USAGE, code="USAGE", hint=hint)


def not_found(message: str, hint: str = "") -> Failure:
    """A named object does not exist."""
    return Failure(message, exit_code=ExitCode.NOT_FOUND, code="NOT_FOUND", hint=hint)


def failure_of(error: AdminError) -> Failure:
    """The Failure for an error of `headrace.admin`."""
    if isinstance(error, InvalidRequest):
        return bad_usage(error.message, error.hint)
    if isinstance(error, NotFound):
        return not_found(error.message, error.hint)
    return Failure(error.message, code=error.code, hint=error.hint)


def raise_all(failures: Sequence[Failure]) -> None:
    """Raise several failures as one, if there are any: all messages, the code of the first."""
    if failures:
        first = failures[0]
        raise Failure(
            "; ".join(each.message for each in failures),
            exit_code=first.exit_code,
            code=first.code,
            hint=first.hint,
        )
