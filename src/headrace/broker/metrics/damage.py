"""Damaged partitions of this broker, for `/metrics` and `/health`: the known holes in its logs."""

from headrace.broker.metrics.values import Metrics
from headrace.log.directories import LogDirectories


def watch_damage(metrics: Metrics, directories: LogDirectories) -> None:
    """Count damaged partitions and the offsets that cannot be read in them."""
    metrics.watch("headrace_damaged_partitions", lambda: len(directories.damaged()))
    metrics.watch("headrace_damaged_offsets", lambda: _lost_offsets(directories))


def damage_warnings(directories: LogDirectories) -> list[str]:
    """The damaged partitions, and what an operator can do."""
    return [
        f"{log.partition} is damaged: the offsets {first} to {following - 1} cannot be read; "
        f"restore the files in {log.folder}, or reset consumers to offset {following}"
        for log in directories.damaged()
        for first, following in log.holes
    ]


def _lost_offsets(directories: LogDirectories) -> int:
    return sum(following - first for log in directories.damaged() for first, following in log.holes)
