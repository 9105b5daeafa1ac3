"""Records of fetched batches, as `read_committed` consumers see them, and those behind the last
stable offset that are committed, too."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from headrace.wire.batch import CONTROL, TRANSACTIONAL, Header, read_header
from headrace.wire.markers import decode_marker
from headrace.wire.records import iterate

MAX_DECOMPRESSED_BYTES = 64 << 20


class TopicRecord(NamedTuple):
    """One record of the topic."""

    offset: int
    key: bytes | None
    value: bytes | None


def committed_records(
    data: bytes | bytearray, bounds: list[int], aborted: list[tuple[int, int]], first_offset: int
) -> Iterator[TopicRecord]:
    """The records from an offset on, in batches with these bounds, without aborted transactions.

    `aborted` has the producer ids and first offsets of the transactions that were aborted.
    """
    for start, end, _ in visible_batches(data, bounds, aborted):
        for record in iterate(data, start, end, MAX_DECOMPRESSED_BYTES):
            if record.offset >= first_offset:
                yield TopicRecord(record.offset, record.key, record.value)


def visible_batches(
    data: bytes | bytearray, bounds: list[int], aborted: list[tuple[int, int]]
) -> Iterator[tuple[int, int, Header]]:
    """The start, the end and the header of each batch with records that consumers see."""
    waiting = sorted(aborted, key=lambda one: one[1])
    aborting: set[int] = set()
    for start, end in pairwise(bounds):
        header = read_header(data, start)
        while waiting and waiting[0][1] <= header.last_offset:
            aborting.add(waiting.pop(0)[0])
        if header.attributes & CONTROL:
            marker = decode_marker(data[start:end])
            if marker is not None and not marker.commit:
                aborting.discard(header.producer_id)
            continue
        if header.attributes & TRANSACTIONAL and header.producer_id in aborting:
            continue
        yield start, end, header


class RecordsBehindOpenTransaction:
    """Records behind the last stable offset whose own transactions have been committed.

    The transaction that holds the last stable offset is open, but later ones may have ended; their
    markers tell how.
    """

    def __init__(self) -> None:
        self._open: dict[int, list[TopicRecord]] = {}

    def take(self, data: bytes | bytearray, bounds: list[int]) -> Iterator[TopicRecord]:
        """The records that these batches complete, in the order of the commits."""
        for start, end in pairwise(bounds):
            header = read_header(data, start)
            if header.attributes & CONTROL:
                ended = self._open.pop(header.producer_id, [])
                marker = decode_marker(data[start:end])
                if marker is not None and marker.commit:
                    yield from ended
                continue
            records = [
                TopicRecord(record.offset, record.key, record.value)
                for record in iterate(data, start, end, MAX_DECOMPRESSED_BYTES)
            ]
            if header.attributes & TRANSACTIONAL:
                self._open.setdefault(header.producer_id, []).extend(records)
            else:
                yield from records
