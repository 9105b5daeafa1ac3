"""The small text files of a data folder: offsets by partition, epochs, topic ids, identity.

    recovery-point-offset-checkpoint, log-start-offset-checkpoint, replication-offset-checkpoint,
    cleaner-offset-checkpoint
        0                             version
        2                             number of lines that follow
        orders 0 1234                 topic, partition, offset
    leader-epoch-checkpoint           the same with `epoch start_offset`
    partition.metadata                `version: 0` and `topic_id: <url-safe base64>`
    meta.properties                   name=value, the broker's identity
    moved-from                        in a partition's folder: it replaces the one at that path
    .kafka_cleanshutdown              a JSON object; its presence says that the stop was clean

Every one is replaced as a whole (`disk.replace_file`). A file that cannot be read is treated as
missing: the caller then recovers without it.
"""

import logging
import uuid
from collections.abc import Mapping
from itertools import pairwise

from headrace.disk import Disk, read_file, replace_file, write_file
from headrace.types import TopicPartition, decode_uuid, encode_uuid

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANED_TO = "cleaner-offset-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
MOVED_FROM = "moved-from"

_log = logging.getLogger("headrace.log")


class CorruptCheckpoint(ValueError):
    """A malformed checkpoint file."""


def encode_lines(lines: list[str]) -> bytes:
    """A checkpoint file of version 0 with these lines."""
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def decode_lines(data: bytes, words: int) -> list[list[str]]:
    """The lines of a checkpoint of version 0, each split into exactly `words` words."""
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint("it is not text") from error
    if len(lines) < 2 or lines[0].strip() != "0" or not lines[1].strip().isdecimal():
        raise CorruptCheckpoint("it does not begin with version 0 and a count")
    rows = [line.split() for line in lines[2:] if line.strip()]
    if len(rows) != int(lines[1]) or any(len(row) != words for row in rows):
        raise CorruptCheckpoint(f"it does not have {lines[1].strip()} lines of {words} words")
    return rows


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int] | None:
    """Offsets by partition; None if the file is missing or damaged (the log says which)."""
    try:
        rows = decode_lines(read_file(disk, path), 3)
        return {TopicPartition(topic, int(index)): int(offset) for topic, index, offset in rows}
    except FileNotFoundError:
        return None
    except ValueError as error:
        _log.warning("%s is ignored because %s; it will be rewritten", path, error)
        return None


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace an offset checkpoint."""
    rows = [f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items()]
    replace_file(disk, path, encode_lines(rows))


def read_epochs(disk: Disk, path: str) -> tuple[tuple[int, int], ...] | None:
    """(epoch, start offset) entries; None if the file is damaged, empty if there is none."""
    try:
        rows = decode_lines(read_file(disk, path), 2)
        entries = tuple((int(epoch), int(start)) for epoch, start in rows)
    except FileNotFoundError:
        return ()
    except ValueError as error:
        _log.warning("%s is rebuilt from the log because %s", path, error)
        return None
    for (epoch, start), (next_epoch, next_start) in pairwise(entries):
        if epoch >= next_epoch or start > next_start:
            _log.warning("%s is rebuilt from the log because its epochs do not increase", path)
            return None
    return entries


def write_epochs(disk: Disk, path: str, entries: tuple[tuple[int, int], ...]) -> None:
    """Replace a leader epoch checkpoint."""
    replace_file(disk, path, encode_lines([f"{epoch} {start}" for epoch, start in entries]))


def write_topic_id(disk: Disk, path: str, topic_id: uuid.UUID) -> None:
    """Write a new partition.metadata; unsynced, since creating 10,000 partitions must be cheap."""
    text = f"version: 0\ntopic_id: {encode_uuid(topic_id)}"
    write_file(disk, path, text.encode(), sync=False)


def read_topic_id(disk: Disk, path: str) -> uuid.UUID | None:
    """The topic id of a partition folder, or None if the file is missing or damaged."""
    try:
        text = read_file(disk, path).decode()
        fields = dict(line.split(": ", 1) for line in text.splitlines() if line)
        return decode_uuid(fields["topic_id"].strip())
    except FileNotFoundError:
        return None
    except (ValueError, KeyError):
        _log.warning("%s has no topic id and is ignored", path)
        return None


def read_properties(disk: Disk, path: str) -> dict[str, str] | None:
    """A properties file's pairs, or None if there is no file."""
    try:
        text = read_file(disk, path).decode()
    except FileNotFoundError:
        return None
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, value in pairs}


def write_properties(disk: Disk, path: str, properties: Mapping[str, str]) -> None:
    """Replace a properties file."""
    text = "".join(f"{name}={value}\n" for name, value in sorted(properties.items()))
    replace_file(disk, path, text.encode())
