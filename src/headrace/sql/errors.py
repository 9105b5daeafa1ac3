"""Errors of statements, with ksqlDB's codes."""

from headrace.service.errors import HttpError

BAD_REQUEST = 40000
BAD_STATEMENT = 40001
QUERY_ENDPOINT = 40002
NOT_FOUND = 40400
ASSERTION_FAILED = 41700
NO_REGISTRY = 42801
SERVER_ERROR = 50000
NOT_READY = 50302


class StatementRefused(Exception):
    """A statement that cannot be carried out. The message is a sentence for its author."""

    def __init__(self, message: str, code: int = BAD_STATEMENT) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        """The HTTP status is its first three digits."""


def bad_request(message: str, code: int = BAD_REQUEST) -> HttpError:
    """A request that is wrong as a whole, not one of its statements."""
    return HttpError(code // 100, message, code=code, details={"@type": "generic_error"})
