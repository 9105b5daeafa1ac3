"""The error responses of Kafka Connect."""

from headrace.service.errors import HttpError


def bad_request(message: str) -> HttpError:
    """The request cannot be carried out as it is."""
    return HttpError(400, message)


def not_found(message: str) -> HttpError:
    """There is no such connector, task, plug-in or logger."""
    return HttpError(404, message)


def already_exists(message: str) -> HttpError:
    """The only use of 409: other conflicts do not occur, because requests take turns."""
    return HttpError(409, message)
