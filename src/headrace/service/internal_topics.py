"""Creates, follows and writes the compacted topics in which services store their state.

A thread fetches records and passes them to the event loop, which replays them; only the event loop
changes the state that requests read. A service writes, and then waits until it has read its own
records.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.committed_records import TopicRecord, committed_records
from headrace.client.config import ClientConfig
from headrace.client.errors import ClientError, Unreachable, check, is_retriable
from headrace.client.fetching import whole_batches
from headrace.client.offsets import COMMITTED, EARLIEST, LATEST, list_offsets
from headrace.client.partitioner import partition_of
from headrace.client.producing import (
    ProducerIdentity,
    add_partitions,
    end_transaction,
    init_producer,
    produce,
)
from headrace.client.topics import create_topics, describe_topics
from headrace.errors import ErrorCode, KafkaError
from headrace.service.errors import ClusterUnreachable, TopicUnusable
from headrace.types import TopicPartition
from headrace.wire.batch import TRANSACTIONAL, read_header
from headrace.wire.primitives import TopicName, i8, i32, i64, milliseconds
from headrace.wire.records import Record, encode_batch

log = logging.getLogger(__name__)


FETCH_WAIT_MS = 500
FETCH_BYTES = 8 << 20
PARTITION_BYTES = 1 << 20
TRANSACTION_TIMEOUT_MS = 10_000
"""After this time the cluster aborts the transaction of a writer that has disappeared."""


class KeyValue(NamedTuple):
    """A record to be written; a value of None deletes the key."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A topic as it is created if it does not exist."""

    name: str
    partitions: int
    replication_factor: int
    setting: str
    """The setting with its name."""


class Follow(NamedTuple):
    """A topic to follow, and what its records are passed to, in the event loop."""

    topic: str
    partitions: int
    take: Callable[[TopicRecord], None]


def make_topics(cluster: Cluster, topics: Sequence[InternalTopic]) -> dict[str, int]:
    """Create what does not exist; the number of partitions of each."""
    try:
        found = describe_topics(cluster, [topic.name for topic in topics])
        counts = {name: len(each.partitions) for name, each in found.items() if each.partitions}
        brokers = len(cluster.retry("listing brokers", cluster.brokers))
        for topic in topics:
            if topic.name not in counts:
                _create(cluster, topic, brokers)
                counts[topic.name] = topic.partitions
    except Unreachable as error:
        raise ClusterUnreachable(f"no Kafka cluster responds: {error}") from None
    except (ClientError, KafkaError) as error:
        raise TopicUnusable(f"the internal topics cannot be used: {error}") from None
    return counts


def _create(cluster: Cluster, topic: InternalTopic, brokers: int) -> None:
    refused = create_topics(
        cluster,
        [topic.name],
        partitions=topic.partitions,
        replication_factor=min(topic.replication_factor, brokers),
        configs={"cleanup.policy": "compact"},
    )
    for error in refused.values():
        # Another process may have created it in the meantime.
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise TopicUnusable(
                f"topic {topic.name} ({topic.setting}) could not be created: {error}"
            )


class TopicFollower:
    """Reads topics from their beginning until it is closed."""

    def __init__(self, config: ClientConfig, follows: Iterable[Follow]) -> None:
        self._config = config
        self._follows = {each.topic: each for each in follows}
        self._positions: dict[TopicPartition, int] = {}
        """Up to where records were replayed. Only the event loop changes it."""
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[Mapping[TopicPartition, int], asyncio.Future[None]]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="internal-topics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Blocks until the thread has ended."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    @property
    def partitions(self) -> list[TopicPartition]:
        """All that is followed."""
        return [
            TopicPartition(topic, index)
            for topic, each in self._follows.items()
            for index in range(each.partitions)
        ]

    async def reached(self, ends: Mapping[TopicPartition, int]) -> None:
        """Returns when the records below these offsets are replayed."""
        if not self._has_reached(ends):
            future = self._loop.create_future()
            self._waiting.append((ends, future))
            await future

    def _has_reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        return all(self._positions.get(partition, 0) >= end for partition, end in ends.items())

    def _run(self) -> None:
        cluster = Cluster(self._config)
        positions: dict[TopicPartition, int] = {}
        try:
            while not self._stopping.is_set():
                try:
                    self._poll(cluster, positions)
                except (KafkaError, ClientError) as error:
                    log.warning("error while reading %s: %s", ", ".join(self._follows), error)
                    if isinstance(error, KafkaError) and (
                        error.code is ErrorCode.OFFSET_OUT_OF_RANGE
                    ):
                        positions.clear()
                    cluster.renew()
                    retriable = is_retriable(error)
                    pause_s = cluster.config.retry_backoff_s
                    time.sleep(pause_s if retriable else cluster.config.retry_backoff_max_s)
        finally:
            cluster.close()

    def _poll(self, cluster: Cluster, positions: dict[TopicPartition, int]) -> None:
        if len(positions) < len(self.partitions):
            missing = {each: EARLIEST for each in self.partitions if each not in positions}
            positions |= list_offsets(cluster, missing)
            self._loop.call_soon_threadsafe(self._replay, [], dict(positions))
        leaders = cluster.by_leader(positions)
        for broker, topics in leaders.items():
            some = [each for parts in topics.values() for each in parts]
            wait_ms = FETCH_WAIT_MS // len(leaders)
            records: list[tuple[str, TopicRecord]] = []
            try:
                for partition, found, following in fetch(
                    cluster, broker, {each: positions[each] for each in some}, wait_ms
                ):
                    records += ((partition.topic, record) for record in found)
                    positions[partition] = following
            finally:
                # What was read before an error is not read again.
                self._loop.call_soon_threadsafe(self._replay, records, dict(positions))

    def _replay(
        self, records: list[tuple[str, TopicRecord]], positions: dict[TopicPartition, int]
    ) -> None:
        for topic, record in records:
            try:
                self._follows[topic].take(record)
            except Exception:
                log.exception("skipped offset %d of %s", record.offset, topic)
        self._positions |= positions
        waiting, self._waiting = self._waiting, []
        for ends, future in waiting:
            if not self._has_reached(ends):
                self._waiting.append((ends, future))
            elif not future.done():
                future.set_result(None)


def fetch(
    cluster: Cluster, broker: int, positions: Mapping[TopicPartition, int], wait_ms: int
) -> Iterable[tuple[TopicPartition, list[TopicRecord], int]]:
    """The committed records of partitions of one leader, and the offset that follows them."""
    from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
    from kio.schema.fetch.v12.response import FetchResponse

    topics: dict[str, list[FetchPartition]] = {}
    for partition, offset in positions.items():
        row = FetchPartition(
            partition=i32(partition.partition),
            fetch_offset=i64(offset),
            partition_max_bytes=i32(PARTITION_BYTES),
        )
        topics.setdefault(partition.topic, []).append(row)
    request = FetchRequest(
        max_wait=milliseconds(wait_ms),
        min_bytes=i32(1),
        max_bytes=i32(FETCH_BYTES),
        isolation_level=i8(COMMITTED),
        topics=tuple(
            FetchTopic(topic=TopicName(name), partitions=tuple(rows))
            for name, rows in topics.items()
        ),
        forgotten_topics_data=(),
    )
    answer = cluster.ask(request, FetchResponse, broker)
    check(int(answer.error_code), "fetching internal topics")
    for topic in answer.responses:
        for part in topic.partitions:
            partition = TopicPartition(str(topic.topic), int(part.partition_index))
            check(int(part.error_code), f"fetching {partition}")
            data = bytearray(part.records or b"")
            starts, end = whole_batches(data, 0, len(data))
            if not starts:
                continue
            aborted = [
                (int(each.producer_id), int(each.first_offset))
                for each in part.aborted_transactions or ()
            ]
            first = positions[partition]
            found = list(committed_records(data, [*starts, end], aborted, first))
            yield partition, found, max(first, read_header(data, starts[-1]).next_offset)


class TopicWriter:
    """Appends records with an idempotent producer, one request after the other.

    With a transactional id each call is a transaction, and `take_over` fences other writers: their
    next write fails, and so does the next write of this one after another has taken over.
    """

    def __init__(
        self,
        config: ClientConfig,
        partitions: Mapping[str, int],
        transactional_id: str | None = None,
    ) -> None:
        self._cluster = Cluster(config)
        self._partitions = partitions
        self._transactional_id = transactional_id
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="topic-writer")
        self._producer: ProducerIdentity | None = None
        self._is_known = False
        """Whether it is known which sequences come next, and that no transaction is open."""
        self._sequences: dict[TopicPartition, int] = {}

    async def take_over(self) -> None:
        """Fences earlier writers with this transactional id, and aborts what they left open."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._init_producer, None)

    async def write(self, topic: str, records: Sequence[KeyValue]) -> dict[TopicPartition, int]:
        """The offsets that follow the records, which are stored."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._write, topic, records)

    async def ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Where partitions end now."""

        def ask() -> dict[TopicPartition, int]:
            return list_offsets(self._cluster, dict.fromkeys(partitions, LATEST), COMMITTED)

        return await asyncio.get_running_loop().run_in_executor(self._thread, ask)

    def close(self) -> None:
        self._thread.shutdown(wait=True)
        self._cluster.close()

    def _init_producer(self, current: ProducerIdentity | None) -> ProducerIdentity:
        self._producer = init_producer(
            self._cluster, self._transactional_id, TRANSACTION_TIMEOUT_MS, current
        )
        self._sequences.clear()
        self._is_known = True
        return self._producer

    def _write(self, topic: str, records: Sequence[KeyValue]) -> dict[TopicPartition, int]:
        by_partition: dict[TopicPartition, list[Record]] = {}
        for key, value in records:
            partition = TopicPartition(topic, partition_of(key, self._partitions[topic]))
            record = Record(0, int(time.time() * 1000), key, value)
            by_partition.setdefault(partition, []).append(record)
        producer = self._producer
        if producer is None or not self._is_known:
            # A transactional id that another writer has taken over since is not taken back.
            producer = self._init_producer(producer if self._transactional_id else None)
        self._is_known = False
        offsets = self._produce(producer, by_partition)
        self._is_known = True
        for partition, rows in by_partition.items():
            self._sequences[partition] = self._sequences.get(partition, 0) + len(rows)
        return {each: offset + len(by_partition[each]) for each, offset in offsets.items()}

    def _produce(
        self, producer: ProducerIdentity, by_partition: Mapping[TopicPartition, list[Record]]
    ) -> dict[TopicPartition, int]:
        transactional = producer.transactional_id is not None
        batches = {
            partition: encode_batch(
                rows,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=self._sequences.get(partition, 0),
                attributes=TRANSACTIONAL if transactional else 0,
            )
            for partition, rows in by_partition.items()
        }
        if transactional:
            add_partitions(self._cluster, producer, by_partition)
        offsets = produce(self._cluster, batches, producer)
        if transactional:
            end_transaction(self._cluster, producer, commit=True)
        return offsets
