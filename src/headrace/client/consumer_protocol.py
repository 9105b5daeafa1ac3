"""Kafka's ConsumerProtocol: what members of a classic group send each other through JoinGroup and
SyncGroup.

    subscription    version int16 | topics: array of string | user data: bytes |
                    from version 1 on: owned partitions: array of (topic string, array of int32)
    assignment      version int16 | array of (topic string, array of int32) | user data: bytes

Arrays and bytes have an int32 length, strings an int16 length; bytes of length -1 are null. Later
versions add fields at the end.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.types import TopicPartition


class MalformedProtocol(Exception):
    """The bytes are not in this format."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What a member tells the leader of the group."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: frozenset[TopicPartition] | None = None
    """The partitions that the member has now; None before version 1."""


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """What the leader of the group tells a member."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


def encode_subscription(subscription: MemberSubscription) -> bytes:
    """Version 1, or version 0 if the owned partitions are None."""
    owned = subscription.owned
    topics = [_text(topic) for topic in subscription.topics]
    out = struct.pack(">hi", 0 if owned is None else 1, len(topics)) + b"".join(topics)
    out += _bytes(subscription.user_data)
    return out if owned is None else out + _partitions(owned)


def encode_assignment(assignment: MemberAssignment) -> bytes:
    """Version 0."""
    partitions = _partitions(assignment.partitions)
    return struct.pack(">h", 0) + partitions + _bytes(assignment.user_data)


def decode_subscription(data: bytes) -> MemberSubscription:
    """A subscription of any version; MalformedProtocol if it is none."""
    reader = _Reader(data)
    version = reader.int16()
    topics = tuple(reader.text() for _ in range(reader.int32()))
    user_data = reader.bytes()
    owned = frozenset(reader.partitions()) if version >= 1 else None
    return MemberSubscription(topics, user_data, owned)


def decode_assignment(data: bytes) -> MemberAssignment:
    """An assignment of any version; MalformedProtocol if it is none."""
    if not data:  # the leader has not sent the assignment yet
        return MemberAssignment(())
    reader = _Reader(data)
    reader.int16()
    return MemberAssignment(tuple(sorted(reader.partitions())), reader.bytes())


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw


def _bytes(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for each in sorted(partitions):
        topics.setdefault(each.topic, []).append(each.partition)
    out = struct.pack(">i", len(topics))
    for topic, numbers in topics.items():
        out += _text(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return out


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if size < 0 or len(found) < size:
            raise MalformedProtocol(f"{len(self._data)} bytes are too few")
        self._at += size
        return found

    def int16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def text(self) -> str:
        try:
            return self._take(self.int16()).decode()
        except UnicodeDecodeError:
            raise MalformedProtocol("the name of a topic is not UTF-8") from None

    def bytes(self) -> bytes | None:
        size = self.int32()
        return None if size < 0 else self._take(size)

    def partitions(self) -> list[TopicPartition]:
        found: list[TopicPartition] = []
        for _ in range(self.int32()):
            topic = self.text()
            found += [TopicPartition(topic, self.int32()) for _ in range(self.int32())]
        return found
