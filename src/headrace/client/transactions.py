"""Transactions of other producers: list and describe them, and abort one in a partition.

Transactions of this client are in `producing.py`; its `init_producer` aborts the open transaction
of a transactional id.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headrace.client.cluster import TRANSACTION, Cluster
from headrace.client.errors import UnsupportedVersion, check, error_of
from headrace.errors import ErrorCode
from headrace.types import TopicPartition
from headrace.wire.primitives import (
    ProducerId,
    TopicName,
    TransactionalId,
    i16,
    i32,
    i64,
    to_milliseconds,
)

if TYPE_CHECKING:
    from kio.schema.describe_transactions.v0.response import TransactionState


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id with its open or last transaction."""

    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer in the state of a partition's leader."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    transaction_start: int
    """The first offset of the transaction that is open in this partition; -1 without one."""


def list_transactions(
    cluster: Cluster, states: Iterable[str] = (), longer_ms: int = -1
) -> list[ListedTransaction]:
    """The ids of all coordinators in one of the states, open for `longer_ms`; with retries."""
    from kio.schema.list_transactions.v1.request import ListTransactionsRequest
    from kio.schema.list_transactions.v1.response import ListTransactionsResponse

    wanted = tuple(states)
    request = ListTransactionsRequest(state_filters=wanted, duration_filter=i64(longer_ms))
    found: list[ListedTransaction] = []
    for broker in cluster.retry("listing brokers", cluster.brokers):
        what = f"listing the transactions of broker {broker}"

        def attempt(broker: int = broker, what: str = what) -> ListTransactionsResponse:
            if longer_ms >= 0 and cluster.version(broker, request) < 1:
                raise UnsupportedVersion(
                    f"broker {broker} cannot filter transactions by their duration; "
                    "Apache Kafka 3.8 and newer can"
                )
            answer = cluster.ask(request, ListTransactionsResponse, broker)
            check(int(answer.error_code), what)
            return answer

        found += [
            ListedTransaction(
                str(row.transactional_id), int(row.producer_id), row.transaction_state
            )
            for row in cluster.retry(what, attempt).transaction_states
        ]
    return sorted(found, key=lambda each: each.transactional_id)


def describe_transaction(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    """Describe one id, with retries; TRANSACTIONAL_ID_NOT_FOUND if it does not exist."""
    found = describe_transactions(cluster, (transactional_id,))
    if transactional_id not in found:
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        raise error_of(code, f"transactional id {transactional_id!r}")
    return found[transactional_id]


def describe_transactions(
    cluster: Cluster, transactional_ids: Iterable[str]
) -> dict[str, TransactionDescription]:
    """Describe ids, with one request to each coordinator; missing ones are left out."""
    from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
    from kio.schema.describe_transactions.v0.response import DescribeTransactionsResponse

    wanted = tuple(dict.fromkeys(transactional_ids))

    def attempt() -> dict[str, TransactionDescription]:
        found: dict[str, TransactionDescription] = {}
        for broker, names in cluster.by_coordinator(TRANSACTION, wanted).items():
            request = DescribeTransactionsRequest(
                transactional_ids=tuple(map(TransactionalId, names))
            )
            answer = cluster.ask(request, DescribeTransactionsResponse, broker)
            for row in answer.transaction_states:
                name = str(row.transactional_id)
                if int(row.error_code) == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    continue
                check(int(row.error_code), f"transactional id {name!r}")
                found[name] = _described(row)
        return found

    return cluster.retry("describing transactions", attempt)


def _described(row: "TransactionState") -> TransactionDescription:
    return TransactionDescription(
        str(row.transactional_id),
        row.transaction_state,
        int(row.producer_id),
        int(row.producer_epoch),
        to_milliseconds(row.transaction_timeout),
        _milliseconds(row.transaction_start_time),
        tuple(
            sorted(
                TopicPartition(str(topic.topic), int(index))
                for topic in row.topics
                for index in topic.partitions
            )
        ),
    )


def _milliseconds(moment: datetime | None) -> int | None:
    """A time as a number; kio's type does not declare that it may be missing."""
    if moment is None:
        return None
    return to_milliseconds(moment - datetime(1970, 1, 1, tzinfo=UTC))


def active_producers(cluster: Cluster, partition: TopicPartition) -> list[ActiveProducer]:
    """The producers in the state of a partition's leader; with retries."""
    return active_producers_of(cluster, (partition,))[partition]


def active_producers_of(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[ActiveProducer]]:
    """The producers in the state of the leaders, with one request to each leader and retries."""
    from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
    from kio.schema.describe_producers.v0.response import DescribeProducersResponse

    wanted = tuple(partitions)
    found: dict[TopicPartition, list[ActiveProducer]] = {}

    def attempt() -> None:
        missing = [partition for partition in wanted if partition not in found]
        for broker, topics in cluster.by_leader(missing).items():
            request = DescribeProducersRequest(
                topics=tuple(
                    TopicRequest(
                        name=TopicName(name),
                        partition_indexes=tuple(i32(each.partition) for each in rows),
                    )
                    for name, rows in topics.items()
                )
            )
            for topic in cluster.ask(request, DescribeProducersResponse, broker).topics:
                for row in topic.partitions:
                    partition = TopicPartition(str(topic.name), int(row.partition_index))
                    check(int(row.error_code), str(partition), row.error_message)
                    found[partition] = [
                        ActiveProducer(
                            int(one.producer_id),
                            int(one.producer_epoch),
                            int(one.coordinator_epoch),
                            int(one.current_txn_start_offset),
                        )
                        for one in row.active_producers
                    ]

    cluster.retry("describing producers", attempt)
    return found


def write_abort_marker(
    cluster: Cluster, partition: TopicPartition, producer: ActiveProducer
) -> None:
    """End a producer's transaction in one partition without its coordinator, with retries.

    It is the only way to end a transaction that its coordinator no longer has.
    """
    from kio.schema.write_txn_markers.v1.request import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )
    from kio.schema.write_txn_markers.v1.response import WriteTxnMarkersResponse

    topic = WritableTxnMarkerTopic(
        name=TopicName(partition.topic), partition_indexes=(i32(partition.partition),)
    )
    marker = WritableTxnMarker(
        producer_id=ProducerId(producer.producer_id),
        producer_epoch=i16(producer.epoch),
        transaction_result=False,
        topics=(topic,),
        # The last coordinator epoch in this partition, or 0.
        coordinator_epoch=i32(max(producer.coordinator_epoch, 0)),
    )
    request = WriteTxnMarkersRequest(markers=(marker,))

    def attempt() -> None:
        answer = cluster.ask(request, WriteTxnMarkersResponse, cluster.leader(partition))
        check(int(answer.markers[0].topics[0].partitions[0].error_code), str(partition))

    cluster.retry(f"aborting a transaction in {partition}", attempt)
