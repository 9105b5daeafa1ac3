"""What a log tells whoever opened it and keeps its checkpoints: the log directory."""

from collections.abc import Sequence
from typing import Protocol

from headrace.log.segment import Segment
from headrace.types import TopicPartition


class LogOwner(Protocol):
    """Hears of what concerns more than the one log."""

    def log_failed(self, partition: TopicPartition, reason: str) -> None:
        """A sync failed: what this disk holds is unknown."""

    def log_went_back(self, partition: TopicPartition, end: int) -> None:
        """The log was cut below the recovery point that the checkpoint file has."""

    def segments_dropped(self, segments: Sequence[Segment], delay_ms: int) -> None:
        """The log begins behind these: their files may go, after the delay."""

    def files_set_aside(self, paths: Sequence[str], delay_ms: int) -> None:
        """These files have names that no restart finds, and may go after the delay."""

    def log_restarts(self, folder: str) -> None:
        """The log begins anew, perhaps with a name that a dropped segment still has."""
