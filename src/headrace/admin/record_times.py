"""The time of the record at an offset, for lag in seconds and forecasts.

One record of each partition is read, many partitions with one request, and the time is cached by
partition and offset. If there is no record at the offset, the next one counts, and the result says
why there is none.
"""

from collections import OrderedDict
from collections.abc import Mapping
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
from headrace.wire.batch import CONTROL, LOG_APPEND_TIME, read_header
from headrace.wire.records import iterate

CACHED_TIMES = 50_000
MAX_DECOMPRESSED_BYTES = 64 << 20


class Gap(StrEnum):
    """Why the record at an offset has no time."""

    COMPACTED = "the record was compacted away"
    MARKER = "a transaction marker stands there"
    EMPTY = "no record stands there or after it"
    DELETED = "the record was deleted"
    NO_TIMESTAMP = "the record has no timestamp"
    UNREADABLE = "the record cannot be read"
    UNAVAILABLE = "the leader of the partition does not answer"


@dataclass(frozen=True, slots=True)
class RecordTime:
    """The time of the first record at or after an offset.

    `gap` says why it is not the time of the record at the offset; `timestamp_ms` is None if there
    is no time at all.
    """

    timestamp_ms: int | None
    gap: Gap | None = None


class RecordTimes:
    """Looks up times of records, and keeps those that were used last; for any number of threads."""

    def __init__(self, capacity: int = CACHED_TIMES) -> None:
        self._capacity = capacity
        self._lock = Lock()
        self._known: OrderedDict[tuple[TopicPartition, int], RecordTime] = OrderedDict()

    def look_up(
        self, cluster: Cluster, positions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, RecordTime]:
        """The time at each position. A position has to be below the end of its partition."""
        found: dict[TopicPartition, RecordTime] = {}
        missing: dict[TopicPartition, int] = {}
        with self._lock:
            for partition, offset in positions.items():
                known = self._known.get((partition, offset))
                if known is None:
                    missing[partition] = offset
                else:
                    self._known.move_to_end((partition, offset))
                    found[partition] = known
        if missing:
            answers = first_batches(cluster, missing)
            with self._lock:
                for partition, offset in missing.items():
                    found[partition] = self._take(partition, offset, answers.get(partition))
        return found

    def _take(
        self, partition: TopicPartition, offset: int, answer: FirstBatches | None
    ) -> RecordTime:
        if answer is None:
            return RecordTime(None, Gap.UNAVAILABLE)
        time = time_at(answer, offset)
        # What is not there yet may come; all other answers stay as they are.
        if time.gap not in (Gap.EMPTY, Gap.UNAVAILABLE):
            self._known[partition, offset] = time
            if len(self._known) > self._capacity:
                self._known.popitem(last=False)
        return time


def time_at(answer: FirstBatches, offset: int) -> RecordTime:
    """The time of the first record at or after the offset, in what a leader sent."""
    if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
        below = offset < answer.log_start or answer.log_start < 0
        return RecordTime(None, Gap.DELETED if below else Gap.EMPTY)
    if answer.error is not None:
        return RecordTime(None, Gap.UNAVAILABLE)
    try:
        return _first_time(answer.records, offset)
    except (KafkaError, ClientError, ValueError):
        return RecordTime(None, Gap.UNREADABLE)


def _first_time(records: bytes, offset: int) -> RecordTime:
    data = bytearray(records)
    positions, end = whole_batches(data, 0, len(data))
    gap: Gap | None = None
    for start, stop in pairwise([*positions, end]):
        header = read_header(data, start)
        if header.last_offset < offset:
            continue
        if header.attributes & CONTROL:
            gap = gap or Gap.MARKER
            continue
        for record in iterate(data, start, stop, MAX_DECOMPRESSED_BYTES):
            if record.offset < offset:
                continue
            if record.offset > offset:
                gap = gap or Gap.COMPACTED
            by_broker = header.attributes & LOG_APPEND_TIME
            timestamp = header.max_timestamp if by_broker else record.timestamp
            if timestamp < 0:
                return RecordTime(None, Gap.NO_TIMESTAMP)
            return RecordTime(timestamp, gap)
        gap = gap or Gap.COMPACTED
    return RecordTime(None, gap or Gap.EMPTY)
