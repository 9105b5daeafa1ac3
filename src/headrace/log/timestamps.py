"""From times to offsets: what ListOffsets asks by timestamp.

The indexes lead to the one batch that can hold the answer; only that one is decoded.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.errors import KafkaError
from headrace.log.segment import Segment
from headrace.wire.batch import LOG_APPEND_TIME, Header

# One batch may grow to this when a time is looked up in it.
_DECOMPRESSED_BYTES_MAX = 64 << 20


class TimestampOffset(NamedTuple):
    """A record's time and offset, and the leader epoch of its batch."""

    timestamp: int
    offset: int
    epoch: int


def first_at_or_after(
    segments: Sequence[Segment], timestamp_ms: int, start_offset: int
) -> TimestampOffset | None:
    """The first record at or above `start_offset` that is at least as late."""
    for segment in segments:
        if segment.latest_time()[0] < timestamp_ms:
            continue
        for position, header in segment.walk(segment.locate_time(timestamp_ms)):
            if header.max_timestamp >= timestamp_ms and header.last_offset >= start_offset:
                found = _in_batch(segment, position, header, timestamp_ms, start_offset)
                if found is not None:
                    return found
    return None


def with_largest_timestamp(segments: Sequence[Segment]) -> TimestampOffset | None:
    """The first record that has the largest timestamp of all.

    If no record has a timestamp, that is the first record, as in Apache Kafka.
    """
    best = max(segments, key=_latest)
    timestamp, offset = best.latest_time()
    if best.size == 0:
        return None
    position, base = best.locate(offset)
    return None if base < 0 else _in_batch(best, position, best.header_at(position), timestamp, 0)


def _latest(segment: Segment) -> int:
    return segment.latest_time()[0]


def _in_batch(
    segment: Segment, position: int, header: Header, timestamp_ms: int, start_offset: int
) -> TimestampOffset | None:
    epoch = header.partition_leader_epoch
    whole = TimestampOffset(header.max_timestamp, max(header.base_offset, start_offset), epoch)
    if header.attributes & LOG_APPEND_TIME:
        return whole
    from headrace.wire.records import iterate

    batch = segment.read_batch(position, header)
    try:
        for record in iterate(batch, 0, len(batch), _DECOMPRESSED_BYTES_MAX):
            if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                return TimestampOffset(record.timestamp, record.offset, epoch)
    except KafkaError:
        # A client's batch whose records nobody can decode; its beginning is early enough.
        return whole
    return None
