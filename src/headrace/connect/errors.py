"""The error responses of Kafka Connect."""

from headrace.service.errors import HttpError

NOT_OWNER = "x-headrace-not-owner"
"""A response header: the worker does not own the connector, and has done nothing."""


def bad_request(message: str) -> HttpError:
    """The request cannot be carried out as it is."""
    return HttpError(400, message)


def not_found(message: str) -> HttpError:
    """There is no such connector, task, plug-in or logger."""
    return HttpError(404, message)


def already_exists(message: str) -> HttpError:
    """There is a connector with this name. Other conflicts do not occur: requests take turns."""
    return HttpError(409, message)


class NotOwner(HttpError):
    """The connector belongs to another worker, or to none at present."""

    def __init__(self) -> None:
        super().__init__(
            409,
            "Cannot complete request because of a conflicting operation (e.g. worker rebalance)",
            headers={NOT_OWNER: "true"},
        )
