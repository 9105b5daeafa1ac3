"""Reads a page of records: from an offset, a time, the oldest or the newest ones.

Records of several partitions are merged by their timestamps; those of one partition stay in the
order of their offsets. A page is bounded by records, bytes and time, and tells what ended it.
"""

import heapq
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.client.cluster import Cluster
from headrace.client.fetching import DataLoss, FetchPlan, fetch_range
from headrace.client.offsets import EARLIEST, LATEST, UNCOMMITTED, list_offsets
from headrace.console.records.shown import PREVIEW_CHARACTERS, Decoder, shown_record
from headrace.types import TopicPartition
from headrace.wire.batch import (
    CONTROL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Header,
    read_header,
)
from headrace.wire.records import Record, iterate

FETCH_BYTES = 1 << 20
MOST_DECOMPRESSED = 64 << 20
PAGE_BYTES = 64 << 20
PAGE_SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class PageRange:
    """The offsets of one partition that a page may show, [start, stop)."""

    partition: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Where the log of a partition begins and ends."""

    begin: int
    end: int


class PageBudget:
    """What reading a page may still cost."""

    def __init__(self) -> None:
        self._bytes = PAGE_BYTES
        self._deadline = time.monotonic() + PAGE_SECONDS
        self.exhausted = ""

    def spend(self, size: int) -> bool:
        """Whether reading may go on after this many bytes."""
        self._bytes -= size
        if self._bytes < 0:
            self.exhausted = f"{PAGE_BYTES >> 20} MB were read"
        elif time.monotonic() > self._deadline:
            self.exhausted = f"{PAGE_SECONDS:g} seconds have passed"
        return not self.exhausted


def read_bounds(
    cluster: Cluster, topic: str, partitions: Sequence[int], isolation: int = UNCOMMITTED
) -> dict[int, LogBounds]:
    """Begin and end of these partitions; with COMMITTED, the end is the last stable offset."""
    places = [TopicPartition(topic, index) for index in partitions]
    begins = list_offsets(cluster, dict.fromkeys(places, EARLIEST))
    ends = list_offsets(cluster, dict.fromkeys(places, LATEST), isolation)
    return {each.partition: LogBounds(begins[each], ends[each]) for each in places}


def read_records(
    cluster: Cluster,
    place: TopicPartition,
    start: int,
    stop: int,
    budget: PageBudget,
    isolation: int = UNCOMMITTED,
) -> Iterator[tuple[Record, bool]]:
    """The records with offsets in [start, stop) and whether the broker set their timestamps.

    With COMMITTED, records of aborted transactions are left out.
    """
    plan = FetchPlan(place, isolation, max_bytes=FETCH_BYTES)
    while start < stop:
        try:
            for fetched in fetch_range(cluster, plan, start, stop):
                ends = [*fetched.positions[1:], fetched.end]
                aborted = AbortedBatches(fetched.aborted if isolation else ())
                for at, end in zip(fetched.positions, ends, strict=True):
                    header = read_header(fetched.data, at)
                    if not aborted.contain(header) and not header.attributes & CONTROL:
                        append_time = bool(header.attributes & LOG_APPEND_TIME)
                        for record in iterate(fetched.data, at, end, MOST_DECOMPRESSED):
                            if start <= record.offset < stop:
                                yield record, append_time
                    if not budget.spend(end - at):
                        return
            return
        except DataLoss as loss:
            # Retention has deleted them since the page was planned.
            start = max(start + 1, loss.resume_at)


class AbortedBatches:
    """Tells which batches of a response belong to aborted transactions; asked in their order."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._ahead = sorted(((first, producer) for producer, first in aborted), reverse=True)
        self._open: set[int] = set()

    def contain(self, header: Header) -> bool:
        while self._ahead and self._ahead[-1][0] <= header.last_offset:
            self._open.add(self._ahead.pop()[1])
        if header.attributes & CONTROL:
            self._open.discard(header.producer_id)
            return False
        return bool(header.attributes & TRANSACTIONAL) and header.producer_id in self._open


def read_page(
    cluster: Cluster,
    topic: str,
    ranges: Sequence[PageRange],
    limit: int,
    decoder: Decoder,
    *,
    newest_first: bool,
    most: int = PREVIEW_CHARACTERS,
) -> Mapping[str, object]:
    """The first `limit` records of the ranges in the order of their time, or the last ones.

    Keys and values have at most `most` characters.
    """
    budget = PageBudget()
    rows: list[list[dict[str, object]]] = []
    for each in ranges:
        place = TopicPartition(topic, each.partition)
        found = [
            shown_record(record, place, append_time, decoder, most)
            for record, append_time in read_records(cluster, place, each.start, each.stop, budget)
        ]
        rows.append(found[::-1] if newest_first else found)
    merged = heapq.merge(*rows, key=lambda row: int(str(row["timestamp"])), reverse=newest_first)
    shown = [row for row, _ in zip(merged, range(limit), strict=False)]
    return {
        "records": shown,
        "next": _next_starts(ranges, shown, newest_first=newest_first),
        "stopped": budget.exhausted,
    }


def _next_starts(
    ranges: Sequence[PageRange], shown: Sequence[Mapping[str, object]], *, newest_first: bool
) -> dict[str, str]:
    """Where the next page begins, by partition: before the oldest or after the newest shown."""
    found = {each.partition: each.stop if newest_first else each.start for each in ranges}
    for row in shown:
        partition, offset = int(str(row["partition"])), int(str(row["offset"]))
        if newest_first:
            found[partition] = min(found[partition], offset)
        else:
            found[partition] = max(found[partition], offset + 1)
    return {str(partition): str(offset) for partition, offset in found.items()}
