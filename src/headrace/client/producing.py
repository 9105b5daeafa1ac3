"""Produce whole record batches, and transactions around them.

Every call is one attempt, or has retries if its docstring says so. Transactions follow the protocol
before KIP-890's second version, which every broker since 3.0 supports: partitions are added before
they are written to, and the epoch does not change until the next `init_producer`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.client.cluster import TRANSACTION, Cluster
from headrace.client.errors import check
from headrace.types import TopicPartition
from headrace.wire.primitives import (
    GroupId,
    ProducerId,
    TopicName,
    TransactionalId,
    i16,
    i32,
    i64,
    milliseconds,
)

ALL_REPLICAS = -1


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """A producer: its id and epoch, and its transactional id, if any."""

    producer_id: int
    epoch: int
    transactional_id: str | None = None

    @property
    def in_transactions(self) -> str:
        """The transactional id, which must be set."""
        assert self.transactional_id is not None, "this producer has no transactional id"
        return self.transactional_id


def init_producer(
    cluster: Cluster,
    transactional_id: str | None = None,
    timeout_ms: int = 60_000,
    current: ProducerIdentity | None = None,
) -> ProducerIdentity:
    """A producer id, with retries. Older producers of a transactional id are fenced and aborted.

    With `current` only the epoch is incremented, if that producer is still the last of the id.
    """
    from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
    from kio.schema.init_producer_id.v4.response import InitProducerIdResponse

    request = InitProducerIdRequest(
        transactional_id=None if transactional_id is None else TransactionalId(transactional_id),
        transaction_timeout=milliseconds(timeout_ms),
        producer_id=ProducerId(current.producer_id if current else -1),
        producer_epoch=i16(current.epoch if current else -1),
    )
    what = f"getting a producer id for {transactional_id!r}"

    def attempt() -> ProducerIdentity:
        broker = None
        if transactional_id is not None:
            broker = cluster.coordinator(TRANSACTION, transactional_id)
        answer = cluster.ask(request, InitProducerIdResponse, broker)
        check(int(answer.error_code), what)
        epoch = int(answer.producer_epoch)
        return ProducerIdentity(int(answer.producer_id), epoch, transactional_id)

    return cluster.retry(what, attempt)


def add_partitions(
    cluster: Cluster, producer: ProducerIdentity, partitions: Iterable[TopicPartition]
) -> None:
    """Add partitions to the producer's transaction, with retries."""
    from kio.schema.add_partitions_to_txn.v3.request import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
    )
    from kio.schema.add_partitions_to_txn.v3.response import AddPartitionsToTxnResponse

    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TransactionalId(producer.in_transactions),
        v3_and_below_producer_id=ProducerId(producer.producer_id),
        v3_and_below_producer_epoch=i16(producer.epoch),
        v3_and_below_topics=tuple(
            AddPartitionsToTxnTopic(name=TopicName(name), partitions=tuple(map(i32, indexes)))
            for name, indexes in topics.items()
        ),
    )
    what = f"adding partitions to the transaction of {producer.transactional_id!r}"

    def attempt() -> None:
        broker = cluster.coordinator(TRANSACTION, producer.in_transactions)
        answer = cluster.ask(request, AddPartitionsToTxnResponse, broker)
        for topic in answer.results_by_topic_v3_and_below:
            for row in topic.results_by_partition:
                check(int(row.partition_error_code), f"{what}: {topic.name}-{row.partition_index}")

    cluster.retry(what, attempt)


def produce(
    cluster: Cluster,
    batches: Mapping[TopicPartition, bytes | bytearray | memoryview],
    producer: ProducerIdentity | None = None,
    acks: int = ALL_REPLICAS,
) -> dict[TopicPartition, int]:
    """Produce one batch for each partition, with retries; returns their base offsets.

    Raises if a partition refuses its batch; others may have theirs by then. Retries are safe only
    if the batches have a producer id and sequence.
    """
    done: dict[TopicPartition, int] = {}

    def attempt() -> None:
        missing = [partition for partition in batches if partition not in done]
        for broker, topics in cluster.by_leader(missing).items():
            some = {each: batches[each] for parts in topics.values() for each in parts}
            _produce_once(cluster, broker, some, producer, acks, done)

    cluster.retry("producing", attempt)
    return done


def _produce_once(
    cluster: Cluster,
    broker: int,
    batches: Mapping[TopicPartition, bytes | bytearray | memoryview],
    producer: ProducerIdentity | None,
    acks: int,
    done: dict[TopicPartition, int],
) -> None:
    """Produce batches of one broker; adds the base offsets to `done`, and raises the last error."""
    from kio.schema.produce.v9.response import ProduceResponse

    request = produce_request(batches, producer, acks, cluster.config.request_timeout_s)
    failure: Exception | None = None
    for topic in cluster.ask(request, ProduceResponse, broker).responses:
        for row in topic.partition_responses:
            partition = TopicPartition(str(topic.name), int(row.index))
            try:
                check(int(row.error_code), f"producing to {partition}", row.error_message)
                done[partition] = int(row.base_offset)
            except Exception as error:
                failure = error
    if failure is not None:
        raise failure


def produce_request(
    batches: Mapping[TopicPartition, bytes | bytearray | memoryview],
    producer: ProducerIdentity | None,
    acks: int,
    timeout_s: float,
) -> object:
    """A Produce request with these batches, for callers that pipeline several."""
    from kio.schema.produce.v9.request import (
        PartitionProduceData,
        ProduceRequest,
        TopicProduceData,
    )

    topics: dict[str, list[PartitionProduceData]] = {}
    for partition, batch in batches.items():
        data = PartitionProduceData(index=i32(partition.partition), records=batch)  # type: ignore[arg-type]  # the codec writes any bytes
        topics.setdefault(partition.topic, []).append(data)
    name = producer.transactional_id if producer else None
    return ProduceRequest(
        transactional_id=None if name is None else TransactionalId(name),
        acks=i16(acks),
        timeout=milliseconds(int(timeout_s * 1000)),
        topic_data=tuple(
            TopicProduceData(name=TopicName(topic), partition_data=tuple(parts))
            for topic, parts in topics.items()
        ),
    )


def add_offsets(cluster: Cluster, producer: ProducerIdentity, group: str) -> None:
    """Add a group's offsets to the transaction, with retries."""
    from kio.schema.add_offsets_to_txn.v3.request import AddOffsetsToTxnRequest
    from kio.schema.add_offsets_to_txn.v3.response import AddOffsetsToTxnResponse

    request = AddOffsetsToTxnRequest(
        transactional_id=TransactionalId(producer.in_transactions),
        producer_id=ProducerId(producer.producer_id),
        producer_epoch=i16(producer.epoch),
        group_id=GroupId(group),
    )
    what = f"adding offsets of {group!r} to the transaction of {producer.transactional_id!r}"

    def attempt() -> None:
        broker = cluster.coordinator(TRANSACTION, producer.in_transactions)
        check(int(cluster.ask(request, AddOffsetsToTxnResponse, broker).error_code), what)

    cluster.retry(what, attempt)


def commit_offsets_in_transaction(
    cluster: Cluster,
    producer: ProducerIdentity,
    group: str,
    offsets: Mapping[TopicPartition, tuple[int, str]],
) -> None:
    """Commit offsets with their metadata in the transaction, with retries."""
    from kio.schema.txn_offset_commit.v3.request import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitRequestPartition,
        TxnOffsetCommitRequestTopic,
    )
    from kio.schema.txn_offset_commit.v3.response import TxnOffsetCommitResponse

    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for partition, (offset, metadata) in offsets.items():
        row = TxnOffsetCommitRequestPartition(
            partition_index=i32(partition.partition),
            committed_offset=i64(offset),
            committed_metadata=metadata,
        )
        topics.setdefault(partition.topic, []).append(row)
    request = TxnOffsetCommitRequest(
        transactional_id=TransactionalId(producer.in_transactions),
        group_id=GroupId(group),
        producer_id=ProducerId(producer.producer_id),
        producer_epoch=i16(producer.epoch),
        generation_id=i32(-1),
        member_id="",
        group_instance_id=None,
        topics=tuple(
            TxnOffsetCommitRequestTopic(name=TopicName(name), partitions=tuple(rows))
            for name, rows in topics.items()
        ),
    )
    what = f"committing offsets of {group!r} in a transaction"

    def attempt() -> None:
        from headrace.client.cluster import GROUP

        broker = cluster.coordinator(GROUP, group)
        for topic in cluster.ask(request, TxnOffsetCommitResponse, broker).topics:
            for row in topic.partitions:
                check(int(row.error_code), f"{what}: {topic.name}-{row.partition_index}")

    cluster.retry(what, attempt)


def end_transaction(cluster: Cluster, producer: ProducerIdentity, commit: bool) -> None:
    """Commit or abort, with retries. Repeating the same decision is not an error."""
    from kio.schema.end_txn.v3.request import EndTxnRequest
    from kio.schema.end_txn.v3.response import EndTxnResponse

    request = EndTxnRequest(
        transactional_id=TransactionalId(producer.in_transactions),
        producer_id=ProducerId(producer.producer_id),
        producer_epoch=i16(producer.epoch),
        committed=commit,
    )
    what = f"ending the transaction of {producer.transactional_id!r}"

    def attempt() -> None:
        broker = cluster.coordinator(TRANSACTION, producer.in_transactions)
        check(int(cluster.ask(request, EndTxnResponse, broker).error_code), what)

    cluster.retry(what, attempt)
