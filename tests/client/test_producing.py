"""Transactions around whole batches, and offsets inside and outside of them."""

import uuid

import pytest
from confluent_kafka import Consumer

from headrace.client.cluster import Cluster
from headrace.client.groups import Committed, commit_offsets, committed_offsets
from headrace.client.offsets import COMMITTED, LATEST, list_offsets
from headrace.client.producing import (
    ProducerIdentity,
    add_offsets,
    add_partitions,
    commit_offsets_in_transaction,
    end_transaction,
    init_producer,
    produce,
)
from headrace.client.topics import create_topics
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition
from headrace.wire.batch import TRANSACTIONAL
from headrace.wire.records import Record, encode_batch


def batch(producer: ProducerIdentity, sequence: int, *texts: bytes) -> bytearray:
    return encode_batch(
        [Record(0, 1, None, text) for text in texts],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        attributes=TRANSACTIONAL if producer.transactional_id else 0,
    )


def committed_values(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"g-{uuid.uuid4().hex[:8]}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    ended = 0
    while len(found) < count or ended < 2:
        message = consumer.poll(60)
        assert message is not None, f"only {found} came"
        if message.error():
            ended += 1
        else:
            found.append(message.value() or b"")
    consumer.close()
    return sorted(found)


def test_committed_transactions_are_read_and_aborted_ones_are_not(
    cluster: Cluster, topic: str, bootstrap: str
) -> None:
    producer = init_producer(cluster, f"tx-{uuid.uuid4().hex[:8]}")
    parts = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    group = f"g-{uuid.uuid4().hex[:8]}"
    endings = ((b"kept", True), (b"undone", False), (b"kept too", True))
    for sequence, (text, commit) in enumerate(endings):
        add_partitions(cluster, producer, parts)
        produce(cluster, {part: batch(producer, sequence, text) for part in parts}, producer)
        add_offsets(cluster, producer, group)
        commit_offsets_in_transaction(cluster, producer, group, {parts[0]: (sequence, "m")})
        end_transaction(cluster, producer, commit)
    expected = [b"kept"] * 2 + [b"kept too"] * 2
    assert committed_values(bootstrap, topic, 4) == expected
    assert committed_offsets(cluster, group) == {parts[0]: Committed(2, "m")}
    assert list_offsets(cluster, {parts[1]: LATEST}, COMMITTED) == {parts[1]: 6}


def test_an_older_producer_of_the_id_is_fenced(cluster: Cluster, topic: str) -> None:
    name = f"tx-{uuid.uuid4().hex[:8]}"
    older = init_producer(cluster, name)
    add_partitions(cluster, older, [TopicPartition(topic, 0)])
    newer = init_producer(cluster, name)
    assert (newer.producer_id, newer.epoch > older.epoch) == (older.producer_id, True)
    with pytest.raises(KafkaError) as caught:
        end_transaction(cluster, older, True)
    assert caught.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


def test_a_repeated_batch_of_an_idempotent_producer_is_stored_once(
    cluster: Cluster, topic: str
) -> None:
    producer = init_producer(cluster)
    partition = TopicPartition(topic, 0)
    first = batch(producer, 0, b"a", b"b")
    assert produce(cluster, {partition: first}) == {partition: 0}
    assert produce(cluster, {partition: first}) == {partition: 0}
    assert list_offsets(cluster, {partition: LATEST}) == {partition: 2}


def test_offsets_are_committed_for_a_group_without_members(cluster: Cluster, topic: str) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    offsets = {TopicPartition(topic, n): Committed(n + 5, f"part {n}") for n in range(2)}
    commit_offsets(cluster, group, offsets)
    assert committed_offsets(cluster, group) == offsets
    some = [TopicPartition(topic, 1)]
    assert committed_offsets(cluster, group, some) == {some[0]: Committed(6, "part 1")}
    assert committed_offsets(cluster, "unknown group") == {}


def test_a_partition_that_refuses_its_batch_is_an_error_although_others_took_theirs(
    cluster: Cluster, topic: str
) -> None:
    other = f"{topic}-small"
    assert create_topics(cluster, [other], partitions=1, configs={"max.message.bytes": "200"}) == {}
    good, bad = TopicPartition(topic, 0), TopicPartition(other, 0)
    large = encode_batch([Record(0, 1, None, b"x" * 1000)])
    cluster.existing_topics([other])
    with pytest.raises(KafkaError) as refused:
        produce(cluster, {good: large, bad: large})
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert list_offsets(cluster, {good: LATEST}) == {good: 1}, "it was written once"
