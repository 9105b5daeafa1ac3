"""Keys and values of `__share_group_state` in Kafka's own format.

A key is its type as an int16, the group id with an int16 length, the topic id, and the partition as
an int32. Type 0 is a snapshot of the state of a share partition, type 1 an update since then.

    value 0    version int16 | snapshot epoch int32 | state epoch int32 | leader epoch int32 |
               start offset int64 | created int64 | written int64 | batches | tagged fields
    value 1    version int16 | snapshot epoch int32 | leader epoch int32 | start offset int64 |
               batches | tagged fields
    batch      first offset int64 | last offset int64 | state int8 | deliveries int16 | tags

The number of batches is a variable-length integer, one more than it is. The tagged field 0 of both
values is the number of completed offsets after the start offset, an int32.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from headrace.coordination.records import UnknownRecord
from headrace.coordination.shares.delivery import DeliveryState, StateBatch
from headrace.wire.varint import read_uvarint, skip_tagged_fields, uvarint

SNAPSHOT, UPDATE = 0, 1
NOT_COUNTED = -1
"""The number of completed offsets in records that do not have it."""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_SNAPSHOT = struct.Struct(">hiiiqqq")
_UPDATE = struct.Struct(">hiiq")
_BATCH = struct.Struct(">qqbh")
_COUNT_TAG = b"\x01\x00\x04"
_NO_TAGS = b"\0"


class SharePartitionKey(NamedTuple):
    """A partition of a share group."""

    group_id: str
    topic_id: uuid.UUID
    partition: int

    def encode_as(self, kind: int) -> bytes:
        """The key of a record of this type."""
        group = self.group_id.encode()
        tail = self.topic_id.bytes + _INT32.pack(self.partition)
        return _INT16.pack(kind) + _INT16.pack(len(group)) + group + tail


@dataclass(frozen=True, slots=True)
class ShareSnapshotKey:
    """Type 0."""

    of: SharePartitionKey

    def encode(self) -> bytes:
        """As the log holds it."""
        return self.of.encode_as(SNAPSHOT)


@dataclass(frozen=True, slots=True)
class ShareUpdateKey:
    """Type 1."""

    of: SharePartitionKey

    def encode(self) -> bytes:
        """As the log holds it."""
        return self.of.encode_as(UPDATE)


@dataclass(frozen=True, slots=True)
class ShareSnapshot:
    """The whole state of a share partition."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start: int
    created_ms: int
    written_ms: int
    batches: tuple[StateBatch, ...]
    complete_count: int = NOT_COUNTED

    def encode(self) -> bytes:
        """As the log holds it."""
        head = _SNAPSHOT.pack(
            0, self.snapshot_epoch, self.state_epoch, self.leader_epoch, self.start,
            self.created_ms, self.written_ms,
        )  # fmt: skip
        return head + _batches(self.batches) + _count(self.complete_count)


@dataclass(frozen=True, slots=True)
class ShareUpdate:
    """Batches that have changed since the snapshot."""

    snapshot_epoch: int
    leader_epoch: int
    start: int
    batches: tuple[StateBatch, ...]
    complete_count: int = NOT_COUNTED

    def encode(self) -> bytes:
        """As the log holds it."""
        head = _UPDATE.pack(0, self.snapshot_epoch, self.leader_epoch, self.start)
        return head + _batches(self.batches) + _count(self.complete_count)


def decode_key(key: bytes) -> tuple[int, SharePartitionKey]:
    """The type of a record and its share partition; UnknownRecord if it has another form."""
    try:
        kind, size = struct.unpack_from(">hh", key)
        if kind not in (SNAPSHOT, UPDATE):
            raise UnknownRecord(f"a record of type {kind}")
        group = key[4 : 4 + size].decode()
        topic_id = uuid.UUID(bytes=bytes(key[4 + size : 20 + size]))
        (partition,) = _INT32.unpack_from(key, 20 + size)
    except (struct.error, ValueError) as error:
        raise UnknownRecord(f"a key of share state: {error}") from error
    return kind, SharePartitionKey(group, topic_id, partition)


def decode_snapshot(value: bytes) -> ShareSnapshot:
    """The value of a snapshot; UnknownRecord if it cannot be read."""
    try:
        version, *fields = _SNAPSHOT.unpack_from(value)
        _check_version(version)
        batches, pos = _read_batches(value, _SNAPSHOT.size)
        snapshot, state, leader, start, created_ms, written_ms = fields
        return ShareSnapshot(
            snapshot, state, leader, start, created_ms, written_ms, batches, _read_count(value, pos)
        )
    except (struct.error, IndexError, ValueError) as error:
        raise UnknownRecord(f"a snapshot of share state: {error}") from error


def decode_update(value: bytes) -> ShareUpdate:
    """The value of an update; UnknownRecord if it cannot be read."""
    try:
        version, *fields = _UPDATE.unpack_from(value)
        _check_version(version)
        batches, pos = _read_batches(value, _UPDATE.size)
        snapshot, leader, start = fields
        return ShareUpdate(snapshot, leader, start, batches, _read_count(value, pos))
    except (struct.error, IndexError, ValueError) as error:
        raise UnknownRecord(f"an update of share state: {error}") from error


def _check_version(version: int) -> None:
    if version != 0:
        raise UnknownRecord(f"share state in version {version}")


def _batches(batches: Iterable[StateBatch]) -> bytes:
    rows = [_BATCH.pack(*batch) + _NO_TAGS for batch in batches]
    return uvarint(len(rows) + 1) + b"".join(rows)


def _read_batches(value: bytes, pos: int) -> tuple[tuple[StateBatch, ...], int]:
    size, pos = read_uvarint(value, pos)
    batches = []
    for _ in range(size - 1):
        first, last, state, count = _BATCH.unpack_from(value, pos)
        batches.append(StateBatch(first, last, DeliveryState(state), count))
        pos = skip_tagged_fields(value, pos + _BATCH.size)
    return tuple(batches), pos


def _count(complete_count: int) -> bytes:
    return _NO_TAGS if complete_count == NOT_COUNTED else _COUNT_TAG + _INT32.pack(complete_count)


def _read_count(value: bytes, pos: int) -> int:
    tags, pos = read_uvarint(value, pos)
    for _ in range(tags):
        tag, pos = read_uvarint(value, pos)
        size, pos = read_uvarint(value, pos)
        if tag == 0:
            count: int = _INT32.unpack_from(value, pos)[0]
            return count
        pos += size
    return NOT_COUNTED
