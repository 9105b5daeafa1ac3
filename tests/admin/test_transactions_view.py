"""Open transactions and what they keep back, on our broker and on Apache Kafka."""

import time
import uuid
from dataclasses import replace

import pytest

from headrace.admin.errors import NotFound
from headrace.admin.transactions_view import (
    HeldPartition,
    TransactionAbort,
    TransactionHold,
    abort_hanging,
    abort_transaction,
    existing_transaction,
    held_partitions,
    hold_of,
    open_transactions,
)
from headrace.client.cluster import Cluster
from headrace.client.producing import ProducerIdentity, add_partitions, init_producer, produce
from headrace.client.transactions import ActiveProducer, TransactionDescription
from headrace.types import TopicPartition
from headrace.wire.records import Record, encode_batch
from tests.admin.conftest import MakeTopic
from tests.support.stores import eventually

TRANSACTIONAL = 0x10
FUTURE_MS = 3_600_000


@pytest.fixture
def name() -> str:
    return f"x-{uuid.uuid4().hex[:12]}"


def write(cluster: Cluster, producer: ProducerIdentity, at: TopicPartition) -> None:
    """Two records in the producer's transaction."""
    batch = encode_batch(
        [Record(0, 1, None, b"x"), Record(1, 1, None, b"y")],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=0,
        attributes=TRANSACTIONAL,
    )
    produce(cluster, {at: batch}, producer)


def begin(cluster: Cluster, name: str, at: TopicPartition) -> ProducerIdentity:
    producer = init_producer(cluster, name, 30_000)
    add_partitions(cluster, producer, [at])
    write(cluster, producer, at)
    return producer


def test_an_open_transaction_has_an_age_and_its_partitions(
    cluster: Cluster, make_topic: MakeTopic, name: str
) -> None:
    at = TopicPartition(make_topic(2), 1)
    producer = begin(cluster, name, at)
    now_ms = time.time_ns() // 1_000_000 + FUTURE_MS
    found = {each.transactional_id: each for each in open_transactions(cluster, now_ms)}[name]
    assert (found.state, found.partitions) == ("Ongoing", (at,))
    assert (found.producer_id, found.timeout_ms) == (producer.producer_id, 30_000)
    assert found.age_ms is not None
    assert 0 <= found.age_ms - FUTURE_MS < 600_000
    abort_transaction(cluster, existing_transaction(cluster, name))
    eventually(
        lambda: name not in [each.transactional_id for each in open_transactions(cluster, now_ms)],
        "the abort is complete",
    )


def test_a_held_partition_names_the_producer_that_holds_it(
    cluster: Cluster, make_topic: MakeTopic, name: str
) -> None:
    topic = make_topic(2)
    at = TopicPartition(topic, 0)
    assert held_partitions(cluster, [topic]) == []
    producer = begin(cluster, name, at)
    hold = TransactionHold(producer.producer_id, producer.epoch, 0, name, "Ongoing")
    (held,) = held_partitions(cluster, [topic])
    assert held == HeldPartition(at, 0, 2, (hold,))
    assert held.hidden == 2
    assert not hold.hanging
    assert held in held_partitions(cluster)
    done = abort_transaction(cluster, existing_transaction(cluster, name))
    assert done == TransactionAbort(True, producer.producer_id, name)
    eventually(lambda: held_partitions(cluster, [topic]) == [], "the abort is complete")


def test_a_missing_id_and_a_missing_transaction_are_not_found(
    cluster: Cluster, make_topic: MakeTopic
) -> None:
    with pytest.raises(NotFound, match="nobody"):
        existing_transaction(cluster, "nobody")
    topic = make_topic()
    with pytest.raises(NotFound, match="offset 7"):
        abort_hanging(cluster, TopicPartition(topic, 0), 7)
    with pytest.raises(NotFound, match="no partition 9"):
        abort_hanging(cluster, TopicPartition(topic, 9), 0)


def test_a_transaction_is_aborted_in_one_partition_without_its_coordinator(
    cluster: Cluster, make_topic: MakeTopic, name: str
) -> None:
    topic = make_topic()
    at = TopicPartition(topic, 0)
    producer = begin(cluster, name, at)
    done = abort_hanging(cluster, at, 0)
    assert done == TransactionAbort(True, producer.producer_id, partition=at)
    assert held_partitions(cluster, [topic]) == []
    abort_transaction(cluster, existing_transaction(cluster, name))


def test_a_transaction_that_no_coordinator_has_hangs() -> None:
    at = TopicPartition("t", 0)
    producer = ActiveProducer(7, 3, 0, 40)
    here = TransactionDescription("x", "Ongoing", 7, 3, 30_000, 0, (at,))
    assert hold_of(at, producer, here) == TransactionHold(7, 3, 40, "x", "Ongoing")
    assert hold_of(at, producer, None).hanging
    elsewhere = replace(here, partitions=(TopicPartition("t", 1),))
    assert hold_of(at, producer, elsewhere).hanging
    ending = replace(elsewhere, state="PrepareAbort")
    assert not hold_of(at, producer, ending).hanging, "its marker is on the way"
