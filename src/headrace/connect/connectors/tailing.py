"""Reads growing files by byte ranges that end with whole lines.

A position names a byte of one particular file, so that a file that was replaced or truncated is
read from its beginning. Nothing is read line by line: blocks are searched for line ends with numpy
and split by Arrow.
"""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connect.plugin import SourceOffset

BLOCK_BYTES = 4 * 2**20
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FilePosition:
    """A byte of a file; the offset of a source of files."""

    position: int
    file: str = ""
    """Which file had the name; empty in offsets that Kafka Connect has written."""
    restarted: bool = False
    """The range that ends here begins at byte 0: the file was replaced or truncated."""

    @classmethod
    def of(cls, offset: SourceOffset | None) -> "FilePosition | None":
        if offset is None:
            return None
        return cls(
            int(str(offset["position"])),
            str(offset.get("file") or ""),
            bool(offset.get("restarted")),
        )

    @property
    def offset(self) -> SourceOffset:
        offset: dict[str, str | int | bool] = {"position": self.position, "file": self.file}
        return {**offset, "restarted": True} if self.restarted else offset


@dataclass(frozen=True, slots=True)
class TailedFile:
    """A file that is read in ranges of whole lines."""

    path: Path
    is_whole: bool = False
    """Files are complete when they appear: the last line needs no line end."""
    quotes: bool = False
    """A line end between double quotes does not end a line, as in CSV."""

    def next_end(self, start: FilePosition | None, limit: int) -> FilePosition | None:
        """The end of the next range of at most `limit` lines; `start` if nothing is new."""
        replaced = self._replaced(start)
        if replaced is not None and start is not None:
            end = self._scan(replaced, start.position, limit)
            if end > start.position:
                return FilePosition(end, start.file)
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return start
        with file:
            name = self._identity(file)
            begin = 0
            if (
                start is not None
                and start.file in ("", name)
                and self._continues(file, start.position)
            ):
                begin = start.position
            restarted = start is not None and begin != start.position
            end = self._scan_open(file, begin, limit)
        if end == begin:
            return start
        return FilePosition(end, name, restarted)

    def blocks(self, start: FilePosition | None, end: FilePosition) -> Iterator[bytes]:
        """The bytes of a range, in blocks of whole lines. Bytes that are gone are left out."""
        if start == end:
            return
        begin = 0 if start is None or end.restarted else start.position
        path = self._named(end.file)
        if path is None:
            self._warn_lost(begin, end)
            return
        with path.open("rb") as file:
            if not (self._continues(file, begin) and self._continues(file, end.position)):
                self._warn_lost(begin, end)
                return
            yield from self._whole_blocks(file, begin, end.position)

    def is_done(self, end: FilePosition) -> bool:
        """Whether the file that is there was read up to its end."""
        try:
            with self.path.open("rb") as file:
                return self._identity(file) == end.file and _size(file) == end.position
        except FileNotFoundError:
            return False

    def _identity(self, file: BinaryIO) -> str:
        status = os.fstat(file.fileno())
        # The number of a deleted file is soon that of another; a complete file does not change.
        return f"{status.st_ino}:{status.st_mtime_ns}" if self.is_whole else str(status.st_ino)

    def _named(self, identity: str) -> Path | None:
        """The file with this identity: the one with the name, or one that was renamed."""
        try:
            with self.path.open("rb") as file:
                if identity in ("", self._identity(file)):
                    return self.path
        except FileNotFoundError:
            pass
        return self._renamed(identity)

    def _replaced(self, start: FilePosition | None) -> Path | None:
        """Where the file of `start` is, if another one has its name now."""
        if start is None or not start.file or self.is_whole:
            return None
        found = self._named(start.file)
        return None if found == self.path else found

    def _renamed(self, identity: str) -> Path | None:
        """Log files are rotated by renaming within the folder: `app.log` becomes `app.log.1`."""
        if not identity or not self.path.parent.is_dir():
            return None
        number = int(identity.partition(":")[0])
        for entry in os.scandir(self.path.parent):
            if entry.inode() == number and entry.name.startswith(self.path.name):
                with Path(entry.path).open("rb") as file:
                    if self._identity(file) == identity:
                        return Path(entry.path)
        return None

    def _scan(self, path: Path, begin: int, limit: int) -> int:
        with path.open("rb") as file:
            if not self._continues(file, begin):
                return begin
            return self._scan_open(file, begin, limit)

    def _scan_open(self, file: BinaryIO, begin: int, limit: int) -> int:
        """The end of the last of `limit` lines from `begin` on; `begin` if there is none."""
        end = place = begin
        is_quoted = False
        size = _size(file)
        file.seek(begin)
        while limit > 0 and (block := file.read(min(BLOCK_BYTES, size - place))):
            ends, is_quoted = self._line_ends(block, is_quoted)
            if len(ends):
                last = min(limit, len(ends))
                end = place + int(ends[last - 1]) + 1
                limit -= last
            place += len(block)
        if self.is_whole and limit > 0 and place == size:
            return size
        return end

    def _line_ends(self, block: bytes, is_quoted: bool) -> tuple[np.ndarray, bool]:
        bytes_ = np.frombuffer(block, np.uint8)
        ends = np.flatnonzero(bytes_ == ord("\n"))
        if not self.quotes:
            return ends, False
        inside = (np.cumsum(bytes_ == ord('"')) + is_quoted) & 1
        return ends[inside[ends] == 0], bool(inside[-1])

    def _whole_blocks(self, file: BinaryIO, begin: int, end: int) -> Iterator[bytes]:
        place = begin
        rest = b""
        is_quoted = False
        file.seek(begin)
        while place < end and (block := file.read(min(BLOCK_BYTES, end - place))):
            place += len(block)
            if place == end:
                rest += block
                break
            ends, is_quoted = self._line_ends(block, is_quoted)
            if len(ends) == 0:
                rest += block
                continue
            cut = int(ends[-1]) + 1
            yield rest + block[:cut]
            rest = block[cut:]
        if rest:
            yield rest

    def _continues(self, file: BinaryIO, position: int) -> bool:
        """Whether a range can begin or end here; not so if the file was truncated, even if it was
        written again since."""
        if self.is_whole:
            return _size(file) >= position
        return position == 0 or os.pread(file.fileno(), 1, position - 1) == b"\n"

    def _warn_lost(self, begin: int, end: FilePosition) -> None:
        _log.warning(
            "%s was truncated, replaced or deleted before its bytes %d to %d were read; "
            "they are lost",
            self.path,
            begin,
            end.position,
        )


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def lines(block: bytes) -> pa.StringArray:
    """The lines of a block without their ends; bytes that are not UTF-8 are replaced."""
    text = pa.scalar(block[:-1] if block.endswith(b"\n") else block, pa.binary())
    try:
        text = text.cast(pa.string())
    except pa.ArrowInvalid:
        text = pa.scalar(text.as_py().decode(errors="replace"))
    found = pc.split_pattern(text, "\n").values
    return pc.replace_substring_regex(found, "\r$", "") if b"\r" in block else found
