"""When a log begins a new segment."""

from headrace.log.segment import MAX_RELATIVE, Segment
from headrace.settings import LogSettings


def roll_due(
    segment: Segment, settings: LogSettings, size: int, max_timestamp: int, last: int, age_ms: int
) -> bool:
    """Whether a batch of that size, time and last offset needs a segment after this one.

    `age_ms` is the age of the segment; it is used if its first batch has no timestamp.
    """
    if last - segment.base_offset > MAX_RELATIVE:
        return True
    if segment.size == 0:
        return False
    if segment.first_timestamp >= 0:
        age_ms = max_timestamp - segment.first_timestamp
    return (
        segment.size + size > settings.segment_bytes
        or age_ms > settings.segment_ms
        or segment.indexes.is_full(settings.segment_index_bytes)
    )
