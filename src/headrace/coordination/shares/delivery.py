"""Delivery states of records in a share group, and the ranges of offsets that have them.

The numbers are Kafka's, on the wire and in the log. Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple


class DeliveryState(IntEnum):
    """The state of a record in a share group."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class AcknowledgeType(IntEnum):
    """What a member says about a record that it has acquired."""

    GAP = 0
    """There is no record at this offset."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AcquireMode(IntEnum):
    """How `max_records` of a ShareFetch is meant (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    """Whole batches are acquired, which may be more records."""
    RECORD_LIMIT = 1


COMPLETE = frozenset({DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED})
"""A record in one of these states is never delivered again."""


class StateBatch(NamedTuple):
    """A range of offsets in the same state, as the share coordinator stores it."""

    first: int
    last: int
    state: DeliveryState
    deliveries: int
    """How often the records were delivered."""


class Acknowledgement(NamedTuple):
    """An acknowledgement of a range of offsets."""

    first: int
    last: int
    type: AcknowledgeType


class Acquired(NamedTuple):
    """A range of offsets that a member has acquired."""

    first: int
    last: int
    deliveries: int


class FetchedBatch(NamedTuple):
    """A batch that was read from the log; control and aborted batches are not deliverable."""

    first: int
    last: int
    deliverable: bool


def updated(
    old: Sequence[StateBatch], new: Iterable[StateBatch], start: int
) -> tuple[StateBatch, ...]:
    """The batches after an update: new ones replace what they overlap.

    Offsets below `start` are dropped, and adjacent batches in the same state are joined.
    """
    merged = list(old)
    for batch in new:
        merged = [
            piece
            for one in merged
            for piece in _without(one, batch.first, batch.last)
        ]  # fmt: skip
        merged.append(batch)
    merged.sort()
    out: list[StateBatch] = []
    for one in merged:
        if one.last < start:
            continue
        one = one._replace(first=max(one.first, start))
        before = out[-1] if out else None
        if before is not None and (before.last + 1, before.state, before.deliveries) == (
            one.first, one.state, one.deliveries,
        ):  # fmt: skip
            out[-1] = before._replace(last=one.last)
        else:
            out.append(one)
    return tuple(out)


def _without(batch: StateBatch, first: int, last: int) -> Iterable[StateBatch]:
    """The parts of a batch outside of [first, last]."""
    if batch.last < first or batch.first > last:
        return (batch,)
    left = (batch._replace(last=first - 1),) if batch.first < first else ()
    right = (batch._replace(first=last + 1),) if batch.last > last else ()
    return left + right


def ranges_of_types(first: int, last: int, types: Sequence[int]) -> list[Acknowledgement]:
    """An acknowledgement batch of the protocol as ranges: one type for all, or one per offset.

    ValueError if it is malformed or a type is unknown.
    """
    if first < 0 or last < first:
        raise ValueError(f"the offsets {first} to {last} are not a range")
    if len(types) == 1:
        return [Acknowledgement(first, last, AcknowledgeType(types[0]))]
    if len(types) != last - first + 1:
        raise ValueError(f"{len(types)} types for the offsets {first} to {last}")
    out: list[Acknowledgement] = []
    begin = 0
    for at in range(1, len(types) + 1):
        if at == len(types) or types[at] != types[begin]:
            kind = AcknowledgeType(types[begin])
            out.append(Acknowledgement(first + begin, first + at - 1, kind))
            begin = at
    return out
