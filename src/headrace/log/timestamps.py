"""Finds offsets by timestamp, for ListOffsets.

The indexes lead to the one batch that can have the record; only that one is decoded. If it is
large, `LongSearch` is raised: the caller completes the search between other requests and calls
again with the result.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace.errors import ErrorCode, KafkaError
from headrace.log.segment import Segment
from headrace.wire.batch import LOG_APPEND_TIME, Header
from headrace.wire.steps import AT_ONCE_BYTES, AT_ONCE_RECORDS, Steps, finish

# The decompressed size of a batch that is searched.
_DECOMPRESSED_BYTES_MAX = 64 << 20
_STRIDE = 256
"""Records searched between two yields."""


class TimestampOffset(NamedTuple):
    """A record's time and offset, and the leader epoch of its batch."""

    timestamp: int
    offset: int
    epoch: int


class SearchKey(NamedTuple):
    """The batch that is searched, and for what."""

    header: Header
    timestamp_ms: int
    start_offset: int


Searched = Mapping[SearchKey, TimestampOffset | None]
"""The results of searches in large batches."""
NOTHING_SEARCHED: Searched = {}


class BatchSearch:
    """Searches one batch for a timestamp: `unpack`, then `steps`."""

    __slots__ = ("_batch", "_payload", "key")

    def __init__(self, batch: bytes, key: SearchKey) -> None:
        self.key = key
        self._batch = batch
        self._payload: bytes | bytearray | None = None

    def at_once(self) -> TimestampOffset | None:
        """The result; LongSearch if that would keep other clients waiting."""
        if self.key.header.record_count > AT_ONCE_RECORDS:
            raise LongSearch(self)
        try:
            self._unpack(AT_ONCE_BYTES)
        except KafkaError as error:
            if error.code is ErrorCode.MESSAGE_TOO_LARGE:
                raise LongSearch(self) from error
        return finish(self.steps())

    def unpack(self) -> None:
        """Decompress the records. May run in a worker thread."""
        try:
            self._unpack(_DECOMPRESSED_BYTES_MAX)
        except KafkaError:
            self._payload = None

    def _unpack(self, cap: int) -> None:
        from headrace.wire.records import unpack

        batch = self._batch
        self._payload = unpack(batch, 0, len(batch), self.key.header, cap)

    def steps(self) -> Steps[TimestampOffset | None]:
        """The first record with at least that timestamp, if there is one."""
        from headrace.wire.records import walk_starts

        header, timestamp_ms, start_offset = self.key
        epoch = header.partition_leader_epoch
        try:
            if self._payload is not None:
                for number, record in enumerate(walk_starts(self._payload, header)):
                    if record is None or number % _STRIDE == _STRIDE - 1:
                        yield
                    if record is None:
                        continue
                    if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                        return TimestampOffset(record.timestamp, record.offset, epoch)
                return None
        except KafkaError:
            pass
        # A batch whose records cannot be decoded: return its first offset.
        return _beginning(self.key)


class LongSearch(Exception):
    """The search in a batch takes long, and has to be completed by the caller."""

    def __init__(self, search: BatchSearch) -> None:
        super().__init__()
        self.search = search


def first_at_or_after(
    segments: Sequence[Segment], timestamp_ms: int, start_offset: int, searched: Searched
) -> TimestampOffset | None:
    """The first record at or above `start_offset` with at least this timestamp."""
    for segment in segments:
        if segment.latest_time()[0] < timestamp_ms:
            continue
        for position, header in segment.walk(segment.locate_time(timestamp_ms)):
            if header.max_timestamp >= timestamp_ms and header.last_offset >= start_offset:
                key = SearchKey(header, timestamp_ms, start_offset)
                found = _in_batch(segment, position, key, searched)
                if found is not None:
                    return found
    return None


def with_largest_timestamp(
    segments: Sequence[Segment], searched: Searched
) -> TimestampOffset | None:
    """The first record that has the largest timestamp of all.

    If no record has a timestamp, that is the first record, as in Apache Kafka.
    """
    best = max(segments, key=_latest)
    timestamp, offset = best.latest_time()
    if best.size == 0:
        return None
    position, base = best.locate(offset)
    if base < 0:
        return None
    return _in_batch(best, position, SearchKey(best.header_at(position), timestamp, 0), searched)


def _latest(segment: Segment) -> int:
    return segment.latest_time()[0]


def _in_batch(
    segment: Segment, position: int, key: SearchKey, searched: Searched
) -> TimestampOffset | None:
    if key.header.attributes & LOG_APPEND_TIME:
        return _beginning(key)
    if key in searched:
        return searched[key]
    return BatchSearch(segment.read_batch(position, key.header), key).at_once()


def _beginning(key: SearchKey) -> TimestampOffset:
    """The first record of the batch, with the largest timestamp in it."""
    header = key.header
    offset = max(header.base_offset, key.start_offset)
    return TimestampOffset(header.max_timestamp, offset, header.partition_leader_epoch)
