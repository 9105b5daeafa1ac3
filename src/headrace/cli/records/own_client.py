"""Records over `headrace.client`, for logins that librdkafka does not have.

The packages of librdkafka on PyPI have no GSSAPI, and it has no delegation tokens, no tokens from
files and none of the property names of Java. The classes here have the methods of confluent-kafka
that the commands use, with the same defaults, such as the partition of a key. They are slower:
about 20,000 small records per second are written and 60,000 read.
"""

import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING
from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import TopicPartition as LibraryPartition

from headrace.client.cluster import Cluster
from headrace.client.committed_records import MAX_DECOMPRESSED_BYTES, visible_batches
from headrace.client.errors import ClientError, is_retriable
from headrace.client.fetching import whole_batches
from headrace.client.first_batches import FirstBatches, fetch_partitions
from headrace.client.offsets import COMMITTED, EARLIEST, list_offsets
from headrace.client.partitioner import partition_of
from headrace.client.producing import init_producer, produce, produce_request
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition
from headrace.wire.batch import LOG_APPEND_TIME, read_header
from headrace.wire.compression import CODECS
from headrace.wire.records import Record, iterate

if TYPE_CHECKING:
    from headrace.client.connection import Connection

BATCH_BYTES = 900_000
"""Below the default `max.message.bytes` of a topic."""
FETCH_BYTES = 1 << 20
FETCH_WAIT_MS = 100
_RECORD_OVERHEAD_BYTES = 30
_ACKS = {"0": 0, "1": 1, "all": -1, "-1": -1}
_CREATE_TIME, _APPEND_TIME = 1, 2

Translated = Callable[[], AbstractContextManager[None]]
"""A context that turns the client's exceptions into Failures."""


@dataclass(frozen=True, slots=True)
class OwnMessage:
    """A record with the methods of confluent-kafka's Message."""

    at: TopicPartition
    record: Record
    append_time: bool = False
    problem: LibraryError | None = None
    latency_s: float = 0.0

    def __len__(self) -> int:
        return len(self.record.value or b"")

    def topic(self) -> str:
        return self.at.topic

    def partition(self) -> int:
        return self.at.partition

    def offset(self) -> int:
        return self.record.offset

    def key(self) -> bytes | None:
        return self.record.key

    def value(self) -> bytes | None:
        return self.record.value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return list(self.record.headers) or None

    def timestamp(self) -> tuple[int, int]:
        return (_APPEND_TIME if self.append_time else _CREATE_TIME), self.record.timestamp

    def latency(self) -> float:
        return self.latency_s

    def error(self) -> LibraryError | None:
        return self.problem


Delivered = Callable[[LibraryError | None, OwnMessage], None]


@dataclass(slots=True)
class _Sent:
    """A record that waits for its acknowledgement."""

    at: TopicPartition
    record: Record
    on_delivery: Delivered | None
    began: float = field(default_factory=time.perf_counter)

    @property
    def size(self) -> int:
        headers = sum(len(name) + len(value or b"") + 4 for name, value in self.record.headers)
        content = len(self.record.key or b"") + len(self.record.value or b"") + headers
        return content + _RECORD_OVERHEAD_BYTES


class OwnProducer:
    """Sends records from a thread of its own; callbacks run in `poll` and `flush`."""

    def __init__(self, cluster: Cluster, settings: Mapping[str, object]) -> None:
        self._cluster = cluster
        self._using_cluster = threading.Lock()
        self._acks = _ACKS[str(settings.get("acks", "all"))]
        codec = str(settings.get("compression.type", "none"))
        self._codec = CODECS["uncompressed" if codec == "none" else codec]
        self._linger_s = float(str(settings.get("linger.ms", 5))) / 1000
        self._most = int(str(settings.get("queue.buffering.max.messages", 100_000)))
        self._by_murmur2 = str(settings.get("partitioner", "")).startswith("murmur2")
        self._producer = init_producer(cluster) if settings.get("enable.idempotence") else None
        self._sequences: dict[TopicPartition, int] = {}
        self._counts: dict[str, int] = {}
        self._unanswered: dict[int, Connection] = {}
        self._changed = threading.Condition()
        self._buffered: list[_Sent] = []
        self._done: deque[Callable[[], None]] = deque()
        self._outstanding = 0
        threading.Thread(target=self._run, name="producer", daemon=True).start()

    def __len__(self) -> int:
        return self._outstanding

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        on_delivery: Delivered | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> None:
        """Send a record; BufferError if too many are waiting."""
        if self._outstanding >= self._most:
            raise BufferError("too many records are waiting")
        index = self._partition(topic, key) if partition is None else partition
        now_ms = int(time.time() * 1000) if timestamp is None else timestamp
        record = Record(0, now_ms, key, value, tuple(headers))
        with self._changed:
            self._buffered.append(_Sent(TopicPartition(topic, index), record, on_delivery))
            self._outstanding += 1
            self._changed.notify_all()

    def poll(self, timeout: float) -> None:
        """Run the callbacks of records whose outcome is known."""
        with self._changed:
            if not self._done and self._outstanding and timeout:
                self._changed.wait(timeout)
        while self._done:
            self._done.popleft()()
            self._outstanding -= 1

    def flush(self, timeout: float) -> int:
        """Wait for the outcome of all records; the number of those without one."""
        deadline = time.monotonic() + timeout
        while self._outstanding and (left := deadline - time.monotonic()) > 0:
            self.poll(left)
        return self._outstanding

    def _partition(self, topic: str, key: bytes | None) -> int:
        if topic not in self._counts:
            with self._using_cluster:
                found = self._cluster.existing_topics([topic])[topic]
            self._counts[topic] = len(found.leaders)
        if key and not self._by_murmur2:
            return zlib.crc32(key) % self._counts[topic]  # librdkafka's default
        return partition_of(key or None, self._counts[topic])

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._buffered:
                    self._changed.wait()
            time.sleep(self._linger_s)
            with self._changed:
                taken, self._buffered = self._buffered, []
            for batch in _batches(taken):
                self._send(batch)

    def _send(self, batch: list[_Sent]) -> None:
        """Write one batch of a partition, and queue the callbacks of its records."""
        problem, base = None, -1
        try:
            with self._using_cluster:
                base = self._write(batch[0].at, [sent.record for sent in batch])
        except KafkaError as error:
            problem = LibraryError(int(error.code), str(error))
        except ClientError as error:
            problem = LibraryError(LibraryError._MSG_TIMED_OUT, str(error))
        now = time.perf_counter()
        with self._changed:
            for index, sent in enumerate(batch):
                offset = base + index if base >= 0 else -1
                record = sent.record._replace(offset=offset)
                message = OwnMessage(sent.at, record, latency_s=now - sent.began, problem=problem)
                self._done.append(_callback(sent.on_delivery, problem, message))
            self._changed.notify_all()

    def _write(self, at: TopicPartition, records: list[Record]) -> int:
        """The offset of the first record; -1 without acknowledgements."""
        from headrace.wire.records import encode_batch

        if self._producer is None:
            batch = encode_batch(records, codec=self._codec)
        else:
            sequence = self._sequences.get(at, 0)
            batch = encode_batch(
                records,
                codec=self._codec,
                producer_id=self._producer.producer_id,
                producer_epoch=self._producer.epoch,
                base_sequence=sequence,
            )
            self._sequences[at] = sequence + len(records)
        if self._acks:
            return produce(self._cluster, {at: batch}, self._producer, self._acks)[at]
        leader = self._cluster.leader(at)
        if leader not in self._unanswered:
            self._unanswered[leader] = self._cluster.connect(leader)
        timeout_s = self._cluster.config.request_timeout_s
        try:
            self._unanswered[leader].send(produce_request({at: batch}, None, 0, timeout_s))
        except ClientError:
            del self._unanswered[leader]
            self._cluster.forget()
            raise
        return -1


def _batches(records: Iterable[_Sent]) -> Iterable[list[_Sent]]:
    """Records by partition, in batches that brokers accept; each partition keeps its order."""
    open_batches: dict[TopicPartition, tuple[list[_Sent], int]] = {}
    for sent in records:
        batch, size = open_batches.get(sent.at, ([], 0))
        if batch and size + sent.size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(sent)
        open_batches[sent.at] = (batch, size + sent.size)
    for batch, _ in open_batches.values():
        yield batch


def _callback(
    function: Delivered | None, problem: LibraryError | None, message: OwnMessage
) -> Callable[[], None]:
    return (lambda: None) if function is None else (lambda: function(problem, message))


class OwnConsumer:
    """Reads assigned partitions; it reports the end of each, and joins no group."""

    def __init__(
        self, cluster: Cluster, settings: Mapping[str, object], translated: Translated
    ) -> None:
        self._cluster = cluster
        self._translated = translated
        committed = settings.get("isolation.level", "read_committed") == "read_committed"
        self._isolation = COMMITTED if committed else 0
        self._positions: dict[TopicPartition, int] = {}
        self._ready: deque[OwnMessage] = deque()
        self._at_end: set[TopicPartition] = set()

    def assign(self, partitions: Iterable[LibraryPartition]) -> None:
        """Read these partitions from their offsets on."""
        self._positions = {TopicPartition(p.topic, p.partition): p.offset for p in partitions}
        self._ready.clear()
        self._at_end.clear()

    def poll(self, timeout: float) -> OwnMessage | None:
        """The next record or error; None if there is none in time."""
        deadline = time.monotonic() + timeout
        while not self._ready:
            self._fetch()
            if not self._ready and time.monotonic() >= deadline:
                return None
        return self._ready.popleft()

    def consume(self, count: int, timeout: float) -> list[OwnMessage]:
        """Up to so many records and errors; without a timeout those that are already here."""
        if not self._ready and timeout > 0:
            first = self.poll(timeout)
            if first is not None:
                self._ready.appendleft(first)
        return [self._ready.popleft() for _ in range(min(count, len(self._ready)))]

    def close(self) -> None:
        self._cluster.close()

    def _fetch(self) -> None:
        with self._translated():
            try:
                self._find_beginnings()
                leaders = self._cluster.by_leader(self._positions)
                for broker, topics in leaders.items():
                    places = [place for rows in topics.values() for place in rows]
                    wanted = {place: self._positions[place] for place in places}
                    found = fetch_partitions(
                        self._cluster, broker, wanted, FETCH_BYTES, self._isolation,
                        FETCH_WAIT_MS // len(leaders),
                    )  # fmt: skip
                    for place, answer in found.items():
                        self._take(place, answer)
            except (KafkaError, ClientError) as error:
                if not is_retriable(error):
                    raise
                self._cluster.forget()
                time.sleep(self._cluster.config.retry_backoff_s)

    def _find_beginnings(self) -> None:
        begin = [place for place, at in self._positions.items() if at == OFFSET_BEGINNING]
        if begin:
            self._positions |= list_offsets(self._cluster, dict.fromkeys(begin, EARLIEST))

    def _take(self, place: TopicPartition, answer: FirstBatches) -> None:
        """Queue the records of one partition, and its end."""
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            # Retention has deleted records meanwhile; continue with the first that is left.
            self._positions[place] = OFFSET_BEGINNING
            return
        if answer.error is not None:
            raise KafkaError(answer.error, f"fetching {place}")
        position = self._positions[place]
        data = bytearray(answer.records)
        starts, end = whole_batches(data, 0, len(data))
        aborted = list(answer.aborted) if self._isolation else []
        for start, stop, header in visible_batches(data, [*starts, end], aborted):
            append_time = bool(header.attributes & LOG_APPEND_TIME)
            for record in iterate(data, start, stop, MAX_DECOMPRESSED_BYTES):
                if record.offset >= position:
                    self._ready.append(OwnMessage(place, record, append_time))
        # Partitions take turns at the front of a request, where one batch of any size is sent.
        del self._positions[place]
        self._positions[place] = read_header(data, starts[-1]).next_offset if starts else position
        bound = answer.last_stable if self._isolation else answer.high_watermark
        if self._positions[place] < bound:
            self._at_end.discard(place)
        elif place not in self._at_end:
            self._at_end.add(place)
            ended = LibraryError(LibraryError._PARTITION_EOF)
            at = Record(self._positions[place], -1, None, None)
            self._ready.append(OwnMessage(place, at, problem=ended))
