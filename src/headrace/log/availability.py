"""Whether a log is online. A failure of its disk takes it offline until the next start."""

import logging
from typing import TYPE_CHECKING, Protocol

from headrace.disk import is_broken
from headrace.errors import ErrorCode, KafkaError
from headrace.log.removal import Removal
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.log.log import Log

_logger = logging.getLogger("headrace.log")


class LogOwner(Protocol):
    """Receives events that concern more than one log."""

    removal: Removal
    """Removes the files of segments that left the log."""

    def fail(self, reason: str) -> None:
        """A disk operation failed: the content of the disk is unknown."""

    def log_truncated(self, partition: TopicPartition, end: int) -> None:
        """The log was truncated below the recovery point in the checkpoint file."""


class Availability:
    """The state of one log: online, or offline with a reason."""

    __slots__ = ("_log", "offline")

    def __init__(self, log: "Log") -> None:
        self._log = log
        self.offline: str | None = None
        """Why the log is offline, or None."""

    def check(self) -> None:
        """KafkaError 56 if the log is offline."""
        if self.offline is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline)

    def take_offline(self, reason: str) -> None:
        """Go offline; files stay open, since the owner may write while a worker calls this."""
        self.offline = self.offline or f"{self._log.partition}: {reason}"
        self._log.check_next_append()

    def fail(self, reason: str) -> KafkaError:
        """Go offline because the content of the disk is unknown; returns the error to raise."""
        _logger.error("%s goes offline: %s", self._log.partition, reason)
        self.offline = reason
        self._log.check_next_append()
        if self._log.owner is not None:
            self._log.owner.fail(reason)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)

    def error(self, reason: str, error: OSError) -> KafkaError:
        """The error to raise; takes the log offline unless the disk is only full."""
        if is_broken(error):
            return self.fail(reason)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)
