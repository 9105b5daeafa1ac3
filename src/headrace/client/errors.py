"""Errors of clients, and which of them are retriable."""

from headrace.errors import ErrorCode, KafkaError


class ClientError(Exception):
    """An error that the user can correct; the message says how."""


class Unreachable(ClientError):
    """A broker cannot be reached, disconnected, or does not respond; retriable."""


class UnsupportedVersion(ClientError):
    """A broker does not support an API, or none of the needed versions."""


RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


def error_of(code: int, what: str, message: str | None = None) -> KafkaError:
    """The exception for an error code in a response to the action `what`."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: error {code} {message or ''}")
    reason = message or known.name.replace("_", " ").lower()
    return KafkaError(known, f"{what}: {reason} (error {code} {known.name})")


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise the exception for an error code of a response, unless it is 0."""
    if code:
        raise error_of(code, what, message)


def is_retriable(error: BaseException) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, KafkaError):
        return error.code in RETRIABLE
    return isinstance(error, Unreachable)
