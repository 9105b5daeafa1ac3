"""The time of the record at an offset, for lag in seconds and forecasts.

One record of each partition is read, many partitions with one request, and the time is cached by
partition and offset for some minutes. If there is no record at the offset, the next one is used,
and the result has the reason.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from threading import Lock

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.fetching import whole_batches
from headrace.client.first_batches import FirstBatches, first_batches
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition
from headrace.wire.batch import CONTROL, read_header
from headrace.wire.records import iterate

CACHED_TIMES = 50_000
CACHED_S = 300.0
"""A record may be deleted or compacted away, and a topic created again under its name."""
MAX_DECOMPRESSED_BYTES = 64 << 20


class Gap(StrEnum):
    """The reason why the time of the record at an offset is unknown."""

    COMPACTED = "the record was compacted away"
    MARKER = "the offset is that of a transaction marker"
    ONLY_MARKERS = "only transaction markers follow"
    EMPTY = "no record is at the offset or after it"
    DELETED = "the record was deleted"
    NO_TIMESTAMP = "the record has no timestamp"
    UNREADABLE = "the record cannot be read"
    UNAVAILABLE = "the leader of the partition does not answer"


LASTING = (Gap.DELETED, Gap.NO_TIMESTAMP, Gap.UNREADABLE)
NOTHING_FOLLOWS = (Gap.ONLY_MARKERS, Gap.EMPTY)


@dataclass(frozen=True, slots=True)
class RecordTime:
    """The time of the first record at or after an offset.

    `gap` is the reason why it is not the time of the record at the offset; `timestamp_ms` is None
    if there is no time at all.
    """

    timestamp_ms: int | None
    gap: Gap | None = None

    @property
    def nothing_follows(self) -> bool:
        """Whether there is no record from the offset on, although the partition ends later."""
        return self.gap in NOTHING_FOLLOWS


@dataclass(frozen=True, slots=True)
class _Cached:
    time: RecordTime
    until_s: float


class RecordTimes:
    """Looks up times of records, with a cache; for use by several threads."""

    def __init__(
        self, capacity: int = CACHED_TIMES, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._capacity = capacity
        self._clock_s = clock_s
        self._lock = Lock()
        self._known: OrderedDict[tuple[TopicPartition, int], _Cached] = OrderedDict()

    def look_up(
        self, cluster: Cluster, positions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, RecordTime]:
        """The time at each position, which must be below the end of its partition."""
        found: dict[TopicPartition, RecordTime] = {}
        missing: dict[TopicPartition, int] = {}
        now_s = self._clock_s()
        with self._lock:
            for partition, offset in positions.items():
                known = self._known.get((partition, offset))
                if known is None or known.until_s < now_s:
                    missing[partition] = offset
                else:
                    self._known.move_to_end((partition, offset))
                    found[partition] = known.time
        if missing:
            answers = first_batches(cluster, missing)
            with self._lock:
                for partition, offset in missing.items():
                    answer = answers.get(partition)
                    found[partition] = self._take(partition, offset, answer, now_s + CACHED_S)
        return found

    def _take(
        self, partition: TopicPartition, offset: int, answer: FirstBatches | None, until_s: float
    ) -> RecordTime:
        if answer is None:
            return RecordTime(None, Gap.UNAVAILABLE)
        found = time_at(answer, offset)
        # A record may arrive at any time where there is none yet.
        if found.timestamp_ms is not None or found.gap in LASTING:
            self._known[partition, offset] = _Cached(found, until_s)
            self._known.move_to_end((partition, offset))
            if len(self._known) > self._capacity:
                self._known.popitem(last=False)
        return found


def time_at(answer: FirstBatches, offset: int) -> RecordTime:
    """The time of the first record at or after the offset, in the response of a leader."""
    if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
        below = offset < answer.log_start or answer.log_start < 0
        return RecordTime(None, Gap.DELETED if below else Gap.EMPTY)
    if answer.error is not None:
        return RecordTime(None, Gap.UNAVAILABLE)
    try:
        return _first_time(answer, offset)
    except (KafkaError, ClientError, ValueError):
        return RecordTime(None, Gap.UNREADABLE)


def _first_time(answer: FirstBatches, offset: int) -> RecordTime:
    data = bytearray(answer.records)
    positions, end = whole_batches(data, 0, len(data))
    gap: Gap | None = None
    reached = offset
    for start, stop in pairwise([*positions, end]):
        header = read_header(data, start)
        if header.last_offset < offset:
            continue
        reached = header.next_offset
        if header.attributes & CONTROL:
            gap = gap or Gap.MARKER
            continue
        for record in iterate(data, start, stop, MAX_DECOMPRESSED_BYTES):
            if record.offset < offset:
                continue
            if record.offset > offset:
                gap = gap or Gap.COMPACTED
            if record.timestamp < 0:
                return RecordTime(None, Gap.NO_TIMESTAMP)
            return RecordTime(record.timestamp, gap)
        gap = gap or Gap.COMPACTED
    if positions and reached < answer.high_watermark:
        return RecordTime(None, gap)
    return RecordTime(None, Gap.ONLY_MARKERS if gap is Gap.MARKER else Gap.EMPTY)
