"""The committed records in responses of brokers."""

from headrace.client.committed_records import MAX_DECOMPRESSED_BYTES, visible_batches
from headrace.client.fetching import whole_batches
from headrace.client.first_batches import FirstBatches
from headrace.wire.batch import read_header
from headrace.wire.records import Record, iterate


def committed_of(answer: FirstBatches, start: int) -> tuple[list[Record], int]:
    """The committed records from an offset on, and the offset that follows them."""
    data = bytearray(answer.records)
    starts, end = whole_batches(data, 0, len(data))
    if not starts:
        return [], start
    records = [
        record
        for first, last, _ in visible_batches(data, [*starts, end], list(answer.aborted))
        for record in iterate(data, first, last, MAX_DECOMPRESSED_BYTES)
        if record.offset >= start
    ]
    return records, max(start, read_header(data, starts[-1]).next_offset)
