"""Records of share groups (KIP-932) in `__consumer_offsets`, in Kafka's own format.

A key is its type as an int16 and then its strings, each with an int16 length:

    10  member metadata       group id, member id
    11  group metadata        group id
    12  target metadata       group id
    13  target of a member    group id, member id
    14  current assignment    group id, member id
    15  state of partitions   group id: which partitions have state in `__share_group_state`

Values are encoded as those in `consumer_records.py`.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from headrace.coordination.consumer_records import Assignment
from headrace.coordination.records import UnknownRecord
from headrace.wire.varint import read_uvarint, skip_tagged_fields, uvarint

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_VERSION_0 = b"\0\0"
_NO_TAGS = b"\0"


# ------------------------------------------------------------------------------------- keys


@dataclass(frozen=True, slots=True)
class ShareMemberKey:
    """Type 10: a member and its subscription."""

    group_id: str
    member_id: str

    def encode(self) -> bytes:
        return _key(10, self.group_id, self.member_id)


@dataclass(frozen=True, slots=True)
class ShareGroupMetadataKey:
    """Type 11: the group's epoch."""

    group_id: str

    def encode(self) -> bytes:
        return _key(11, self.group_id)


@dataclass(frozen=True, slots=True)
class ShareTargetMetadataKey:
    """Type 12: the epoch of the target assignment."""

    group_id: str

    def encode(self) -> bytes:
        return _key(12, self.group_id)


@dataclass(frozen=True, slots=True)
class ShareTargetKey:
    """Type 13: the target assignment of a member."""

    group_id: str
    member_id: str

    def encode(self) -> bytes:
        return _key(13, self.group_id, self.member_id)


@dataclass(frozen=True, slots=True)
class ShareCurrentKey:
    """Type 14: the current assignment of a member."""

    group_id: str
    member_id: str

    def encode(self) -> bytes:
        return _key(14, self.group_id, self.member_id)


@dataclass(frozen=True, slots=True)
class ShareInitializedKey:
    """Type 15: the partitions whose state is initialized."""

    group_id: str

    def encode(self) -> bytes:
        return _key(15, self.group_id)


ShareGroupKey: TypeAlias = (
    ShareMemberKey
    | ShareGroupMetadataKey
    | ShareTargetMetadataKey
    | ShareTargetKey
    | ShareCurrentKey
    | ShareInitializedKey
)


def _key(kind: int, *strings: str) -> bytes:
    out = bytearray(_INT16.pack(kind))
    for text in strings:
        raw = text.encode()
        out += _INT16.pack(len(raw)) + raw
    return bytes(out)


# ----------------------------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class ShareMemberMetadata:
    """A member and its subscription."""

    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]

    def encode(self) -> bytes:
        out = bytearray(_VERSION_0)
        for text in (self.rack_id, self.client_id, self.client_host):
            out += _text(text)
        out += uvarint(len(self.topics) + 1)
        for topic in self.topics:
            out += _text(topic)
        return bytes(out + _NO_TAGS)

    @classmethod
    def read(cls, source: _Source) -> ShareMemberMetadata:
        rack, client_id, host = source.text(), source.text(), source.text()
        topics = tuple(source.text() or "" for _ in range(source.length()))
        return cls(rack, client_id or "", host or "", topics)


@dataclass(frozen=True, slots=True)
class ShareGroupMetadata:
    """The group's epoch, and a hash of the subscribed topics at that epoch."""

    epoch: int
    metadata_hash: int = 0

    def encode(self) -> bytes:
        return _VERSION_0 + struct.pack(">iq", self.epoch, self.metadata_hash) + _NO_TAGS

    @classmethod
    def read(cls, source: _Source) -> ShareGroupMetadata:
        return cls(source.number(_INT32), source.number(_INT64))


@dataclass(frozen=True, slots=True)
class ShareTargetMetadata:
    """The group epoch that the target assignment was made for."""

    epoch: int

    def encode(self) -> bytes:
        return _VERSION_0 + _INT32.pack(self.epoch) + _NO_TAGS

    @classmethod
    def read(cls, source: _Source) -> ShareTargetMetadata:
        return cls(source.number(_INT32))


@dataclass(frozen=True, slots=True)
class ShareTarget:
    """The target assignment of a member."""

    partitions: Assignment

    def encode(self) -> bytes:
        return _VERSION_0 + _assignment(self.partitions) + _NO_TAGS

    @classmethod
    def read(cls, source: _Source) -> ShareTarget:
        return cls(source.assignment())


@dataclass(frozen=True, slots=True)
class ShareCurrent:
    """The epoch and the assignment of a member."""

    epoch: int
    previous_epoch: int
    assigned: Assignment = field(default_factory=dict)

    def encode(self) -> bytes:
        head = struct.pack(">iib", self.epoch, self.previous_epoch, 0)
        return _VERSION_0 + head + _assignment(self.assigned) + _NO_TAGS

    @classmethod
    def read(cls, source: _Source) -> ShareCurrent:
        epoch, previous = source.number(_INT32), source.number(_INT32)
        source.take(1)  # the state, which is always the same
        return cls(epoch, previous, source.assignment())


class InitializedTopic(NamedTuple):
    """The partitions of a topic that have state."""

    name: str
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class ShareInitialized:
    """The partitions whose state is initialized, by topic id."""

    topics: Mapping[uuid.UUID, InitializedTopic]

    def encode(self) -> bytes:
        # Topics that are being initialized and deleted are not stored: both are done again.
        out = bytearray(_VERSION_0 + uvarint(1) + uvarint(len(self.topics) + 1))
        for topic_id, topic in self.topics.items():
            out += topic_id.bytes + _text(topic.name) + _partitions(topic.partitions) + _NO_TAGS
        return bytes(out + uvarint(1) + _NO_TAGS)

    @classmethod
    def read(cls, source: _Source) -> ShareInitialized:
        source.topics()
        return cls(source.topics())


ShareGroupValue: TypeAlias = (
    ShareMemberMetadata
    | ShareGroupMetadata
    | ShareTargetMetadata
    | ShareTarget
    | ShareCurrent
    | ShareInitialized
)
ShareGroupRecord: TypeAlias = tuple[ShareGroupKey, ShareGroupValue | None]


class _Source:
    """Reads a value from left to right."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 2

    def take(self, count: int) -> bytes:
        raw = self.data[self.at : self.at + count]
        if len(raw) != count:
            raise ValueError(f"a field of {count} bytes exceeds its record")
        self.at += count
        return raw

    def number(self, of: struct.Struct) -> int:
        value: int = of.unpack(self.take(of.size))[0]
        return value

    def length(self) -> int:
        """The number of elements that follow; 0 for null."""
        value, self.at = read_uvarint(self.data, self.at)
        return max(value - 1, 0)

    def text(self) -> str | None:
        size, self.at = read_uvarint(self.data, self.at)
        return None if size == 0 else self.take(size - 1).decode()

    def partitions(self) -> frozenset[int]:
        count = self.length()
        return frozenset(struct.unpack(f">{count}i", self.take(4 * count)))

    def assignment(self) -> Assignment:
        found: dict[uuid.UUID, frozenset[int]] = {}
        for _ in range(self.length()):
            topic_id = uuid.UUID(bytes=bytes(self.take(16)))
            found[topic_id] = self.partitions()
            self.at = skip_tagged_fields(self.data, self.at)
        return found

    def topics(self) -> dict[uuid.UUID, InitializedTopic]:
        found: dict[uuid.UUID, InitializedTopic] = {}
        for _ in range(self.length()):
            topic_id = uuid.UUID(bytes=bytes(self.take(16)))
            name = self.text() or ""
            found[topic_id] = InitializedTopic(name, self.partitions())
            self.at = skip_tagged_fields(self.data, self.at)
        return found


_TYPES: dict[int, tuple[type[ShareGroupKey], int, Callable[[_Source], ShareGroupValue]]] = {
    10: (ShareMemberKey, 2, ShareMemberMetadata.read),
    11: (ShareGroupMetadataKey, 1, ShareGroupMetadata.read),
    12: (ShareTargetMetadataKey, 1, ShareTargetMetadata.read),
    13: (ShareTargetKey, 2, ShareTarget.read),
    14: (ShareCurrentKey, 2, ShareCurrent.read),
    15: (ShareInitializedKey, 1, ShareInitialized.read),
}
SHARE_KEY_TYPES = frozenset(_TYPES)
"""The int16 at the start of a key that belongs to this module."""


def decode(key: bytes, value: bytes) -> ShareGroupRecord:
    """A record of the log; UnknownRecord if its type or its value's version is unknown."""
    try:
        (kind,) = _INT16.unpack_from(key)
        of, count, read = _TYPES[kind]
        strings, at = [], 2
        for _ in range(count):
            (size,) = _INT16.unpack_from(key, at)
            strings.append(key[at + 2 : at + 2 + size].decode())
            at += 2 + size
        if value[:2] != _VERSION_0:
            raise UnknownRecord(f"a record of type {kind} in another version")
        return of(*strings), read(_Source(value))
    except (struct.error, IndexError, KeyError, ValueError) as error:
        raise UnknownRecord(f"a record of a share group: {error}") from error


def member_tombstones(group_id: str, member_id: str) -> list[ShareGroupRecord]:
    """Records that remove a member: its current and target assignments, and then itself."""
    return [
        (ShareCurrentKey(group_id, member_id), None),
        (ShareTargetKey(group_id, member_id), None),
        (ShareMemberKey(group_id, member_id), None),
    ]


def group_tombstones(group_id: str, member_ids: Iterable[str]) -> list[ShareGroupRecord]:
    """Records that remove a whole group, members first."""
    records = [one for member in member_ids for one in member_tombstones(group_id, member)]
    records.append((ShareTargetMetadataKey(group_id), None))
    records.append((ShareInitializedKey(group_id), None))
    records.append((ShareGroupMetadataKey(group_id), None))
    return records


def _text(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw


def _partitions(partitions: Iterable[int]) -> bytes:
    numbers = sorted(partitions)
    return uvarint(len(numbers) + 1) + struct.pack(f">{len(numbers)}i", *numbers)


def _assignment(assignment: Assignment) -> bytes:
    out = bytearray(uvarint(len(assignment) + 1))
    for topic_id, partitions in assignment.items():
        out += topic_id.bytes + _partitions(partitions) + _NO_TAGS
    return bytes(out)
