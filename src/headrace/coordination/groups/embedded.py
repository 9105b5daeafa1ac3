"""The opaque bytes of consumers in the classic protocol: subscriptions and assignments.

A subscription (big-endian, int16 lengths before strings, int32 before bytes and arrays):

    version int16, topics, user data bytes?
    1+  owned partitions: topic, array of int32
    2+  generation int32
    3+  rack string?

An assignment: version int16, array of (topic, array of int32), user data bytes?
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from headrace.cluster.image import Image
from headrace.coordination.consumer_records import Assignment

PROTOCOL_TYPE = "consumer"
"""The protocol type of JoinGroup requests with these bytes."""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_NEWEST = 3


class Subscription(NamedTuple):
    """The topics that a member subscribes to, and the partitions that it still owns."""

    version: int
    topics: tuple[str, ...]
    owned: Mapping[str, frozenset[int]]
    rack_id: str | None


def read_subscription(data: bytes) -> Subscription:
    """The subscription; ValueError if the bytes are malformed."""
    source = _Source(data)
    version = source.number(_INT16)
    topics = tuple(source.text() or "" for _ in range(source.count()))
    source.skip_bytes()
    owned = source.partitions() if version >= 1 else {}
    if version >= 2:
        source.number(_INT32)
    rack_id = source.text() if version >= 3 else None
    return Subscription(min(version, _NEWEST), topics, owned, rack_id)


def read_assignment(data: bytes) -> Mapping[str, frozenset[int]]:
    """Partitions by topic, empty for no bytes; ValueError if the bytes are malformed."""
    if not data:
        return {}
    source = _Source(data)
    source.number(_INT16)
    return source.partitions()


def write_assignment(version: int, assigned: Mapping[str, frozenset[int]]) -> bytes:
    """The bytes of an assignment, for a member whose subscription has this version."""
    out = bytearray(_INT16.pack(version) + _INT32.pack(len(assigned)))
    for topic, partitions in sorted(assigned.items()):
        raw = topic.encode()
        out += _INT16.pack(len(raw)) + raw
        out += struct.pack(f">i{len(partitions)}i", len(partitions), *sorted(partitions))
    return bytes(out + _INT32.pack(-1))


def by_id(named: Mapping[str, frozenset[int]], image: Image) -> Assignment:
    """The same partitions, by topic id; without deleted topics."""
    return {
        image.topics[name].id: partitions
        for name, partitions in named.items()
        if name in image.topics and partitions
    }


def by_name(assigned: Assignment, image: Image) -> Mapping[str, frozenset[int]]:
    """The same partitions, by topic name; without deleted topics."""
    return {
        image.names[topic_id]: partitions
        for topic_id, partitions in assigned.items()
        if topic_id in image.names
    }


class _Source:
    """Reads bytes of a client, which may be malformed."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        if not 0 <= count <= len(self.data) - self.at:
            raise ValueError(f"a field of {count} bytes does not fit")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, of: struct.Struct) -> int:
        value: int = of.unpack(self.take(of.size))[0]
        return value

    def count(self) -> int:
        count = self.number(_INT32)
        if count > len(self.data) - self.at:
            raise ValueError(f"an array of {count} elements does not fit")
        return max(count, 0)

    def text(self) -> str | None:
        size = self.number(_INT16)
        return None if size == -1 else self.take(size).decode()

    def skip_bytes(self) -> None:
        size = self.number(_INT32)
        if size != -1:
            self.take(size)

    def partitions(self) -> Mapping[str, frozenset[int]]:
        found: dict[str, frozenset[int]] = {}
        for _ in range(self.count()):
            topic = self.text() or ""
            count = self.count()
            numbers = struct.unpack(f">{count}i", self.take(4 * count))
            found[topic] = found.get(topic, frozenset()) | frozenset(numbers)
        return found
