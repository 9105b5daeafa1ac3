"""Keys and values of `__transaction_state` in Kafka's own format.

A key is its version (0) as an int16 and the transactional id with an int16 length. A value:

    version int16 | producer id int64 | producer epoch int16 | timeout int32 | state int8 |
    partitions by topic, nullable | last update int64 | start int64

In version 0 strings have an int16 length and arrays an int32 one. Version 1 has variable-length
lengths plus one, and tagged fields: 0 the producer id before this one, 1 the one after it, both
int64, and 2 the transaction version of the client, an int16. We write version 1, as Kafka does
since `transaction.version` 1.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass, field
from enum import IntEnum

from headrace.coordination.records import UnknownRecord
from headrace.types import TopicPartition
from headrace.wire.varint import read_uvarint, skip_tagged_fields, uvarint

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1

_WRITTEN_VERSION = 1
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_HEAD = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")


class TransactionState(IntEnum):
    """The state of a transactional id, by the numbers in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """As Kafka prints it: PrepareCommit."""
        return "".join(word.capitalize() for word in self.name.split("_"))


@dataclass(frozen=True, slots=True)
class TransactionKey:
    """The transactional id."""

    transactional_id: str

    def encode(self) -> bytes:
        """As the log holds it."""
        raw = self.transactional_id.encode()
        return _INT16.pack(0) + _INT16.pack(len(raw)) + raw


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id: its producer, and the transaction that is open or was the last."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    update_ms: int = NO_TIME
    start_ms: int = NO_TIME
    previous_id: int = NO_PRODUCER_ID
    next_id: int = NO_PRODUCER_ID
    version: int = 0
    """The transaction version that the client used last."""
    last_epoch: int = field(default=NO_EPOCH, compare=False)
    """The epoch before this one, if its owner asked for the bump; it is not in the log."""

    def encode(self) -> bytes:
        """As the log holds it."""
        out = bytearray(
            _HEAD.pack(_WRITTEN_VERSION, self.producer_id, self.epoch, self.timeout_ms, self.state)
        )
        # Without a transaction the list is null.
        if self.state is TransactionState.EMPTY:
            out.append(0)
        else:
            by_topic = by_topics(self.partitions)
            out += uvarint(len(by_topic) + 1)
            for topic, indexes in by_topic.items():
                raw = topic.encode()
                out += uvarint(len(raw) + 1) + raw + uvarint(len(indexes) + 1)
                out += struct.pack(f">{len(indexes)}i", *indexes) + b"\0"
        out += _TIMES.pack(self.update_ms, self.start_ms)
        tags = [
            (tag, form.pack(value))
            for tag, form, value, default in (
                (0, _INT64, self.previous_id, NO_PRODUCER_ID),
                (1, _INT64, self.next_id, NO_PRODUCER_ID),
                (2, _INT16, self.version, 0),
            )
            if value != default
        ]
        out += uvarint(len(tags))
        for tag, raw in tags:
            out += uvarint(tag) + uvarint(len(raw)) + raw
        return bytes(out)


def by_topics(partitions: frozenset[TopicPartition]) -> dict[str, list[int]]:
    """The partitions' indexes by topic, in order."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        found[topic].append(index)
    return {topic: sorted(found[topic]) for topic in sorted(found)}


def decode(key: bytes, value: bytes | None) -> tuple[TransactionKey, Transaction | None]:
    """A record of the log; UnknownRecord if it cannot be read."""
    try:
        if _INT16.unpack_from(key)[0] != 0:
            raise UnknownRecord(f"a transaction's key in version {_INT16.unpack_from(key)[0]}")
        found = TransactionKey(key[4 : 4 + _INT16.unpack_from(key, 2)[0]].decode())
        return found, None if value is None else _value(value)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise UnknownRecord(f"a transaction's record that cannot be read: {error}") from error


def _value(data: bytes) -> Transaction:
    version, producer_id, epoch, timeout_ms, state = _HEAD.unpack_from(data)
    if version not in (0, 1):
        raise UnknownRecord(f"a transaction's record in version {version}")
    partitions, at = _partitions(data, _HEAD.size, version == 1)
    update_ms, start_ms = _TIMES.unpack_from(data, at)
    tags = _tags(data, at + _TIMES.size) if version == 1 else {}
    return Transaction(
        producer_id,
        epoch,
        timeout_ms,
        TransactionState(state),
        partitions,
        update_ms,
        start_ms,
        int.from_bytes(tags.get(0, b"\xff"), "big", signed=True),
        int.from_bytes(tags.get(1, b"\xff"), "big", signed=True),
        int.from_bytes(tags.get(2, b"\0"), "big", signed=True),
    )


def _length(data: bytes, at: int, form: struct.Struct, flexible: bool) -> tuple[int, int]:
    if flexible:
        length, at = read_uvarint(data, at)
        length -= 1
    else:
        length = form.unpack_from(data, at)[0]
        at += form.size
    if length > len(data) - at:
        raise UnknownRecord("a list or a name exceeds its record")
    return max(length, 0), at


def _partitions(data: bytes, at: int, flexible: bool) -> tuple[frozenset[TopicPartition], int]:
    found: set[TopicPartition] = set()
    topics, at = _length(data, at, _INT32, flexible)
    for _ in range(topics):
        size, at = _length(data, at, _INT16, flexible)
        topic = data[at : at + size].decode()
        count, at = _length(data, at + size, _INT32, flexible)
        found.update(
            TopicPartition(topic, index) for index in struct.unpack_from(f">{count}i", data, at)
        )
        at += 4 * count
        if flexible:
            at = skip_tagged_fields(data, at)
    return frozenset(found), at


def _tags(data: bytes, at: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    count, at = read_uvarint(data, at)
    for _ in range(count):
        tag, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        found[tag] = data[at : at + size]
        at += size
    return found
