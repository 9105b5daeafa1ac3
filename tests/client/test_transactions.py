"""Transactions are listed, described and aborted from outside, on our broker and on Kafka."""

import uuid

import pytest

from headrace.client.cluster import Cluster
from headrace.client.offsets import COMMITTED, LATEST, list_offsets
from headrace.client.producing import add_partitions, end_transaction, init_producer, produce
from headrace.client.transactions import (
    active_producers,
    describe_transaction,
    list_transactions,
    write_abort_marker,
)
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition
from headrace.wire.records import Record, encode_batch

TRANSACTIONAL = 0x10


@pytest.fixture
def name() -> str:
    return f"x-{uuid.uuid4().hex[:12]}"


def test_an_open_transaction_is_listed_and_described(
    cluster: Cluster, topic: str, name: str
) -> None:
    producer = init_producer(cluster, name, 30_000)
    idle = describe_transaction(cluster, name)
    assert (idle.state, idle.start_ms, idle.partitions) == ("Empty", None, ())
    add_partitions(cluster, producer, [TopicPartition(topic, 1)])
    found = describe_transaction(cluster, name)
    assert (found.state, found.timeout_ms) == ("Ongoing", 30_000)
    assert (found.producer_id, found.epoch) == (producer.producer_id, producer.epoch)
    assert found.partitions == (TopicPartition(topic, 1),)
    assert found.start_ms is not None
    assert found.start_ms > 1_700_000_000_000

    def listed(states: list[str], longer_ms: int = -1) -> bool:
        rows = list_transactions(cluster, states, longer_ms)
        return name in [each.transactional_id for each in rows]

    assert listed([])
    assert listed(["Ongoing"])
    assert not listed(["Empty"])
    assert not listed([], 3_600_000)
    end_transaction(cluster, producer, commit=False)


def test_a_missing_id_is_reported(cluster: Cluster) -> None:
    with pytest.raises(KafkaError) as caught:
        describe_transaction(cluster, "nobody")
    assert caught.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_an_abort_marker_ends_a_transaction_in_one_partition(
    cluster: Cluster, topic: str, name: str
) -> None:
    at = TopicPartition(topic, 0)
    producer = init_producer(cluster, name)
    add_partitions(cluster, producer, [at])
    records = [Record(0, 1, None, b"x")]
    batch = encode_batch(
        records,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=0,
        attributes=TRANSACTIONAL,
    )
    produce(cluster, {at: batch}, producer)
    assert list_offsets(cluster, {at: LATEST}, COMMITTED) == {at: 0}
    (found,) = active_producers(cluster, at)
    assert (found.producer_id, found.transaction_start) == (producer.producer_id, 0)
    write_abort_marker(cluster, at, found)
    assert list_offsets(cluster, {at: LATEST}, COMMITTED) == {at: 2}
    (ended,) = active_producers(cluster, at)
    assert ended.transaction_start == -1
