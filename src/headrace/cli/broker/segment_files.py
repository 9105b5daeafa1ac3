"""Reads the files of a partition's folder, without changes and without locks.

    .log          record batches, in the layout of `wire/batch.py`
    .index        relative offset int32, position int32
    .timeindex    timestamp int64, relative offset int32
    .txnindex     version int16, producer id int64, first, last and last stable offset int64
    .snapshot     version int16, crc uint32, count int32, then the producers
    *-checkpoint  text: version, count, then one line per entry
    partition.metadata, meta.properties    text: name and value

Relative offsets count from the offset in the file's name. Each reader yields entries as mappings,
ready for display; the field "problem" describes what is wrong with an entry.
"""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from headrace.admin import record_text
from headrace.cli.failures import bad_usage
from headrace.disk import Mapped, RealDisk

if TYPE_CHECKING:
    from headrace.wire.batch import Header

Entry: TypeAlias = dict[str, object]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONTROL_TYPES = {0: "abort", 1: "commit"}
MAX_DECOMPRESSED_BYTES = 256 << 20

_INDEX = struct.Struct(">ii")
_TIME_INDEX = struct.Struct(">qi")
_TRANSACTION_INDEX = struct.Struct(">hqqqq")
_SNAPSHOT_HEAD = struct.Struct(">hIi")
_PRODUCER = struct.Struct(">qhiqiqiq")
_BATCH_START = struct.Struct(">qi11xi")
_CONTROL_KEY = struct.Struct(">hh")


def read(path: Path, *, records: bool) -> Iterator[Entry]:
    """Read the entries of a file; its name determines its type."""
    reader = _reader(path, records=records)
    if path.is_dir():
        raise bad_usage(f"cannot read {path}: it is a folder")
    try:
        data = RealDisk().map_file(str(path))
    except (FileNotFoundError, PermissionError) as error:
        raise bad_usage(f"cannot read {path}: {error.strerror}") from None
    if len(data):
        yield from reader(data)


def _reader(path: Path, *, records: bool) -> Callable[[Mapped], Iterator[Entry]]:
    name = path.name.removesuffix(".deleted")
    suffix = name[name.rfind(".") :] if "." in name else ""
    if suffix == ".log":
        return lambda data: batches(data, records=records)
    if suffix == ".index":
        return lambda data: offset_index(data, _base(path), path.with_suffix(".log"))
    if suffix == ".timeindex":
        return lambda data: time_index(data, _base(path))
    if suffix == ".txnindex":
        return transaction_index
    if suffix == ".snapshot":
        return snapshot
    if name.endswith("-checkpoint"):
        return lambda data: checkpoint(data, epochs=name.startswith("leader-epoch"))
    if name in ("partition.metadata", "meta.properties"):
        return properties
    raise bad_usage(
        f"{path.name} is not a file of a partition's log",
        "Known: .log .index .timeindex .txnindex .snapshot *-checkpoint partition.metadata "
        "meta.properties",
    )


def _base(path: Path) -> int:
    stem = path.name.split(".")[0]
    if not stem.isdecimal():
        raise bad_usage(f"{path.name}: the name must begin with the segment's first offset")
    return int(stem)


def batches(data: Mapped, *, records: bool) -> Iterator[Entry]:
    """The batches of a log file with their checksums verified, and optionally their records."""
    from headrace.wire import batch

    position, size, expected = 0, len(data), 0
    view = memoryview(data)
    try:
        while position < size:
            end = _batch_end(data, position)
            if end is None:
                yield {
                    "kind": "batch",
                    "position": position,
                    "problem": f"the last {size - position} bytes are not a whole batch",
                }
                return
            header = batch.read_header(view, position)
            entry = _batch(header, view, position, end, expected)
            yield entry
            if records and "problem" not in entry:
                yield from _records(
                    view, position, end, control=bool(header.attributes & batch.CONTROL)
                )
            expected = header.next_offset
            position = end
    finally:
        view.release()


def _batch_end(data: Mapped, position: int) -> int | None:
    """The end of the batch at `position`; None if it is past the end of the file."""
    from headrace.wire import batch

    if len(data) - position < batch.HEADER_BYTES:
        return None
    (length,) = struct.unpack_from(">i", data, position + 8)
    end = position + batch.OVERHEAD + int(length)
    return end if batch.HEADER_BYTES <= end - position <= len(data) - position else None


def _batch(header: "Header", view: memoryview, position: int, end: int, expected: int) -> Entry:
    from headrace.wire import batch
    from headrace.wire.checksum import crc32c

    attributes = header.attributes
    codec = attributes & batch.CODEC_MASK
    entry: Entry = {
        "kind": "batch",
        "position": position,
        "size": end - position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "leader_epoch": header.partition_leader_epoch,
        "magic": header.magic,
        "crc": header.crc,
        "crc_ok": crc32c(view[position + batch.CHECKSUMMED_FROM : end]) == header.crc,
        "codec": CODECS[codec] if codec < len(CODECS) else f"unknown ({codec})",
        "timestamp_type": "LogAppendTime" if attributes & batch.LOG_APPEND_TIME else "CreateTime",
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": bool(attributes & batch.TRANSACTIONAL),
        "control": bool(attributes & batch.CONTROL),
    }
    if header.magic != batch.MAGIC:
        entry["problem"] = f"magic {header.magic} is not {batch.MAGIC}"
    elif not entry["crc_ok"]:
        entry["problem"] = "the CRC does not match"
    elif header.base_offset < expected:
        entry["problem"] = f"offset {header.base_offset} after {expected - 1}"
    return entry


def _records(view: memoryview, start: int, end: int, *, control: bool) -> Iterator[Entry]:
    from headrace.errors import KafkaError
    from headrace.wire.records import iterate

    try:
        for record in iterate(view, start, end, MAX_DECOMPRESSED_BYTES):
            entry: Entry = {
                "kind": "record",
                "offset": record.offset,
                "timestamp": record.timestamp,
                **record_text.json_field("key", record.key),
                **record_text.json_field("value", record.value),
                "headers": record_text.json_headers(record.headers),
            }
            if control and record.key is not None and len(record.key) >= _CONTROL_KEY.size:
                number = _CONTROL_KEY.unpack_from(record.key)[1]
                entry["control"] = CONTROL_TYPES.get(number, f"type {number}")
            yield entry
    except KafkaError as error:
        yield {"kind": "record", "problem": error.message}


def offset_index(data: Mapped, base: int, log: Path) -> Iterator[Entry]:
    """Entries of an .index; checked against the log file if it is in the same folder."""
    last_relative, last_position = -1, -1
    starts = _batch_starts(log)
    for at in range(0, len(data) - _INDEX.size + 1, _INDEX.size):
        relative, position = _INDEX.unpack_from(data, at)
        if (relative, position) == (0, 0):
            return  # The rest is preallocated: no entry points to the start of the log.
        entry: Entry = {"kind": "index", "offset": base + relative, "position": position}
        if relative <= last_relative or position <= last_position:
            entry["problem"] = "not after the entry before it"
        elif starts is not None and position not in starts:
            entry["problem"] = "no batch begins at this position"
        elif starts is not None:
            first, last = starts[position]
            if not first <= base + relative <= last:
                entry["problem"] = f"the batch at this position has offsets {first} to {last}"
        last_relative, last_position = relative, position
        yield entry


def _batch_starts(log: Path) -> dict[int, tuple[int, int]] | None:
    if not log.exists():
        return None
    found: dict[int, tuple[int, int]] = {}
    data = RealDisk().map_file(str(log))
    position = 0
    while len(data) - position >= _BATCH_START.size:
        base, length, delta = _BATCH_START.unpack_from(data, position)
        if length < 49:
            break
        found[position] = (base, base + delta)
        position += 12 + length
    return found


def time_index(data: Mapped, base: int) -> Iterator[Entry]:
    """Entries of a .timeindex."""
    previous = -1
    for at in range(0, len(data) - _TIME_INDEX.size + 1, _TIME_INDEX.size):
        timestamp, relative = _TIME_INDEX.unpack_from(data, at)
        if (timestamp, relative) == (0, 0):
            return
        entry: Entry = {"kind": "time", "timestamp": timestamp, "offset": base + relative}
        if timestamp < previous:
            entry["problem"] = "older than the entry before it"
        previous = timestamp
        yield entry


def transaction_index(data: Mapped) -> Iterator[Entry]:
    """Aborted transactions of a .txnindex."""
    names = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")
    for at in range(0, len(data) - _TRANSACTION_INDEX.size + 1, _TRANSACTION_INDEX.size):
        fields = _TRANSACTION_INDEX.unpack_from(data, at)
        yield {"kind": "aborted", **dict(zip(names, fields, strict=True))}


def snapshot(data: Mapped) -> Iterator[Entry]:
    """Producers of a .snapshot, after a check of its checksum."""
    from headrace.wire.checksum import crc32c

    if len(data) < _SNAPSHOT_HEAD.size:
        yield {"kind": "producer", "problem": "shorter than its header"}
        return
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if crc32c(data[6:]) != crc:
        yield {"kind": "producer", "problem": "the CRC does not match"}
        return
    if version != 1 or _SNAPSHOT_HEAD.size + count * _PRODUCER.size != len(data):
        yield {"kind": "producer", "problem": f"version {version}, {count} entries: unknown layout"}
        return
    for at in range(_SNAPSHOT_HEAD.size, len(data), _PRODUCER.size):
        producer, epoch, sequence, offset, delta, timestamp, coordinator, first = (
            _PRODUCER.unpack_from(data, at)
        )
        yield {
            "kind": "producer",
            "producer_id": producer,
            "epoch": epoch,
            "last_sequence": sequence,
            "last_batch_offset": offset - delta,
            "last_offset": offset,
            "timestamp": timestamp,
            "coordinator_epoch": coordinator,
            "open_transaction_from": None if first < 0 else first,
        }


def checkpoint(data: Mapped, *, epochs: bool) -> Iterator[Entry]:
    """Lines of a checkpoint, and a check of their number."""
    lines = bytes(data[:]).decode("utf-8", "replace").split("\n")
    body = [line for line in lines[2:] if line.strip()]
    names = ("epoch", "start_offset") if epochs else ("topic", "partition", "offset")
    for line in body:
        words = line.split()
        if len(words) != len(names) or not all(w.lstrip("-").isdecimal() for w in words[-2:]):
            yield {"kind": "checkpoint", "problem": f"expected {' '.join(names)}, found {line!r}"}
            continue
        values: list[object] = [*words[:-2], int(words[-2]), int(words[-1])]
        yield {"kind": "checkpoint", **dict(zip(names, values, strict=True))}
    stated = lines[1].strip() if len(lines) > 1 else ""
    if stated != str(len(body)):
        yield {
            "kind": "checkpoint",
            "problem": f"the header says {stated!r} entries, but there are {len(body)}",
        }


def properties(data: Mapped) -> Iterator[Entry]:
    """Names and values."""
    for line in bytes(data[:]).decode("utf-8", "replace").splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, value = line.replace("=", ":", 1).partition(":")
            yield {"kind": "property", "name": name.strip(), "value": value.strip()}
