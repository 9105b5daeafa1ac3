"""Producer snapshots on disk, and replaying the log on top of one.

`<offset>.snapshot` holds the producer state of everything below that offset. One is written when
a segment is sealed and one at a clean stop. A damaged one is removed and the next older one used;
without any, the log is replayed from its start. The bytes inside: `producer_state.py`.
"""

import logging
import struct
from collections.abc import Callable, Iterable, Sequence

from headrace.disk import Disk, read_file, write_file
from headrace.errors import KafkaError
from headrace.log.producer_state import CorruptSnapshot, ProducerState
from headrace.log.segment import Segment, remove_if_there, segment_path
from headrace.wire.batch import CONTROL, Header

SNAPSHOT = ".snapshot"
NO_COORDINATOR = -1
_MARKER_BYTES_MAX = 1 << 16

_log = logging.getLogger("headrace.log")
_MARKER_VALUE = struct.Struct(">hi")


def list_snapshots(names: Iterable[str]) -> list[int]:
    """The offsets of the snapshots among a folder's file names, oldest first."""
    found = (name.removesuffix(SNAPSHOT) for name in names if name.endswith(SNAPSHOT))
    return sorted(int(offset) for offset in found if offset.isdecimal())


def write_snapshot(
    disk: Disk, folder: str, offset: int, state: ProducerState, *, sync: bool
) -> None:
    """Keep the producer state of everything below `offset`."""
    write_file(disk, segment_path(folder, offset, SNAPSHOT), state.encode(), sync=sync)


def remove_snapshots(disk: Disk, folder: str, offsets: Iterable[int]) -> None:
    """Remove snapshots; those that are gone already are fine."""
    for offset in offsets:
        remove_if_there(disk, segment_path(folder, offset, SNAPSHOT))


def load_snapshot(
    disk: Disk, folder: str, offsets: Sequence[int], at_least: int, at_most: int
) -> tuple[int, ProducerState]:
    """The newest readable snapshot between two offsets; (-1, empty) if there is none.

    One from before the first segment would leave a hole that no replay fills: a producer that
    went on meanwhile would be refused. An unknown producer is not.
    """
    for offset in reversed([offset for offset in offsets if at_least <= offset <= at_most]):
        path = segment_path(folder, offset, SNAPSHOT)
        try:
            return offset, ProducerState.decode(read_file(disk, path))
        except FileNotFoundError:
            continue
        except CorruptSnapshot as error:
            _log.warning("%s is dropped because %s", path, error)
            remove_if_there(disk, path)
    return -1, ProducerState()


def record_batch(
    state: ProducerState, header: Header, base_offset: int, batch: Callable[[], bytes]
) -> None:
    """Bring a producer's batch into the state; its bytes are asked for only if it is a marker."""
    if header[5] & CONTROL:
        state.record_marker(header, coordinator_epoch(batch(), header))
    else:
        state.record(header, base_offset)


def replay_batch(state: ProducerState, segment: Segment, position: int, header: Header) -> None:
    """Bring one batch of the log into the producer state."""
    if header[9] >= 0:
        record_batch(state, header, header[0], lambda: segment.read_batch(position, header))


def replay(state: ProducerState, segments: Sequence[Segment], start: int, end: int) -> None:
    """Bring the batches between two offsets into the producer state, by their headers alone."""
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else end
        if following <= start:
            continue
        position = segment.locate(start)[0] if start > segment.base_offset else 0
        for at, header in segment.walk(position):
            if header[0] >= end:
                return
            replay_batch(state, segment, at, header)


def rebuild(
    disk: Disk, folder: str, names: Iterable[str], segments: Sequence[Segment], end: int
) -> ProducerState:
    """The producer state at `end`: the best snapshot, and the log from there on."""
    first = segments[0].base_offset
    offset, state = load_snapshot(disk, folder, list_snapshots(names), first, end)
    if offset < end:
        replay(state, segments, max(offset, first), end)
    return state


def coordinator_epoch(batch: bytes, header: Header) -> int:
    """The transaction coordinator's epoch in a control batch, or -1 if it has none."""
    from headrace.wire.records import iterate

    try:
        for record in iterate(batch, 0, len(batch), _MARKER_BYTES_MAX):
            if record.value is not None and len(record.value) >= _MARKER_VALUE.size:
                return int(_MARKER_VALUE.unpack_from(record.value)[1])
    except KafkaError as error:
        _log.warning("a transaction marker at offset %d is unreadable: %s", header[0], error)
    return NO_COORDINATOR
