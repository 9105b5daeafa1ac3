"""Replicated partitions that need a change of the cluster's metadata, such as another ISR."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.types import Offset

if TYPE_CHECKING:
    from headrace.replication.partition import Partition


class PendingPartitions:
    """Partitions that wait for one kind of change; `on_add` is called for each."""

    __slots__ = ("offsets", "on_add")

    def __init__(self) -> None:
        self.offsets: dict[Partition, Offset] = {}
        """The partitions, each with the lowest offset that was reported."""
        self.on_add: Callable[[], None] = _nothing

    def add(self, partition: "Partition", offset: Offset = 0) -> None:
        """Report a partition; one that no other broker has a replica of is ignored."""
        if partition.replicas > 1:
            self.offsets[partition] = min(offset, self.offsets.get(partition, offset))
            self.on_add()


def _nothing() -> None:
    """Before the replication of this broker has started."""
