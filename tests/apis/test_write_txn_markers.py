"""WriteTxnMarkers ends transactions, or returns an error."""

import asyncio
from typing import Any

import pytest
from kio.schema.write_txn_markers.v2.request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

from headrace.apis.transactions.write_txn_markers import write_txn_markers
from headrace.errors import ErrorCode
from headrace.wire.batch import TRANSACTIONAL
from headrace.wire.primitives import ProducerId, TopicName, i8, i16, i32
from headrace.wire.records import Record, encode_batch
from tests.apis.one_broker import NOW, OneBroker, over_the_wire


def write(
    broker: OneBroker, epoch: int, coordinator_epoch: int = 0, transaction_version: int = 0
) -> list[ErrorCode]:
    """Abort what producer 7 has open in partitions 0, 1 and 5 of `t`; their error codes."""
    topic = WritableTxnMarkerTopic(name=TopicName("t"), partition_indexes=(i32(0), i32(1), i32(5)))
    marker = WritableTxnMarker(
        producer_id=ProducerId(7),
        producer_epoch=i16(epoch),
        transaction_result=False,
        topics=(topic,),
        coordinator_epoch=i32(coordinator_epoch),
        transaction_version=i8(transaction_version),
    )
    request = WriteTxnMarkersRequest(markers=(marker,))
    response: Any = over_the_wire(broker, write_txn_markers, 27, 2, request)
    (answer,) = response.markers
    (found,) = answer.topics
    assert (answer.producer_id, found.name) == (7, "t")
    assert [p.partition_index for p in found.partitions] == [0, 1, 5]
    return [ErrorCode(int(p.error_code)) for p in found.partitions]


@pytest.fixture
def opened(broker: OneBroker) -> OneBroker:
    """Producer 7 has a transaction of epoch 2 open in partition 0 of two."""
    broker.create("t", 2)
    return append(broker)


def append(broker: OneBroker) -> OneBroker:
    data = encode_batch(
        [Record(0, NOW, b"k", b"v")],
        producer_id=7,
        producer_epoch=2,
        base_sequence=0,
        attributes=TRANSACTIONAL,
    )
    partition = broker.replicas.partition("t", 0)
    verification = partition.verifications.begin(7, 2)
    partition.append(data, memoryview(data), 0, len(data), -1, NOW, verification)
    return broker


UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_markers_end_transactions(opened: OneBroker) -> None:
    partition = opened.replicas.partition("t", 0)
    assert partition.replica.last_stable_offset == 0
    assert write(opened, 2) == [ErrorCode.NONE, ErrorCode.NONE, UNKNOWN]
    assert partition.replica.last_stable_offset == 2
    assert partition.replica.log.transactions.between(0, 2) == [(7, 0)]


def test_a_delayed_marker_does_not_end_the_next_transaction(opened: OneBroker) -> None:
    """With transaction version 2, the last transaction ended with the epoch of this one."""
    replica = opened.replicas.partition("t", 0).replica
    assert write(opened, 2, transaction_version=2)[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert 7 in replica.log.producers.open_transactions
    assert write(opened, 3, transaction_version=2)[0] == ErrorCode.NONE
    assert 7 not in replica.log.producers.open_transactions
    assert write(opened, 3, transaction_version=2)[0] == ErrorCode.NONE, "a retry is harmless"


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (-1, ErrorCode.INVALID_REQUEST)],
)
def test_markers_of_other_clients_are_refused(
    opened: OneBroker, epoch: int, code: ErrorCode
) -> None:
    assert write(opened, epoch)[0] == code
    assert 7 in opened.replicas.partition("t", 0).replica.log.producers.open_transactions


def test_markers_of_an_earlier_coordinator_are_refused(opened: OneBroker) -> None:
    write(opened, 2, coordinator_epoch=4)
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert write(opened, 2, coordinator_epoch=3) == [fenced, fenced, UNKNOWN]


def test_a_marker_is_answered_when_it_is_on_the_disk(broker: OneBroker) -> None:
    broker.create("t", 2, flush_messages="1")
    partition = broker.replicas.partition("t", 0)

    async def produce() -> None:
        append(broker)
        await partition.wait_committed(1)

    asyncio.run(produce())
    assert write(broker, 2)[:2] == [ErrorCode.NONE, ErrorCode.NONE]
    assert (
        partition.replica.last_stable_offset == partition.replica.log.durability.recovery_point == 2
    )
