"""Keys and values of `__consumer_offsets` in Kafka's own format: offsets and classic groups.

A key begins with its type as an int16, a value with its version; strings have an int16 length
before them, byte strings and arrays an int32, all big-endian. From value version 4 on lengths are
variable-length integers, one more than the length, and tagged fields follow each structure.

    key 0, 1   OffsetCommit     group, topic, partition int32
      value    offset int64, leader epoch int32 (3+), metadata, commit time int64,
               expiry time int64 (1 only)
    key 2      GroupMetadata    group
      value    protocol type, generation int32, protocol?, leader?, state time int64 (2+), members:
               member id, instance id? (3+), client id, host, rebalance timeout int32 (1+),
               session timeout int32, subscription bytes, assignment bytes

We write value version 3 of both, as Kafka 4 does, and read versions 0 to 4. The records of the
consumer protocol are in `consumer_records.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.coordination.outcome import Key, Value
from headrace.wire.varint import read_uvarint, skip_tagged_fields

OFFSET_COMMIT = 1
GROUP_METADATA = 2
WRITTEN_VERSION = 3
FLEXIBLE_FROM = 4

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class UnknownRecord(ValueError):
    """A record of an unknown type or version, or a malformed one."""


class _Reader:
    """Reads the fields of a key or value one after the other."""

    __slots__ = ("data", "flexible", "pos")

    def __init__(self, data: bytes, pos: int = 0, flexible: bool = False) -> None:
        self.data = data
        self.pos = pos
        self.flexible = flexible

    def _number(self, form: struct.Struct) -> int:
        pos = self.pos
        self.pos = pos + form.size
        value: int = form.unpack_from(self.data, pos)[0]
        return value

    def int32(self) -> int:
        """A signed number of four bytes."""
        return self._number(_INT32)

    def int64(self) -> int:
        """A signed number of eight bytes."""
        return self._number(_INT64)

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        if count < 0 or self.pos + count > len(self.data):
            raise UnknownRecord(f"a field of {count} bytes does not fit into the record")
        self.pos += count
        return self.data[self.pos - count : self.pos]

    def _length(self, form: struct.Struct) -> int:
        if not self.flexible:
            return self._number(form)
        value, self.pos = read_uvarint(self.data, self.pos)
        return value - 1

    def nullable_string(self) -> str | None:
        """A string, or None."""
        length = self._length(_INT16)
        return None if length == -1 else self.take(length).decode()

    def string(self) -> str:
        """A string."""
        return self.nullable_string() or ""

    def blob(self) -> bytes:
        """A byte string."""
        length = self._length(_INT32)
        return b"" if length == -1 else self.take(length)

    def count(self) -> int:
        """The number of elements of the array that begins here."""
        count = self._length(_INT32)
        if count > len(self.data) - self.pos:
            raise UnknownRecord(f"an array of {count} elements exceeds its record")
        return max(count, 0)

    def end_of_struct(self) -> None:
        """Skip the tagged fields at the end of a flexible structure."""
        if self.flexible:
            self.pos = skip_tagged_fields(self.data, self.pos)


class _Writer(bytearray):
    """Writes the fields of a key or value one after the other; begins with its version."""

    def __init__(self, version: int) -> None:
        super().__init__(_INT16.pack(version))

    def int32(self, value: int) -> _Writer:
        """A signed number of four bytes; also the head of an array."""
        self += _INT32.pack(value)
        return self

    def int64(self, value: int) -> _Writer:
        """A signed number of eight bytes."""
        self += _INT64.pack(value)
        return self

    def string(self, text: str | None) -> _Writer:
        """A string, or None."""
        data = b"" if text is None else text.encode()
        self += _INT16.pack(-1 if text is None else len(data))
        self += data
        return self

    def blob(self, data: bytes) -> _Writer:
        """A byte string."""
        self += _INT32.pack(len(data))
        self += data
        return self


# --- Offsets --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetCommitKey:
    """The group and the partition of an offset."""

    group_id: str
    topic: str
    partition: int

    def encode(self) -> bytes:
        """As the log holds it."""
        group, topic = self.group_id.encode(), self.topic.encode()
        form = f">hh{len(group)}sh{len(topic)}si"
        return struct.pack(
            form, OFFSET_COMMIT, len(group), group, len(topic), topic, self.partition
        )


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """A committed offset."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1

    def encode(self) -> bytes:
        """As the log holds it."""
        metadata = self.metadata.encode()
        return struct.pack(
            f">hqih{len(metadata)}sq",
            WRITTEN_VERSION, self.offset, self.leader_epoch, len(metadata), metadata,
            self.commit_ms,
        )  # fmt: skip


def _offset_key(read: _Reader) -> OffsetCommitKey:
    return OffsetCommitKey(read.string(), read.string(), read.int32())


def _offset_value(read: _Reader, version: int) -> OffsetCommit:
    offset = read.int64()
    epoch = read.int32() if version >= 3 else -1
    metadata, committed = read.string(), read.int64()
    return OffsetCommit(offset, epoch, metadata, committed, read.int64() if version == 1 else -1)


# --- Classic groups -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupMetadataKey:
    """The group."""

    group_id: str

    def encode(self) -> bytes:
        """As the log holds it."""
        return bytes(_Writer(GROUP_METADATA).string(self.group_id))


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """A member of a classic group, with what the leader assigned to it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A generation of a classic group."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    members: tuple[MemberMetadata, ...]

    def encode(self) -> bytes:
        """As the log holds it."""
        out = _Writer(WRITTEN_VERSION)
        out.string(self.protocol_type).int32(self.generation)
        out.string(self.protocol).string(self.leader).int64(self.state_ms).int32(len(self.members))
        for member in self.members:
            out.string(member.member_id).string(member.instance_id)
            out.string(member.client_id).string(member.client_host)
            out.int32(member.rebalance_timeout_ms).int32(member.session_timeout_ms)
            out.blob(member.subscription).blob(member.assignment)
        return bytes(out)


def _group_key(read: _Reader) -> GroupMetadataKey:
    return GroupMetadataKey(read.string())


def _group_value(read: _Reader, version: int) -> GroupMetadata:
    protocol_type, generation = read.string(), read.int32()
    protocol, leader = read.nullable_string(), read.nullable_string()
    state_ms = read.int64() if version >= 2 else -1
    members = tuple([_member(read, version) for _ in range(read.count())])
    return GroupMetadata(protocol_type, generation, protocol, leader, state_ms, members)


def _member(read: _Reader, version: int) -> MemberMetadata:
    member_id = read.string()
    instance_id = read.nullable_string() if version >= 3 else None
    client_id, client_host = read.string(), read.string()
    rebalance_ms = read.int32() if version >= 1 else -1
    session_ms = read.int32()
    member = MemberMetadata(
        member_id,
        instance_id,
        client_id,
        client_host,
        session_ms if rebalance_ms == -1 else rebalance_ms,
        session_ms,
        read.blob(),
        read.blob(),
    )
    read.end_of_struct()
    return member


# --- Any record -----------------------------------------------------------------------------------

_READERS: Mapping[int, tuple[Callable[[_Reader], Key], Callable[[_Reader, int], Value]]] = {
    0: (_offset_key, _offset_value),
    OFFSET_COMMIT: (_offset_key, _offset_value),
    GROUP_METADATA: (_group_key, _group_value),
}


def decode(key: bytes, value: bytes | None) -> tuple[Key, Value | None]:
    """The key and value of a record; UnknownRecord if they are neither offset nor classic group."""
    try:
        kind = _INT16.unpack_from(key)[0]
        if kind not in _READERS:
            raise UnknownRecord(f"a record of type {kind}")
        read_key, read_value = _READERS[kind]
        found = read_key(_Reader(key, 2))
        if value is None:
            return found, None
        version = _INT16.unpack_from(value)[0]
        return found, read_value(_Reader(value, 2, version >= FLEXIBLE_FROM), version)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise UnknownRecord(f"a record that cannot be read: {error}") from error
