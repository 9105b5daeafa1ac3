"""The batches of a read from the log, as a share group delivers them.

Only headers of batches are looked at. A control batch is never delivered; with `read_committed`
those of aborted transactions are not delivered either, because the response of a ShareFetch has no
list of aborted transactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.coordination.shares.delivery import Acquired, FetchedBatch
from headrace.wire import batch
from headrace.wire.markers import decode_marker


class BatchPlace(NamedTuple):
    """Where a batch is in the bytes that were read."""

    begin: int
    end: int
    first: int
    last: int


def find_batches(
    data: bytes, aborted: Sequence[tuple[int, int]]
) -> tuple[list[BatchPlace], list[FetchedBatch]]:
    """The whole batches in `data`; `aborted` has the producer and first offset of transactions."""
    places: list[BatchPlace] = []
    fetched: list[FetchedBatch] = []
    waiting = sorted(aborted, key=lambda one: one[1])
    discarded: set[int] = set()
    pos = 0
    while len(data) - pos >= batch.HEADER_BYTES:
        header = batch.read_header(data, pos)
        end = pos + header.size_bytes
        if end > len(data):
            break
        first, last = header.base_offset, header.last_offset
        while waiting and waiting[0][1] <= last:
            discarded.add(waiting.pop(0)[0])
        deliverable = True
        if header.attributes & batch.CONTROL:
            deliverable = False
            marker = decode_marker(data[pos:end])
            if marker is not None and not marker.commit:
                discarded.discard(header.producer_id)
        elif header.attributes & batch.TRANSACTIONAL and header.producer_id in discarded:
            deliverable = False
        places.append(BatchPlace(pos, end, first, last))
        fetched.append(FetchedBatch(first, last, deliverable))
        pos = end
    return places, fetched


def acquired_bytes(
    data: bytes, places: Sequence[BatchPlace], acquired: Sequence[Acquired]
) -> list[memoryview]:
    """The batches with records that were acquired; adjacent ones in one piece."""
    view = memoryview(data)
    pieces: list[tuple[int, int]] = []
    at = 0
    for place in places:
        while at < len(acquired) and acquired[at].last < place.first:
            at += 1
        if at == len(acquired):
            break
        if acquired[at].first <= place.last:
            if pieces and pieces[-1][1] == place.begin:
                pieces[-1] = (pieces[-1][0], place.end)
            else:
                pieces.append((place.begin, place.end))
    return [view[begin:end] for begin, end in pieces]
