"""Requests between transaction coordinators and partition leaders on different brokers.

A coordinator has the leaders of a transaction's partitions write its markers (WriteTxnMarkers); a
leader asks the coordinator whether a partition is in a transaction (AddPartitionsToTxn, as brokers
use it).
"""

from collections.abc import Collection

from kio.schema.add_partitions_to_txn.v5.request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kio.schema.add_partitions_to_txn.v5.response import AddPartitionsToTxnResponse
from kio.schema.write_txn_markers.v2.request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kio.schema.write_txn_markers.v2.response import WriteTxnMarkersResponse

from headrace.coordination.transactions import Identity
from headrace.errors import ErrorCode, KafkaError
from headrace.replication.peers import Peers
from headrace.types import BrokerId, TopicPartition
from headrace.wire.primitives import ProducerId, TopicName, TransactionalId, i8, i16, i32

_NOT_IN_IT = (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)


async def write_markers(
    peers: Peers,
    leader: BrokerId,
    partitions: Collection[TopicPartition],
    who: Identity,
    commit: bool,
    coordinator_epoch: int,
    version: int,
) -> dict[TopicPartition, ErrorCode]:
    """Have another broker write markers to its partitions; returns the result of each.

    `version` is the transaction version: from 2 on, the epoch is above that of the transaction.
    """
    topics = {
        name: tuple(i32(index) for index in indexes) for name, indexes in _by_topic(partitions)
    }
    request = WriteTxnMarkersRequest(
        markers=(
            WritableTxnMarker(
                producer_id=ProducerId(who.producer_id),
                producer_epoch=i16(who.epoch),
                transaction_result=commit,
                topics=tuple(
                    WritableTxnMarkerTopic(name=TopicName(name), partition_indexes=indexes)
                    for name, indexes in topics.items()
                ),
                coordinator_epoch=i32(coordinator_epoch),
                transaction_version=i8(version),
            ),
        )
    )
    answer = await peers.ask(leader, request, WriteTxnMarkersResponse)
    return {
        TopicPartition(str(topic.name), int(row.partition_index)): ErrorCode(int(row.error_code))
        for marker in answer.markers
        for topic in marker.topics
        for row in topic.partitions
    }


async def enlist(
    peers: Peers,
    coordinator: BrokerId,
    name: str,
    who: Identity,
    partitions: frozenset[TopicPartition],
    add: bool,
) -> frozenset[TopicPartition]:
    """As `TransactionCoordinator.enlist`, of a transactional id that another broker coordinates."""
    request = AddPartitionsToTxnRequest(
        transactions=(
            AddPartitionsToTxnTransaction(
                transactional_id=TransactionalId(name),
                producer_id=ProducerId(who.producer_id),
                producer_epoch=i16(who.epoch),
                verify_only=not add,
                topics=tuple(
                    AddPartitionsToTxnTopic(
                        name=TopicName(topic), partitions=tuple(i32(index) for index in indexes)
                    )
                    for topic, indexes in _by_topic(partitions)
                ),
            ),
        )
    )
    answer = await peers.ask(coordinator, request, AddPartitionsToTxnResponse)
    if answer.error_code:
        raise KafkaError(ErrorCode(int(answer.error_code)))
    missing = set()
    for transaction in answer.results_by_transaction:
        for topic in transaction.topic_results:
            for row in topic.results_by_partition:
                code = ErrorCode(int(row.partition_error_code))
                if code in _NOT_IN_IT:
                    missing.add(TopicPartition(str(topic.name), int(row.partition_index)))
                elif code is not ErrorCode.NONE:
                    raise KafkaError(code)
    return frozenset(missing)


def _by_topic(partitions: Collection[TopicPartition]) -> list[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for name, index in sorted(partitions):
        found.setdefault(name, []).append(index)
    return list(found.items())
