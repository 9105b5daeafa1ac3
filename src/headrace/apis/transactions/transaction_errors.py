"""Maps errors of the transaction coordinator to those that older clients know."""

from collections.abc import Mapping

from headrace.errors import ErrorCode


def for_old_producers(code: ErrorCode, version: int, fenced_from: int) -> ErrorCode:
    """PRODUCER_FENCED is a newer name for what was INVALID_PRODUCER_EPOCH."""
    if code is ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


_WHEN_WRITING: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
}


def when_writing(code: ErrorCode) -> ErrorCode:
    """The error of a Produce that the coordinator refuses; the client must retry on it."""
    return _WHEN_WRITING.get(code, code)


_WHEN_COMMITTING: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION,
}


def when_committing(code: ErrorCode) -> ErrorCode:
    """The error of a TxnOffsetCommit that the coordinator refuses."""
    return _WHEN_COMMITTING.get(code, code)
