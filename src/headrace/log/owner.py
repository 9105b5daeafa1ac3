"""What a log needs of its owner, the log directory."""

from typing import Protocol

from headrace.log.removal import Removal
from headrace.types import TopicPartition


class LogOwner(Protocol):
    """Receives events that concern more than one log."""

    removal: Removal
    """Removes the files of segments that left the log."""

    def fail(self, reason: str) -> None:
        """A disk operation failed: the content of the disk is unknown."""

    def log_truncated(self, partition: TopicPartition, end: int) -> None:
        """The log was truncated below the recovery point in the checkpoint file."""
