"""Errors of a service: responses other than success, and a start that failed."""

from collections.abc import Mapping


class HttpError(Exception):
    """An error response, with a JSON body: `error_code`, `message` and optional details."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: int | None = None,
        headers: Mapping[str, str] | None = None,
        details: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = status if code is None else code
        """`error_code` in the body; the HTTP status unless the service has codes of its own."""
        self.headers = headers or {}
        self.details = details or {}

    @property
    def body(self) -> Mapping[str, object]:
        return {"error_code": self.code, "message": self.message, **self.details}


class StartFailure(Exception):
    """The service cannot start. The message tells the operator why; no traceback is logged."""

    exit_code = 1
    """Of the process."""


class TopicUnusable(StartFailure):
    """A topic that the service needs cannot be used."""


class ClusterUnreachable(StartFailure):
    """No broker responds."""

    exit_code = 3
