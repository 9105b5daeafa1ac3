"""Errors of `headrace.admin`. Each has a message, a code for programs and a hint for the user."""


class AdminError(Exception):
    """A request that cannot be executed; `hint` has the next step for the user."""

    def __init__(self, message: str, *, code: str = "FAILED", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint


class NotFound(AdminError):
    """The object of the request does not exist."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, code="NOT_FOUND", hint=hint)


class InvalidRequest(AdminError):
    """The request is invalid, independent of the cluster."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, code="USAGE", hint=hint)
