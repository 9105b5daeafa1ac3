"""What can go wrong between a client and a cluster, and what is worth another try."""

from headrace.errors import ErrorCode, KafkaError


class ClientError(Exception):
    """Something that the user can mend; the text says what and how."""


class Unreachable(ClientError):
    """A broker that cannot be connected to, went away, or does not answer; may be back soon."""


class UnsupportedVersion(ClientError):
    """A broker that does not have an API, or not in a version that will do."""


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


def error_of(code: int, what: str, said: str | None = None) -> KafkaError:
    """The exception for an error code in an answer; `what` was being done."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: error {code} {said or ''}")
    reason = said or known.name.replace("_", " ").lower()
    return KafkaError(known, f"{what}: {reason} (error {code} {known.name})")


def check(code: int, what: str, said: str | None = None) -> None:
    """Raises what an answer's error code says, if it says something."""
    if code:
        raise error_of(code, what, said)


def is_retriable(error: BaseException) -> bool:
    """Whether the same request may succeed a little later."""
    if isinstance(error, KafkaError):
        return error.code in RETRIABLE
    return isinstance(error, Unreachable)
