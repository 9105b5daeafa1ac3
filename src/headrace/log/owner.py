"""What a log tells whoever opened it and keeps its checkpoints: the log directory."""

from typing import Protocol

from headrace.types import TopicPartition


class LogOwner(Protocol):
    """Hears of what concerns more than the one log."""

    def log_failed(self, partition: TopicPartition, reason: str) -> None:
        """A sync failed: what this disk holds is unknown."""

    def log_went_back(self, partition: TopicPartition) -> None:
        """The log was cut below the recovery point that the checkpoint file has."""
