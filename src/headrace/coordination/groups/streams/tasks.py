"""Tasks of a Kafka Streams application, and sets of them.

A task processes one partition number of the source topics of a subtopology. A member has active
tasks, and copies of the state of others: standby tasks and warm-up tasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class TaskId(NamedTuple):
    """A task."""

    subtopology: str
    partition: int


NONE: frozenset[TaskId] = frozenset()


@dataclass(frozen=True, slots=True)
class TaskSets:
    """The tasks of a member, by their role."""

    active: frozenset[TaskId] = field(default=NONE)
    standby: frozenset[TaskId] = field(default=NONE)
    warmup: frozenset[TaskId] = field(default=NONE)

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    def __and__(self, other: TaskSets) -> TaskSets:
        return TaskSets(
            self.active & other.active, self.standby & other.standby, self.warmup & other.warmup
        )

    def __or__(self, other: TaskSets) -> TaskSets:
        return TaskSets(
            self.active | other.active, self.standby | other.standby, self.warmup | other.warmup
        )

    def __sub__(self, other: TaskSets) -> TaskSets:
        return TaskSets(
            self.active - other.active, self.standby - other.standby, self.warmup - other.warmup
        )


NO_TASKS = TaskSets()


def by_subtopology(tasks: Iterable[TaskId]) -> dict[str, list[int]]:
    """Partition numbers by subtopology, both in order, as the protocol has them."""
    found: dict[str, list[int]] = {}
    for task in sorted(tasks):
        found.setdefault(task.subtopology, []).append(task.partition)
    return found


def tasks_of(subtopology: str, partitions: Iterable[int]) -> Iterable[TaskId]:
    """The tasks of a subtopology with these partition numbers."""
    return (TaskId(subtopology, partition) for partition in partitions)
