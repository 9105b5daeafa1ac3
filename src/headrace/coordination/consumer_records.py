"""Records of consumer groups (KIP-848) in `__consumer_offsets`, in Kafka's own format.

A key is its type as an int16 and then its strings, each with an int16 length:

    3   group metadata        group id
    4   partition metadata    group id             read from older logs, never written
    5   member metadata       group id, member id
    6   target metadata       group id
    7   target of a member    group id, member id
    8   current assignment    group id, member id
    16  regular expression    group id, the expression

A value is its version (0) as an int16 and then its fields as Kafka's flexible messages have them:
variable-length lengths plus one, and tagged fields at the end of every structure. Classic groups
and offsets are in `records.py`.
"""

import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from headrace.coordination.records import UnknownRecord
from headrace.wire.varint import read_uvarint, skip_tagged_fields, uvarint

Assignment: TypeAlias = Mapping[uuid.UUID, frozenset[int]]
"""Partitions by topic id; a topic without partitions is not in it."""

NOTHING: Assignment = {}

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_VERSION_0 = b"\0\0"
_NO_TAGS = b"\0"


# ------------------------------------------------------------------------------------- keys


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadataKey:
    """Type 3: the group's epoch."""

    group_id: str

    def encode(self) -> bytes:
        return _key(3, self.group_id)


@dataclass(frozen=True, slots=True)
class PartitionMetadataKey:
    """Type 4: the partition counts that older versions kept."""

    group_id: str

    def encode(self) -> bytes:
        return _key(4, self.group_id)


@dataclass(frozen=True, slots=True)
class ConsumerGroupMemberMetadataKey:
    """Type 5: a member and its subscription."""

    group_id: str
    member_id: str

    def encode(self) -> bytes:
        return _key(5, self.group_id, self.member_id)


@dataclass(frozen=True, slots=True)
class TargetMetadataKey:
    """Type 6: the epoch of the target assignment."""

    group_id: str

    def encode(self) -> bytes:
        return _key(6, self.group_id)


@dataclass(frozen=True, slots=True)
class TargetMemberKey:
    """Type 7: the target assignment of a member."""

    group_id: str
    member_id: str

    def encode(self) -> bytes:
        return _key(7, self.group_id, self.member_id)


@dataclass(frozen=True, slots=True)
class CurrentAssignmentKey:
    """Type 8: the current assignment of a member."""

    group_id: str
    member_id: str

    def encode(self) -> bytes:
        return _key(8, self.group_id, self.member_id)


@dataclass(frozen=True, slots=True)
class RegularExpressionKey:
    """Type 16: the topics that an expression matches."""

    group_id: str
    expression: str

    def encode(self) -> bytes:
        return _key(16, self.group_id, self.expression)


ConsumerKey: TypeAlias = (
    ConsumerGroupMetadataKey
    | PartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | TargetMetadataKey
    | TargetMemberKey
    | CurrentAssignmentKey
    | RegularExpressionKey
)


def _key(kind: int, *strings: str) -> bytes:
    out = bytearray(_INT16.pack(kind))
    for text in strings:
        raw = text.encode()
        out += _INT16.pack(len(raw))
        out += raw
    return bytes(out)


# ----------------------------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """The group's epoch, and a hash of the subscribed topics at that epoch (0: unknown)."""

    epoch: int
    metadata_hash: int = 0

    def encode(self) -> bytes:
        out = bytearray(_VERSION_0 + _INT32.pack(self.epoch))
        if self.metadata_hash:
            out += b"\x01\x00\x08" + _INT64.pack(self.metadata_hash)
        else:
            out += _NO_TAGS
        return bytes(out)

    @classmethod
    def decode(cls, data: bytes) -> "ConsumerGroupMetadata":
        source = _Source(data)
        epoch = source.number(_INT32)
        return cls(epoch, source.tagged_int64(0))


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A record of older versions. It is not parsed, because it is not used."""

    raw: bytes

    def encode(self) -> bytes:
        return self.raw

    @classmethod
    def decode(cls, data: bytes) -> "PartitionMetadata":
        return cls(data)


class ClassicProtocol(NamedTuple):
    """An assignor that a classic member offers, with its subscription."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class ClassicMembership:
    """How a member with the classic protocol joined."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupMemberMetadata:
    """A member and its subscription; `classic` if it uses the classic protocol."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    expression: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicMembership | None = None

    def encode(self) -> bytes:
        out = bytearray(_VERSION_0)
        _put_text(out, self.instance_id)
        _put_text(out, self.rack_id)
        _put_text(out, self.client_id)
        _put_text(out, self.client_host)
        out += uvarint(len(self.topics) + 1)
        for topic in self.topics:
            _put_text(out, topic)
        _put_text(out, self.expression)
        out += _INT32.pack(self.rebalance_timeout_ms)
        _put_text(out, self.assignor)
        if self.classic is None:
            out += _NO_TAGS
        else:
            body = _classic_bytes(self.classic)
            out += b"\x01\x00" + uvarint(len(body)) + body
        return bytes(out)

    @classmethod
    def decode(cls, data: bytes) -> "ConsumerGroupMemberMetadata":
        source = _Source(data)
        return cls(
            instance_id=source.text(),
            rack_id=source.text(),
            client_id=source.text() or "",
            client_host=source.text() or "",
            topics=tuple(source.text() or "" for _ in range(source.length())),
            expression=source.text(),
            rebalance_timeout_ms=source.number(_INT32),
            assignor=source.text(),
            classic=_classic(source.tagged(0)),
        )


@dataclass(frozen=True, slots=True)
class TargetMetadata:
    """The group epoch that the target assignment was made for."""

    epoch: int

    def encode(self) -> bytes:
        return _VERSION_0 + _INT32.pack(self.epoch) + _NO_TAGS

    @classmethod
    def decode(cls, data: bytes) -> "TargetMetadata":
        return cls(_Source(data).number(_INT32))


@dataclass(frozen=True, slots=True)
class TargetMember:
    """The target assignment of a member."""

    partitions: Assignment

    def encode(self) -> bytes:
        out = bytearray(_VERSION_0)
        _put_assignment(out, self.partitions)
        return bytes(out + _NO_TAGS)

    @classmethod
    def decode(cls, data: bytes) -> "TargetMember":
        return cls(_Source(data).assignment())


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """What a member owns, what it must revoke, and the state of its reconciliation."""

    member_epoch: int
    previous_epoch: int
    state: int
    assigned: Assignment = field(default_factory=dict)
    revoking: Assignment = field(default_factory=dict)

    def encode(self) -> bytes:
        out = bytearray(_VERSION_0)
        out += _INT32.pack(self.member_epoch)
        out += _INT32.pack(self.previous_epoch)
        out.append(self.state & 0xFF)
        _put_assignment(out, self.assigned)
        _put_assignment(out, self.revoking)
        return bytes(out + _NO_TAGS)

    @classmethod
    def decode(cls, data: bytes) -> "CurrentAssignment":
        source = _Source(data)
        return cls(
            member_epoch=source.number(_INT32),
            previous_epoch=source.number(_INT32),
            state=source.byte(),
            assigned=source.assignment(),
            revoking=source.assignment(),
        )


@dataclass(frozen=True, slots=True)
class RegularExpression:
    """The topics that an expression matched, with the metadata version and the time."""

    topics: tuple[str, ...]
    version: int
    timestamp_ms: int

    def encode(self) -> bytes:
        out = bytearray(_VERSION_0)
        out += uvarint(len(self.topics) + 1)
        for topic in self.topics:
            _put_text(out, topic)
        out += _INT64.pack(self.version)
        out += _INT64.pack(self.timestamp_ms)
        return bytes(out + _NO_TAGS)

    @classmethod
    def decode(cls, data: bytes) -> "RegularExpression":
        source = _Source(data)
        return cls(
            topics=tuple(source.text() or "" for _ in range(source.length())),
            version=source.number(_INT64),
            timestamp_ms=source.number(_INT64),
        )


ConsumerValue: TypeAlias = (
    ConsumerGroupMetadata
    | PartitionMetadata
    | ConsumerGroupMemberMetadata
    | TargetMetadata
    | TargetMember
    | CurrentAssignment
    | RegularExpression
)
ConsumerRecord: TypeAlias = tuple[ConsumerKey, ConsumerValue | None]

_TYPES: dict[int, tuple[type[ConsumerKey], int, Callable[[bytes], ConsumerValue]]] = {
    3: (ConsumerGroupMetadataKey, 1, ConsumerGroupMetadata.decode),
    4: (PartitionMetadataKey, 1, PartitionMetadata.decode),
    5: (ConsumerGroupMemberMetadataKey, 2, ConsumerGroupMemberMetadata.decode),
    6: (TargetMetadataKey, 1, TargetMetadata.decode),
    7: (TargetMemberKey, 2, TargetMember.decode),
    8: (CurrentAssignmentKey, 2, CurrentAssignment.decode),
    16: (RegularExpressionKey, 2, RegularExpression.decode),
}
KEY_TYPES = frozenset(_TYPES)
"""The int16 at the start of a key that belongs to this module."""


def decode(key: bytes, value: bytes | None) -> ConsumerRecord:
    """A record of the log; UnknownRecord if its type or its value's version is unknown."""
    try:
        return _decode(key, value)
    except (struct.error, IndexError, ValueError) as error:
        raise UnknownRecord(f"a record of a consumer group: {error}") from error


def _decode(key: bytes, value: bytes | None) -> ConsumerRecord:
    (kind,) = _INT16.unpack_from(key)
    if kind not in _TYPES:
        raise UnknownRecord(f"a record of type {kind}")
    of, count, read_value = _TYPES[kind]
    strings, at = [], 2
    for _ in range(count):
        (size,) = _INT16.unpack_from(key, at)
        strings.append(key[at + 2 : at + 2 + size].decode())
        at += 2 + size
    found: ConsumerKey = of(*strings)
    if value is None:
        return found, None
    (version,) = _INT16.unpack_from(value)
    if version != 0:
        raise UnknownRecord(f"a record of type {kind} in version {version}")
    return found, read_value(value)


# ------------------------------------------------------------------------- flexible encoding


def _put_text(out: bytearray, text: str | None) -> None:
    if text is None:
        out.append(0)
        return
    raw = text.encode()
    out += uvarint(len(raw) + 1)
    out += raw


def _put_assignment(out: bytearray, assignment: Assignment) -> None:
    out += uvarint(len(assignment) + 1)
    for topic_id, partitions in assignment.items():
        out += topic_id.bytes
        out += uvarint(len(partitions) + 1)
        out += struct.pack(f">{len(partitions)}i", *sorted(partitions))
        out += _NO_TAGS


def _classic_bytes(classic: ClassicMembership) -> bytes:
    out = bytearray(_INT32.pack(classic.session_timeout_ms))
    out += uvarint(len(classic.protocols) + 1)
    for protocol in classic.protocols:
        _put_text(out, protocol.name)
        out += uvarint(len(protocol.metadata) + 1)
        out += protocol.metadata
        out += _NO_TAGS
    # A nullable structure in a tagged field begins with a byte: 1 if it is present.
    return b"\x01" + bytes(out) + _NO_TAGS


def _classic(raw: bytes | None) -> ClassicMembership | None:
    if raw is None or raw[:1] != b"\x01":
        return None
    source = _Source(raw, 1)
    session_timeout_ms = source.number(_INT32)
    protocols = []
    for _ in range(source.length()):
        name = source.text() or ""
        protocols.append(ClassicProtocol(name, source.take(source.length())))
        source.skip_tags()
    return ClassicMembership(session_timeout_ms, tuple(protocols))


class _Source:
    """Reads a value from left to right; by default from after its version."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 2) -> None:
        self.data = data
        self.at = at

    def take(self, count: int) -> bytes:
        raw = self.data[self.at : self.at + count]
        if len(raw) != count:
            raise ValueError(f"a field of {count} bytes exceeds its record")
        self.at += count
        return raw

    def number(self, of: struct.Struct) -> int:
        value: int = of.unpack(self.take(of.size))[0]
        return value

    def byte(self) -> int:
        return self.take(1)[0]

    def length(self) -> int:
        """The number of elements or bytes that follow; 0 for null."""
        value, self.at = read_uvarint(self.data, self.at)
        return max(value - 1, 0)

    def text(self) -> str | None:
        size, self.at = read_uvarint(self.data, self.at)
        return None if size == 0 else self.take(size - 1).decode()

    def assignment(self) -> Assignment:
        found: dict[uuid.UUID, frozenset[int]] = {}
        for _ in range(self.length()):
            topic_id = uuid.UUID(bytes=self.take(16))
            count = self.length()
            found[topic_id] = frozenset(struct.unpack(f">{count}i", self.take(4 * count)))
            self.skip_tags()
        return found

    def skip_tags(self) -> None:
        self.at = skip_tagged_fields(self.data, self.at)

    def tagged(self, wanted: int) -> bytes | None:
        """The tagged field with this number, or None."""
        found = None
        count, self.at = read_uvarint(self.data, self.at)
        for _ in range(count):
            tag, self.at = read_uvarint(self.data, self.at)
            size, self.at = read_uvarint(self.data, self.at)
            raw = self.take(size)
            if tag == wanted:
                found = raw
        return found

    def tagged_int64(self, wanted: int) -> int:
        raw = self.tagged(wanted)
        return _INT64.unpack(raw)[0] if raw is not None else 0


def group_tombstones(
    group_id: str, member_ids: Iterable[str], expressions: Iterable[str]
) -> list[ConsumerRecord]:
    """Records that remove a whole group, members first."""
    records: list[ConsumerRecord] = []
    for member_id in member_ids:
        records += member_tombstones(group_id, member_id)
    records.extend((RegularExpressionKey(group_id, one), None) for one in expressions)
    records.append((TargetMetadataKey(group_id), None))
    records.append((ConsumerGroupMetadataKey(group_id), None))
    return records


def member_tombstones(group_id: str, member_id: str) -> list[ConsumerRecord]:
    """Records that remove a member: its current and target assignments, and then itself."""
    return [
        (CurrentAssignmentKey(group_id, member_id), None),
        (TargetMemberKey(group_id, member_id), None),
        (ConsumerGroupMemberMetadataKey(group_id, member_id), None),
    ]
