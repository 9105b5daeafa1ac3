"""The producer state of one partition, and the validation of the next batch.

The state of a producer id is its epoch and its last five batches. A batch that is one of the five
is a duplicate and gets its old offset; otherwise its first sequence must follow the last one
(after 2^31 - 1 comes 0). A transactional batch opens the producer's transaction at its first
offset, and a marker ends it. The snapshot file, big-endian:

    version int16 = 1 | crc uint32 (CRC-32C of what follows) | count int32, then for each entry
    producer_id int64 | epoch int16 | last_sequence int32 | last_offset int64 | offset_delta int32
    | timestamp int64 | coordinator_epoch int32 | transaction_start int64 (-1: none is open)

A producer has an entry for each of its last five batches, oldest first. Kafka writes only the
newest batch. Of several entries with one producer id it takes the last, so it reads these files
as its own (docs/decisions/0038-five-batches-in-a-producer-snapshot.md).

`snapshots.py` reads and writes snapshots, and replays the log on top of them.
"""

import struct
from typing import NamedTuple

from headrace.errors import ErrorCode, KafkaError
from headrace.wire.batch import CONTROL, TRANSACTIONAL, Header, HeaderFields
from headrace.wire.checksum import crc32c
from headrace.wire.markers import Marker

BATCHES_KEPT = 5
MAX_SEQUENCE = 2**31 - 1
_NO_EPOCH = -1
NO_SEQUENCE = -1
_UNKNOWN = -2

_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_VERSION = 1
_NO_BATCH = (0, NO_SEQUENCE, -1, -1)


class CorruptSnapshot(ValueError):
    """A producer snapshot that is torn or damaged."""


class EndedTransaction(NamedTuple):
    """A transaction whose marker is in the log."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    last_stable_offset: int
    """The offset below which no transaction was open when this one ended."""
    aborted: bool


class Producer:
    """One producer id on one partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "expected",
        "kind",
        "timestamp",
        "transaction_start",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        # (first sequence, last sequence, first offset, last offset), oldest first.
        self.batches: list[tuple[int, int, int, int]] = []
        self.timestamp = -1
        self.coordinator_epoch = -1
        self.transaction_start = -1
        # The sequence that a batch of this epoch and kind may have without further checks; -2,
        # which no batch has, if checks are needed. `Log.append` compares with both.
        self.expected = _UNKNOWN
        # The transactional bit while a transaction is open, else 0.
        self.kind = 0

    @property
    def last_sequence(self) -> int:
        """The last sequence of this epoch, or -1."""
        if not self.batches:
            return -1
        _, last_sequence, _, _ = self.batches[-1]
        return last_sequence

    @property
    def last_offset(self) -> int:
        """The offset of the last record of this epoch, or -1 if it is not known."""
        if not self.batches:
            return -1
        _, _, _, last_offset = self.batches[-1]
        return last_offset

    def add(self, first: int, last: int, base_offset: int, last_offset: int) -> None:
        """Remember one more batch of the current epoch."""
        batches = self.batches
        batches.append((first, last, base_offset, last_offset))
        if len(batches) > BATCHES_KEPT:
            del batches[0]
        self.expected = (last + 1) & MAX_SEQUENCE

    def move_to_epoch(self, epoch: int) -> None:
        """A new epoch starts with no batches."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
            self.expected = _UNKNOWN


class ProducerState:
    """All producers of one partition."""

    __slots__ = ("open_transactions", "producers", "since")

    def __init__(self, since: int = 0) -> None:
        """`since`: of batches below this offset only the transactions count; see `forks/`."""
        self.since = since
        self.producers: dict[int, Producer] = {}
        # The first offset of every open transaction by producer id, oldest first.
        self.open_transactions: dict[int, int] = {}

    def check(self, header: HeaderFields) -> int:
        """-1 if the batch may be appended; the old base offset if it is a duplicate.

        KafkaError: 47 an older or a negative epoch, 45 a sequence that does not follow, 48 a plain
        batch in an open transaction, 87 no sequence at all. Offsets committed in a transaction
        have none.
        """
        _, _, _, _, _, attributes, _, _, _, producer_id, epoch, sequence, _ = header
        producer = self.producers.get(producer_id)
        if sequence < 0 and not attributes & (CONTROL | TRANSACTIONAL):
            raise KafkaError(
                ErrorCode.INVALID_RECORD, f"a batch of producer {producer_id} has no sequence"
            )
        known = _NO_EPOCH if producer is None else producer.epoch
        if epoch < known:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {known}, this batch has {epoch}",
            )
        if producer is None:
            return -1
        if attributes & CONTROL or sequence < 0:
            return -1
        if epoch == producer.epoch:
            first_sent = self.duplicate_of(header)
            if first_sent >= 0:
                return first_sent
            expected = (producer.last_sequence + 1) & MAX_SEQUENCE
        else:
            expected = 0
        if sequence != expected:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} epoch {epoch}: expected sequence {expected}, "
                f"this batch begins with {sequence}",
            )
        if producer.transaction_start >= 0 and not attributes & TRANSACTIONAL:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} has an open transaction; this batch is outside of it",
            )
        return -1

    def duplicate_of(self, header: HeaderFields) -> int:
        """The base offset that the batch got at its first append, or -1 if it is new."""
        _, _, _, _, _, _, delta, _, _, producer_id, epoch, sequence, _ = header
        producer = self.producers.get(producer_id)
        if producer is not None and producer.epoch == epoch:
            last = (sequence + delta) & MAX_SEQUENCE
            for first_sequence, last_sequence, base_offset, _ in producer.batches:
                if first_sequence == sequence and last_sequence == last:
                    return base_offset
        return -1

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has a transaction open in this epoch."""
        producer = self.producers.get(producer_id)
        return producer is not None and producer.kind != 0 and producer.epoch == epoch

    def record(self, header: HeaderFields, base_offset: int) -> None:
        """Apply a data batch that is in the log, without validation."""
        _, _, _, _, _, attributes, delta, _, timestamp, producer_id, epoch, sequence, _ = header
        if base_offset < self.since:
            if not attributes & TRANSACTIONAL:
                return
            sequence = NO_SEQUENCE
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self.producers[producer_id] = Producer(epoch)
        producer.move_to_epoch(epoch)
        if attributes & TRANSACTIONAL and producer.transaction_start < 0:
            producer.transaction_start = self.open_transactions[producer_id] = base_offset
            producer.kind = TRANSACTIONAL
        producer.timestamp = timestamp
        if sequence >= 0:
            last = (sequence + delta) & MAX_SEQUENCE
            producer.add(sequence, last, base_offset, base_offset + delta)

    def record_marker(
        self, header: Header, base_offset: int, marker: Marker
    ) -> EndedTransaction | None:
        """Apply a marker; returns the transaction that it ends, or None if none was open."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self.producers[producer_id] = Producer(epoch)
        producer.move_to_epoch(epoch)
        first = producer.transaction_start
        producer.transaction_start = -1
        producer.kind = 0
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.timestamp = header.max_timestamp
        if base_offset < self.since:
            del self.producers[producer_id]
        if first < 0:
            return None
        del self.open_transactions[producer_id]
        last = base_offset + header.last_offset_delta
        oldest = self.first_open_transaction()
        stable = last + 1 if oldest is None else oldest
        return EndedTransaction(producer_id, first, last, stable, not marker.commit)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Expire idle producers without an open transaction; returns their number."""
        gone = [
            producer_id
            for producer_id, producer in self.producers.items()
            if producer.transaction_start < 0 and now_ms - producer.timestamp >= expiration_ms
        ]
        for producer_id in gone:
            del self.producers[producer_id]
        return len(gone)

    def first_open_transaction(self) -> int | None:
        """The offset at which the oldest open transaction began."""
        return next(iter(self.open_transactions.values()), None)

    def encode(self) -> bytes:
        """The snapshot file's bytes."""
        entries: list[bytes] = []
        for producer_id, producer in self.producers.items():
            *older, newest = producer.batches or [_NO_BATCH]
            entries += [_entry(producer_id, producer, batch, -1) for batch in older]
            entries.append(_entry(producer_id, producer, newest, producer.transaction_start))
        body = _COUNT.pack(len(entries)) + b"".join(entries)
        return _HEAD.pack(_VERSION, crc32c(body)) + body

    @classmethod
    def decode(cls, data: bytes, since: int = 0) -> "ProducerState":
        """The state that a snapshot file holds; CorruptSnapshot if it is damaged."""
        if len(data) < _HEAD.size + _COUNT.size:
            raise CorruptSnapshot("it is too short")
        version, crc = _HEAD.unpack_from(data)
        if version != _VERSION:
            raise CorruptSnapshot(f"its version is {version}, not {_VERSION}")
        if crc32c(data[_HEAD.size :]) != crc:
            raise CorruptSnapshot("its CRC-32C does not match")
        (count,) = _COUNT.unpack_from(data, _HEAD.size)
        entries = data[_HEAD.size + _COUNT.size :]
        if count < 0 or len(entries) != count * _ENTRY.size:
            raise CorruptSnapshot(f"it does not have {count} whole entries")
        state = cls(since)
        for entry in _ENTRY.iter_unpack(entries):
            producer_id, epoch, sequence, last, delta, timestamp, coordinator, start = entry
            producer = state.producers.get(producer_id)
            if producer is None:
                producer = state.producers[producer_id] = Producer(epoch)
            producer.move_to_epoch(epoch)
            producer.timestamp = timestamp
            producer.coordinator_epoch = coordinator
            producer.transaction_start = start
            producer.kind = TRANSACTIONAL if start >= 0 else 0
            if last >= 0:
                first_sequence = (sequence - delta) & MAX_SEQUENCE
                producer.add(first_sequence, sequence, last - delta, last)
        open_now = ((p.transaction_start, pid) for pid, p in state.producers.items() if p.kind)
        state.open_transactions = {pid: start for start, pid in sorted(open_now)}
        return state


def _entry(
    producer_id: int, producer: Producer, batch: tuple[int, int, int, int], transaction_start: int
) -> bytes:
    """One entry of a snapshot."""
    _, sequence, first, last = batch
    return _ENTRY.pack(
        producer_id,
        producer.epoch,
        sequence,
        last,
        last - first,
        producer.timestamp,
        producer.coordinator_epoch,
        transaction_start,
    )
