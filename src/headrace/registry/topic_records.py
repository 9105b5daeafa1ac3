"""Reads and writes the records of the schemas topic: committed ones, and in transactions.

There are two implementations. librdkafka is the faster one, because its threads do not need the
interpreter: with `headrace.client` in its place, 16 clients registered about a third fewer schemas
per second. Its packages on PyPI have no GSSAPI, and it has no delegation tokens and no tokens from
files; a registry that logs in with one of these uses `headrace.client`.
"""

import logging
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import TopicPartition as LibraryPartition

from headrace.client.committed_records import TopicRecord, committed_records
from headrace.client.connection import Connection
from headrace.client.errors import ClientError, check, is_retriable
from headrace.client.fetching import BY_NAME, FetchPlan, fetch_request, parse_fetch, whole_batches
from headrace.client.offsets import COMMITTED, EARLIEST, list_offsets
from headrace.client.producing import add_partitions, end_transaction, init_producer, produce
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition
from headrace.wire.batch import TRANSACTIONAL, read_header
from headrace.wire.records import Record, encode_batch

if TYPE_CHECKING:
    from headrace.registry.schemas_topic import TopicLocation

log = logging.getLogger("headrace.registry")

POLL_S = 0.5
REQUEST_S = 10.0
BATCH_RECORDS = 1000
FETCH_WAIT_MS = 50
BATCH_BYTES = 900_000
"""Below the default `max.message.bytes` of a topic and `message.max.bytes` of a producer."""
_RECORD_OVERHEAD_BYTES = 100
"""More than a record takes in a batch besides its key and value."""


class Polled(NamedTuple):
    """What a poll has read."""

    records: list[TopicRecord]
    reached: int
    """All committed records below this offset were read."""
    at_end: bool


class RecordSource(Protocol):
    """Reads the topic from its beginning."""

    def poll(self) -> Polled | None:
        """The next records; waits for a short time if there are none."""

    def close(self) -> None:
        """Disconnect."""


class RecordWriter(Protocol):
    """Writes as the one producer of the topic's transactional id."""

    def begin(self) -> None:
        """Begin a transaction."""

    def send(self, key: bytes, value: bytes | None) -> None:
        """Add a record to the transaction."""

    def commit(self) -> int:
        """Commit the transaction; the offset of its last record."""


def open_source(location: "TopicLocation") -> RecordSource:
    """A source for the topic; KafkaException if librdkafka refuses its settings."""
    return LibrarySource(location) if location.by_library else ClientSource(location)


def open_writer(location: "TopicLocation", timeout_s: float) -> RecordWriter:
    """Fences earlier writers, whose open transactions are ended."""
    if location.by_library:
        return LibraryWriter(location, timeout_s)
    return ClientWriter(location, timeout_s)


def _transactional_id(topic: str) -> str:
    return f"{topic}-writer"


# ------------------------------------------------------------------------------ with librdkafka


class LibrarySource:
    """Reads with librdkafka."""

    def __init__(self, location: "TopicLocation") -> None:
        self._topic = location.topic
        self._consumer = Consumer(
            location.client(
                **{
                    # librdkafka requires a group id; no group is joined and no offset committed.
                    "group.id": "headrace-registry",
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "enable.partition.eof": True,
                    "isolation.level": "read_committed",
                    "auto.offset.reset": "earliest",
                    # Only an empty fetch reports the end of the topic.
                    "fetch.wait.max.ms": FETCH_WAIT_MS,
                    "fetch.error.backoff.ms": 50,
                }
            )
        )
        self._consumer.assign([LibraryPartition(self._topic, 0, OFFSET_BEGINNING)])

    def poll(self) -> Polled | None:
        first = self._consumer.poll(POLL_S)
        if first is None:
            return None
        records: list[TopicRecord] = []
        reached, at_end = 0, False
        for message in (first, *self._consumer.consume(BATCH_RECORDS, timeout=0)):
            error, offset = message.error(), message.offset()
            if error is None:
                reached, at_end = offset + 1, False
                records.append(TopicRecord(offset, message.key(), message.value()))
            elif error.code() == LibraryError._PARTITION_EOF:
                # Transaction markers are not delivered as records: only the end of the partition
                # shows that they were passed.
                reached, at_end = max(reached, offset), True
            else:
                log.warning("error while reading %s: %s", self._topic, error.str())
        return Polled(records, reached, at_end)

    def close(self) -> None:
        self._consumer.close()


class LibraryWriter:
    """Writes with librdkafka."""

    def __init__(self, location: "TopicLocation", timeout_s: float) -> None:
        self._topic = location.topic
        self._timeout_s = timeout_s
        self._last_offset = -1
        self._producer = Producer(
            location.client(
                **{
                    "transactional.id": _transactional_id(location.topic),
                    "transaction.timeout.ms": int(timeout_s * 1000),
                    "linger.ms": 0,
                }
            )
        )
        self._producer.init_transactions(timeout_s)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, key: bytes, value: bytes | None) -> None:
        self._producer.produce(
            self._topic, key=key, value=value, partition=0, on_delivery=self._sent
        )

    def commit(self) -> int:
        self._producer.commit_transaction(self._timeout_s)
        return self._last_offset

    def _sent(self, error: LibraryError | None, message: object) -> None:
        if error is None:
            self._last_offset = message.offset()  # type: ignore[attr-defined]


# -------------------------------------------------------------------------- with headrace.client


class ClientSource:
    """Reads with `headrace.client`."""

    def __init__(self, location: "TopicLocation") -> None:
        self._cluster = location.cluster(REQUEST_S)
        self._partition = TopicPartition(location.topic, 0)
        self._plan = FetchPlan(self._partition, COMMITTED, max_wait_ms=int(POLL_S * 1000))
        self._connection: Connection | None = None
        self._position = -1
        """The offset to fetch from; -1: the first of the log."""

    def poll(self) -> Polled | None:
        try:
            return self._fetch()
        except (KafkaError, ClientError) as error:
            log.warning("error while reading %s: %s", self._partition.topic, error)
            if isinstance(error, KafkaError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._position = -1
            self.close()
            self._cluster.forget()
            config = self._cluster.config
            retriable = is_retriable(error)
            time.sleep(config.retry_backoff_s if retriable else config.retry_backoff_max_s)
            return None

    def _fetch(self) -> Polled:
        if self._connection is None:
            self._connection = self._cluster.connect(self._cluster.leader(self._partition))
        if self._position < 0:
            first = list_offsets(self._cluster, {self._partition: EARLIEST})
            self._position = first[self._partition]
        self._connection.send(fetch_request(self._plan, self._position, BY_NAME))
        answer = self._connection.receive()
        body = parse_fetch(answer)
        check(body.error, f"fetching {self._partition} at offset {self._position}")
        positions, end = whole_batches(answer.data, body.records_at, body.records_end)
        records = list(
            committed_records(answer.data, [*positions, end], body.aborted, self._position)
        )
        if positions:
            self._position = read_header(answer.data, positions[-1]).next_offset
        return Polled(records, self._position, body.answered and self._position >= body.last_stable)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._cluster.close()


class ClientWriter:
    """Writes with `headrace.client`."""

    def __init__(self, location: "TopicLocation", timeout_s: float) -> None:
        self._cluster = location.cluster(timeout_s)
        self._partition = TopicPartition(location.topic, 0)
        self._producer = init_producer(
            self._cluster, _transactional_id(location.topic), int(timeout_s * 1000)
        )
        self._sequence = 0
        self._batches: list[list[Record]] = []
        self._batch_bytes = 0

    def begin(self) -> None:
        self._batches = []
        self._batch_bytes = BATCH_BYTES

    def send(self, key: bytes, value: bytes | None) -> None:
        size = len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES
        if self._batch_bytes + size > BATCH_BYTES:
            self._batches.append([])
            self._batch_bytes = 0
        self._batch_bytes += size
        self._batches[-1].append(Record(0, int(time.time() * 1000), key, value))

    def commit(self) -> int:
        add_partitions(self._cluster, self._producer, [self._partition])
        last_offset = -1
        for records in self._batches:
            batch = encode_batch(
                records,
                producer_id=self._producer.producer_id,
                producer_epoch=self._producer.epoch,
                base_sequence=self._sequence,
                attributes=TRANSACTIONAL,
            )
            offsets = produce(self._cluster, {self._partition: batch}, self._producer)
            self._sequence += len(records)
            last_offset = offsets[self._partition] + len(records) - 1
        end_transaction(self._cluster, self._producer, commit=True)
        return last_offset
