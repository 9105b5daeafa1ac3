"""The spool of a push source: numbered rows in files, until they are in the topic.

A spool is a folder of segments. The name of a segment is the number of its first row:

    00000000000000000000.rows
        magic      8 bytes   HRSPOOL1
        schema     8 bytes   a digest of the rows' Arrow schema
        frames     until the end of the file:
            first   8 bytes  the number of the frame's first row, big-endian
            rows    4 bytes
            length  4 bytes  of the batch
            crc     4 bytes  CRC-32 of the three fields above and of the batch
            batch            an Arrow record batch, without its schema

One process appends (`Spool`), which a lock on a file ensures. Others read ranges (`read_range`).
`sync` decides how far a spool goes: rows that are not synced yet may be lost in a crash, and the
external system still has them, because it is not acknowledged before they are in the topic.
"""

import fcntl
import hashlib
import itertools
import logging
import os
import struct
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

import pyarrow as pa

from headrace.connect.plugin import PermanentError

MAX_BYTES = 256 * 2**20
SEGMENT_BYTES = 8 * 2**20
RECLAIMED_BYTES = 2**20
"""A segment of which no row is needed is deleted from this size on."""
FRAME_ROWS = 1000
FRAME_BYTES = 2**20
LOCKED_WITHIN_S = 30.0

_MAGIC = b"HRSPOOL1"
_FRAME = struct.Struct(">QIII")
_START = len(_MAGIC) + 8
_log = logging.getLogger(__name__)


class SpoolClosed(Exception):
    """The spool was closed while a row waited to be appended."""


class SpoolInUse(Exception):
    """Another process appends to the spool."""


class _Frame(NamedTuple):
    first: int
    rows: int
    data: bytes

    @property
    def end(self) -> int:
        return self.first + self.rows


class Spool:
    """The spool as its one writer sees it. Methods may be called from several threads."""

    def __init__(
        self,
        folder: Path,
        schema: pa.Schema,
        position: int | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """Open or create it; `position` is the number of the first row that is not in the topic.

        Numbers continue at `position` if the spool does not reach it, which means that it was
        deleted or that another offset was set.
        """
        self.folder = folder
        self.schema = schema
        self._max_bytes = max_bytes
        self._changed = threading.Condition()
        self._closed = False
        self._pending: list[Mapping[str, object]] = []
        self._pending_bytes = 0
        self._file: BinaryIO | None = None
        self._is_synced = True
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(folder)
        self._sizes, self._end = _recover(folder, schema)
        """The bytes of each segment, by the number of its first row."""
        if position is not None and position > self._end:
            if self._sizes:
                _log.warning(
                    "the spool %s ends at %d, but the connector is at %d: its rows are left out",
                    folder,
                    self._end,
                    position,
                )
            self._delete(list(self._sizes))
            self._end = position
        self._start = max(position or 0, min(self._sizes, default=self._end))

    @property
    def start(self) -> int:
        """The number of the first row that is needed."""
        return self._start

    @property
    def size_bytes(self) -> int:
        """What the spool takes, in files and in memory."""
        return sum(self._sizes.values()) + self._pending_bytes

    def append(self, row: Mapping[str, object]) -> int:
        """The number of the row; waits while the spool is full. SpoolClosed if it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self.size_bytes < self._max_bytes)
            if self._closed:
                raise SpoolClosed
            self._pending.append(row)
            self._pending_bytes += _size(row)
            number = self._end + len(self._pending) - 1
            if len(self._pending) >= FRAME_ROWS or self._pending_bytes >= FRAME_BYTES:
                self._write_pending()
            return number

    def sync(self) -> int:
        """The end: all rows before this number are on disk."""
        with self._changed:
            self._write_pending()
            if not self._is_synced and self._file is not None:
                os.fsync(self._file.fileno())
                self._is_synced = True
            return self._end

    def cut(self, upto: int) -> None:
        """Rows before this number are not needed any more."""
        with self._changed:
            self._start = max(self._start, upto)
            firsts = sorted(self._sizes)
            gone = [first for first, following in itertools.pairwise(firsts) if following <= upto]
            reclaimed = min(RECLAIMED_BYTES, self._max_bytes // 2)
            if firsts and self._end <= upto and self._sizes[firsts[-1]] >= reclaimed:
                self._close_file()
                gone.append(firsts[-1])
            self._delete(gone)
            self._changed.notify_all()

    def close(self) -> None:
        """Rows that are not synced may be lost."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            try:
                self._close_file()
            finally:
                self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _write_pending(self) -> None:
        if not self._pending or self._closed:
            return
        batch = pa.RecordBatch.from_pylist(self._pending, schema=self.schema)
        data = batch.serialize().to_pybytes()
        described = _FRAME.pack(self._end, batch.num_rows, len(data), 0)[:-4]
        check = zlib.crc32(data, zlib.crc32(described))
        file, segment = self._segment()
        frame = b"".join((described, check.to_bytes(4, "big"), data))
        self._is_synced = False
        try:
            _write(file, frame)
        except OSError:
            # The disk is full, for example. What follows must not stand behind half a frame.
            os.ftruncate(file.fileno(), self._sizes[segment])
            raise
        self._sizes[segment] += len(frame)
        self._end += batch.num_rows
        self._pending = []
        self._pending_bytes = 0

    def _segment(self) -> tuple[BinaryIO, int]:
        """The file to append to, and the number of its first row."""
        last = max(self._sizes, default=None)
        if last is not None and self._sizes[last] < SEGMENT_BYTES:
            if self._file is None:
                self._file = _path(self.folder, last).open("ab", buffering=0)
            return self._file, last
        # Only the last segment may end with an incomplete frame.
        self._close_file()
        path = _path(self.folder, self._end)
        file = path.open("ab", buffering=0)
        try:
            os.ftruncate(file.fileno(), 0)
            _write(file, _MAGIC + _digest(self.schema))
            _sync_folder(self.folder)
        except OSError:
            file.close()
            raise
        self._file = file
        self._sizes[self._end] = _START
        return file, self._end

    def _close_file(self) -> None:
        if self._file is not None:
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None
            self._is_synced = True

    def _delete(self, segments: Sequence[int]) -> None:
        for first in segments:
            _path(self.folder, first).unlink(missing_ok=True)
            del self._sizes[first]


def read_range(
    folder: Path, schema: pa.Schema, start: int | None, end: int
) -> Iterator[pa.RecordBatch]:
    """The rows from `start` up to `end`; from the oldest one if `start` is None."""
    firsts = _segments(folder)
    position = start
    for first, after in zip(firsts, [*firsts[1:], end], strict=False):
        if first >= end or (position is not None and after <= position):
            continue
        path = _path(folder, first)
        if _header(path) != _MAGIC + _digest(schema):
            continue
        for frame in _frames(path, position):
            position = frame.first if position is None else position
            if frame.first >= end:
                break
            if frame.end <= position:
                continue
            if frame.first > position:
                raise _missing(folder, position, frame.first)
            batch = pa.ipc.read_record_batch(pa.py_buffer(frame.data), schema)
            upto = min(end, frame.end)
            yield batch.slice(position - frame.first, upto - position)
            position = upto
    if position != end:
        raise _missing(folder, position or 0, end)


def _missing(folder: Path, start: int, end: int) -> PermanentError:
    return PermanentError(
        f"the spool {folder} has no rows {start} to {end - 1}: they were deleted, or are damaged. "
        "Stop the connector and delete its offsets to continue with the messages that follow"
    )


def _frames(path: Path, position: int | None = None) -> Iterator[_Frame]:
    """The complete frames of a segment; the data of frames before `position` is not read."""
    with path.open("rb") as file:
        file.seek(_START)
        while len(described := file.read(_FRAME.size)) == _FRAME.size:
            first, rows, length, check = _FRAME.unpack(described)
            if position is not None and first + rows <= position:
                file.seek(length, os.SEEK_CUR)
                continue
            data = file.read(length)
            if len(data) < length or zlib.crc32(data, zlib.crc32(described[:-4])) != check:
                return
            yield _Frame(first, rows, data)


def _recover(folder: Path, schema: pa.Schema) -> tuple[dict[int, int], int]:
    """The sizes of the segments and the end of the rows, with an incomplete last frame cut off."""
    firsts = _segments(folder)
    if firsts and not _header(_path(folder, firsts[-1])).startswith(_MAGIC):
        # It was being created, which happens after all rows before it are synced.
        _path(folder, firsts[-1]).unlink()
        return _recover(folder, schema) if firsts[1:] else ({}, firsts[0])
    if not firsts:
        return {}, 0
    last = _path(folder, firsts[-1])
    end, size = firsts[-1], _START
    for frame in _frames(last):
        end, size = frame.end, size + _FRAME.size + len(frame.data)
    if _header(last) != _MAGIC + _digest(schema):
        # The connector has another class than before. The external system still has the messages.
        _log.warning("the spool %s has rows of another connector, which are deleted", folder)
        for first in firsts:
            _path(folder, first).unlink()
        return {}, end
    with last.open("ab") as file:
        if file.tell() > size:
            _log.warning("the spool %s ends with an incomplete frame, which is cut off", last)
            file.truncate(size)
        # A writer that was killed may have written rows which are not on disk yet.
        os.fsync(file.fileno())
    return {first: _path(folder, first).stat().st_size for first in firsts}, end


def _header(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_START)


def _segments(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.rows"))


def _path(folder: Path, first: int) -> Path:
    return folder / f"{first:020}.rows"


def _digest(schema: pa.Schema) -> bytes:
    return hashlib.sha256(schema.to_string().encode()).digest()[:8]


def _size(value: object) -> int:
    """About as many bytes as the value takes in a batch."""
    if isinstance(value, bytes | str):
        return 8 + len(value)
    if isinstance(value, Mapping):
        return 8 + sum(map(_size, value.values()))
    if isinstance(value, list | tuple):
        return 8 + sum(map(_size, value))
    return 8


def _write(file: BinaryIO, data: bytes) -> None:
    """Write all of it."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _locked(folder: Path) -> BinaryIO:
    """The locked file; the system unlocks it when its process ends."""
    file = (folder / "lock").open("wb")
    end = time.monotonic() + LOCKED_WITHIN_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                file.close()
                raise SpoolInUse(f"another process appends to the spool {folder}") from None
            time.sleep(0.05)
        else:
            return file
