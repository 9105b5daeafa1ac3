"""Places the replicas of new partitions on brokers. Pure; the first replica is the leader."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from headrace.cluster.image import Broker
from headrace.types import BrokerId


def place(
    brokers: Iterable[Broker], partitions: int, replication_factor: int, start: int = 0
) -> list[tuple[BrokerId, ...]]:
    """Replicas for `partitions` partitions; leaders and followers go round a ring of all brokers.

    `start` is the first position in the ring; varying it also spreads many small topics.
    Neighbours in the ring are in different racks where racks are known. The caller has checked
    that there are at least `replication_factor` brokers.
    """
    ring = _ring(brokers)
    size = len(ring)
    assert 0 < replication_factor <= size, "more replicas than brokers"
    racked = any(broker.rack for broker in ring)
    placed = []
    for index in range(start, start + partitions):
        # Followers shift by one in each round, so that the leaders of a lost broker move to all
        # others. With racks the order of the ring matters more.
        shift = 0 if racked else index // size
        placed.append(_replicas(ring, index, shift, replication_factor))
    if size == 1:
        placed = placed[:1] * partitions
    return placed


def _replicas(
    ring: Sequence[Broker], first: int, shift: int, replication_factor: int
) -> tuple[BrokerId, ...]:
    size = len(ring)
    followers = range(replication_factor - 1)
    steps = [0, *(1 + (shift + n) % (size - 1) for n in followers)]
    return tuple(ring[(first + step) % size].id for step in steps)


def _ring(brokers: Iterable[Broker]) -> list[Broker]:
    """The brokers in the order of the ring: racks alternate."""
    racks: dict[str | None, list[Broker]] = {}
    for broker in sorted(brokers, key=lambda one: one.id):
        racks.setdefault(broker.rack, []).append(broker)
    return [broker for turn in zip_longest(*racks.values()) for broker in turn if broker]
