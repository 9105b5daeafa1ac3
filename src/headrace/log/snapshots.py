"""Producer snapshots on disk, and replaying the log on top of one.

`<offset>.snapshot` holds the producer state of everything below that offset. One is written when
a segment is sealed and one at a clean stop. A damaged one is removed and the next older one used;
without any, the log is replayed from its start. The format is in `producer_state.py`.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from headrace.disk import Disk, read_file, write_file
from headrace.log.producer_state import CorruptSnapshot, EndedTransaction, ProducerState
from headrace.log.segment import Segment
from headrace.log.segment_files import remove_if_there, segment_path
from headrace.wire.batch import CONTROL, Header
from headrace.wire.markers import decode_marker

SNAPSHOT = ".snapshot"

_log = logging.getLogger("headrace.log")


def list_snapshots(names: Iterable[str]) -> list[int]:
    """The offsets of the snapshots among a folder's file names, oldest first."""
    found = (name.removesuffix(SNAPSHOT) for name in names if name.endswith(SNAPSHOT))
    return sorted(int(offset) for offset in found if offset.isdecimal())


def write_snapshot(
    disk: Disk, folder: str, offset: int, state: ProducerState, *, sync: bool
) -> None:
    """Write the producer state of everything below `offset`."""
    write_file(disk, segment_path(folder, offset, SNAPSHOT), state.encode(), sync=sync)


def remove_snapshots(disk: Disk, folder: str, offsets: Iterable[int]) -> None:
    """Remove snapshots; those that are gone already are fine."""
    for offset in offsets:
        remove_if_there(disk, segment_path(folder, offset, SNAPSHOT))


def load_snapshot(
    disk: Disk, folder: str, offsets: Sequence[int], at_least: int, at_most: int, since: int = 0
) -> tuple[int, ProducerState]:
    """The newest readable snapshot between two offsets; (-1, empty) if there is none.

    `since` is that of `ProducerState`.

    A snapshot from before the first segment is not used: replay could not fill the gap, and a
    producer that has continued since would be refused, while an unknown producer is accepted.
    """
    for offset in reversed([offset for offset in offsets if at_least <= offset <= at_most]):
        path = segment_path(folder, offset, SNAPSHOT)
        try:
            return offset, ProducerState.decode(read_file(disk, path), since)
        except FileNotFoundError:
            continue
        except CorruptSnapshot as error:
            _log.warning("%s is dropped because %s", path, error)
            remove_if_there(disk, path)
    return -1, ProducerState(since)


def record_batch(
    state: ProducerState, header: Header, base_offset: int, batch: Callable[[], bytes]
) -> EndedTransaction | None:
    """Apply a producer's batch to the state; the transaction that it ends, if it is a marker.

    `batch` returns its bytes; it is called only for a marker.
    """
    if not header.attributes & CONTROL:
        state.record(header, base_offset)
        return None
    marker = decode_marker(batch())
    if marker is None:
        _log.warning("the control batch at offset %d is not a transaction marker", base_offset)
        return None
    return state.record_marker(header, base_offset, marker)


def replay_batch(
    state: ProducerState, segment: Segment, position: int, header: Header
) -> EndedTransaction | None:
    """Apply one batch of the log to the producer state."""
    if header.producer_id < 0:
        return None
    return record_batch(
        state, header, header.base_offset, lambda: segment.read_batch(position, header)
    )


def replay(
    state: ProducerState, segments: Sequence[Segment], start: int, end: int
) -> list[EndedTransaction]:
    """Apply the batches between two offsets to the producer state, by their headers.

    Returns the transactions that end between them.
    """
    ended: list[EndedTransaction] = []
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else end
        if following <= start:
            continue
        position = segment.locate(start)[0] if start > segment.base_offset else 0
        for at, header in segment.walk(position):
            if header.base_offset >= end:
                return ended
            transaction = replay_batch(state, segment, at, header)
            if transaction is not None:
                ended.append(transaction)
    return ended


def rebuild(
    disk: Disk,
    folder: str,
    names: Iterable[str],
    segments: Sequence[Segment],
    end: int,
    since: int = 0,
) -> ProducerState:
    """The producer state at `end`: the newest snapshot, and the log from there on."""
    first = segments[0].base_offset
    offset, state = load_snapshot(disk, folder, list_snapshots(names), first, end, since)
    if offset < end:
        replay(state, segments, max(offset, first), end)
    return state
