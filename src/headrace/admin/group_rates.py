"""Rates of a group: records consumed and arrived per second, between two views of it."""

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.admin.group_view import GroupView, PartitionLag, Place


@dataclass(frozen=True, slots=True)
class Rates:
    """Records per second between two views; None if unknown."""

    consumed: float | None = None
    arrived: float | None = None


def rates_between(before: GroupView | None, after: GroupView, seconds: float) -> dict[Place, Rates]:
    """The rates of each partition; None for new partitions."""
    earlier = {(p.topic, p.partition): p for p in before.partitions} if before else {}
    return {
        (now.topic, now.partition): _rates(earlier.get((now.topic, now.partition)), now, seconds)
        for now in after.partitions
    }


def total_rates(rates: Iterable[Rates]) -> Rates:
    """The sum of the rates that are known; None if none is."""
    each = list(rates)
    consumed = [one.consumed for one in each if one.consumed is not None]
    arrived = [one.arrived for one in each if one.arrived is not None]
    return Rates(sum(consumed) if consumed else None, sum(arrived) if arrived else None)


def _rates(before: PartitionLag | None, now: PartitionLag, seconds: float) -> Rates:
    if before is None or seconds <= 0:
        return Rates()
    return Rates(
        _rate(before.committed, now.committed, seconds), _rate(before.end, now.end, seconds)
    )


def _rate(before: int | None, now: int | None, seconds: float) -> float | None:
    # Offsets that went back were reset: there is no rate.
    if before is None or now is None or now < before:
        return None
    return (now - before) / seconds
