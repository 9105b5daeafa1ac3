"""Replaces segments by their compacted files, safely across a crash.

    1. 0.log.cleaned  ->  0.log.swap       and the indexes; the last rename makes the swap effective
    2. 0.log          ->  0.log.deleted    all files of all the old segments
    3. 0.log.swap     ->  0.log            and the indexes

After a crash, opening the log undoes an incomplete step 1 and completes the swap otherwise,
exactly as Apache Kafka does, so that each can open the other's folders. The swap consists of a few
renames, which are fast enough for the event loop; the new files are synced before.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headrace.disk import READ_ONLY, Disk
from headrace.log.segment import Segment
from headrace.log.segment_files import (
    CLEANED,
    INDEX,
    LOG,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    linking,
    remove_if_there,
    segment_path,
)
from headrace.log.snapshots import remove_snapshots
from headrace.wire.batch import HEADER_BYTES, read_header

if TYPE_CHECKING:
    from headrace.log.log import Log

_OFFSET_DIGITS = 20
_FILES = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)

_logger = logging.getLogger("headrace.log")


def put_in_place(log: "Log", old: Sequence[Segment], size: int, aborted: Iterable[int]) -> None:
    """Replace the adjacent segments `old` of a log by their compacted files.

    `size` is that of the new log file, `aborted` are the markers of the transactions in its
    index. Readers of an old file keep it open. KafkaError 56 if the disk fails.
    """
    segments = log.segments
    following = segments[segments.index(old[-1]) + 1]
    base = old[0].base_offset
    fresh = Segment(log.disk, log.folder, base, size, log.settings.index_interval_bytes)
    fresh.seal()
    with linking:
        try:
            garbage = swap_files(log.disk, old)
            remove_snapshots(log.disk, log.folder, [segment.base_offset for segment in old[1:]])
        except OSError as error:
            raise log.availability.fail(f"compacting {log.folder} failed: {error}") from error
        log.segments.exchange(old, fresh)
    log.durability.names = True
    if log.owner is not None:
        log.owner.removal.remove_later(garbage, log.settings.file_delete_delay_ms)
    log.transactions.keep_only(base, following.base_offset, aborted)


def swap_files(disk: Disk, old: Sequence[Segment]) -> list[str]:
    """Replace all by the `.cleaned` files of the first segment; the files to remove."""
    folder, base = old[0].files.folder, old[0].base_offset
    _rename(disk, folder, base, CLEANED, SWAP)
    garbage: list[str] = []
    for segment in old:
        garbage += segment.files.rename_deleted()
        segment.release()
    _rename(disk, folder, base, SWAP, "")
    return garbage


def _rename(disk: Disk, folder: str, base: int, old: str, new: str) -> None:
    for suffix in _FILES:
        path = segment_path(folder, base, suffix)
        try:
            disk.rename(path + old, path + new)
        except FileNotFoundError:
            # Only segments with aborted transactions have an index of them.
            if suffix != TRANSACTION_INDEX:
                raise


def remove_cleaned(disk: Disk, folder: str) -> None:
    """Remove the unused files of a compaction."""
    try:
        names = disk.list_folder(folder)
    except FileNotFoundError:
        return  # its topic was deleted
    for name in names:
        if name.endswith(CLEANED):
            remove_if_there(disk, f"{folder}/{name}")


def settle(disk: Disk, folder: str, names: Sequence[str]) -> list[str]:
    """Complete or undo a swap that was interrupted; the names in the folder afterwards."""
    left = [name for name in names if name.endswith((CLEANED, SWAP))]
    if not left:
        return [*names]
    kept = {*names}
    strays = [name for name in left if not name[:_OFFSET_DIGITS].isdecimal()]
    cleaned = [name for name in left if name.endswith(CLEANED) and name not in strays]
    swapped = [name for name in left if name.endswith(SWAP) and name not in strays]
    # A swap whose files are not all renamed did not take effect.
    first_cleaned = min((_offset(name) for name in cleaned), default=None)
    if first_cleaned is not None:
        cleaned += [name for name in swapped if _offset(name) >= first_cleaned]
    for name in [*strays, *cleaned]:
        remove_if_there(disk, f"{folder}/{name}")
        kept.discard(name)
    valid = [name for name in swapped if name in kept]
    if valid:
        _logger.info("%s: finishing a compaction that was interrupted", folder)
    for name in _replaced(disk, folder, valid, kept):
        remove_if_there(disk, f"{folder}/{name}")
        kept.discard(name)
    # The log file first: what it says goes must not be the new indexes, if this is interrupted.
    for name in sorted(valid, key=lambda name: not name.endswith(LOG + SWAP)):
        final = name.removesuffix(SWAP)
        disk.rename(f"{folder}/{name}", f"{folder}/{final}")
        kept.discard(name)
        kept.add(final)
    disk.sync_folder(folder)
    return [*kept]


def _replaced(disk: Disk, folder: str, swapped: Sequence[str], names: set[str]) -> list[str]:
    """The files of the segments that the swapped ones replace."""
    ranges = []
    for name in swapped:
        if name.endswith(LOG + SWAP):
            base = _offset(name)
            ranges.append((base, _end_offset(disk, f"{folder}/{name}", base)))
    return [
        name
        for name in names
        if not name.endswith(SWAP)
        and name[:_OFFSET_DIGITS].isdecimal()
        and any(first <= _offset(name) < end for first, end in ranges)
    ]


def _offset(name: str) -> int:
    return int(name.partition(".")[0])


def _end_offset(disk: Disk, path: str, base: int) -> int:
    """The offset after the last batch of a segment file, and after `base`."""
    fd = disk.open(path, READ_ONLY)
    try:
        size, position, end = disk.size(fd), 0, base + 1
        while position + HEADER_BYTES <= size:
            header = read_header(disk.pread(fd, HEADER_BYTES, position), 0)
            end = header.next_offset
            position += header.size_bytes
        return end
    finally:
        disk.close(fd)
