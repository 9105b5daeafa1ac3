"""The callbacks of a log to its owner, the log directory."""

from collections.abc import Sequence
from typing import Protocol

from headrace.log.segment import Segment
from headrace.types import TopicPartition


class LogOwner(Protocol):
    """Receives events that concern more than one log."""

    def log_failed(self, partition: TopicPartition, reason: str) -> None:
        """A sync failed: what this disk holds is unknown."""

    def log_went_back(self, partition: TopicPartition, end: int) -> None:
        """The log was truncated below the recovery point in the checkpoint file."""

    def segments_dropped(self, segments: Sequence[Segment], delay_ms: int) -> None:
        """The log starts after these segments: remove their files after the delay."""

    def files_set_aside(self, paths: Sequence[str], delay_ms: int) -> None:
        """These files were renamed to `*.deleted`: remove them after the delay."""

    def log_restarts(self, folder: str) -> None:
        """The log was emptied; a new segment may need the file name of a dropped one."""
