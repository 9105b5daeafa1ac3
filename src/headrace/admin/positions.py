"""Positions in topics: an offset, a time, the beginning or the end; and their offsets."""

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from headrace.admin.errors import InvalidRequest, NotFound
from headrace.client.cluster import Cluster
from headrace.client.offsets import (
    COMMITTED,
    EARLIEST,
    LATEST,
    UNCOMMITTED,
    find_offsets,
)
from headrace.types import TopicPartition

# Larger numbers are times in milliseconds, which are larger since 2001; offsets are smaller.
SMALLEST_TIMESTAMP = 10**12
UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class Beginning:
    """The oldest existing record."""


@dataclass(frozen=True, slots=True)
class End:
    """Only records that arrive from now on."""


@dataclass(frozen=True, slots=True)
class At:
    """The same offset in every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class Last:
    """A number of records before the end of every partition."""

    count: int


@dataclass(frozen=True, slots=True)
class Since:
    """The first record that is not older than a time."""

    timestamp_ms: int


Start: TypeAlias = Beginning | End | At | Last | Since


def parse_start(text: str, now_ms: int | None = None) -> Start:
    """`beginning`, `end`, `1200`, `-10`, `-15m`, `@1700000000000`, `2026-01-31T12:00`."""
    if text in ("beginning", "earliest", "start"):
        return Beginning()
    if text in ("end", "latest"):
        return End()
    if relative := re.fullmatch(r"-(\d+)([smhd])", text):
        now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        return Since(now - int(relative[1]) * UNITS_MS[relative[2]])
    if re.fullmatch(r"-\d+", text):
        return Last(-int(text))
    if text.isdecimal() and int(text) < SMALLEST_TIMESTAMP:
        return At(int(text))
    return Since(parse_time(text))


def parse_time(text: str) -> int:
    """A time in milliseconds: a number, `@number`, or ISO 8601 (local time without a zone)."""
    digits = text.removeprefix("@")
    if digits.isdecimal():
        return int(digits)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise InvalidRequest(
            f"{text!r} is neither a position nor a time",
            "Use beginning, end, an offset, -N for the last N, -15m for a quarter of an hour ago, "
            "@MILLISECONDS or a time like 2026-01-31T12:00:00Z.",
        ) from None


def parse_moment(text: str) -> int:
    """A time in milliseconds: as in `parse_time`, or `-15m` for 15 minutes ago."""
    start = parse_start(text) if text.startswith("-") else None
    return start.timestamp_ms if isinstance(start, Since) else parse_time(text)


@dataclass(frozen=True, slots=True)
class PartitionBounds:
    """The first offset of a partition, and the one after its last record."""

    begin: int
    end: int

    def nearest(self, offset: int) -> int:
        """The offset, limited to the bounds."""
        return min(max(self.begin, offset), self.end)


def bounds(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, committed: bool = False
) -> dict[TopicPartition, PartitionBounds]:
    """The bounds of partitions; with `committed` they end before open transactions."""
    wanted = sorted(partitions)
    first = find_offsets(cluster, dict.fromkeys(wanted, EARLIEST))
    isolation = COMMITTED if committed else UNCOMMITTED
    last = find_offsets(cluster, dict.fromkeys(wanted, LATEST), isolation)
    return {at: PartitionBounds(first[at].offset, last[at].offset) for at in wanted}


def starts(
    cluster: Cluster, start: Start, limits: Mapping[TopicPartition, PartitionBounds]
) -> dict[TopicPartition, int]:
    """The first offset to read in each partition, within its bounds."""
    if isinstance(start, Since):
        found = find_offsets(cluster, dict.fromkeys(limits, start.timestamp_ms))
        offsets = {at: found[at].offset for at in limits}
        return {at: limits[at].end if offset < 0 else offset for at, offset in offsets.items()}
    if isinstance(start, Last):
        return {at: each.nearest(each.end - start.count) for at, each in limits.items()}
    if isinstance(start, At):
        return {at: each.nearest(start.offset) for at, each in limits.items()}
    at_begin = isinstance(start, Beginning)
    return {at: each.begin if at_begin else each.end for at, each in limits.items()}


def chosen_partitions(topic: str, existing: int, wanted: list[int] | None) -> list[int]:
    """The requested partitions, or all."""
    for index in wanted or []:
        if not 0 <= index < existing:
            raise NotFound(
                f"topic {topic!r} has no partition {index}", f"It has 0 to {existing - 1}."
            )
    return sorted(set(wanted)) if wanted else list(range(existing))
