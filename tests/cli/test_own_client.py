"""Records over our own client, which logins need that librdkafka does not have."""

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.cli.client import ClusterOptions, open_client, translated
from headrace.cli.records.own_client import OwnConsumer, OwnMessage, OwnProducer
from headrace.client.configs import alter_configs
from headrace.types import ConfigResourceType

PATIENCE_S = 60


@pytest.fixture
def options(bootstrap: str) -> ClusterOptions:
    return ClusterOptions(bootstrap)


@pytest.fixture
def reader(options: ClusterOptions) -> Iterator[Callable[..., OwnConsumer]]:
    made: list[OwnConsumer] = []

    def make(isolation: str = "read_committed") -> OwnConsumer:
        settings = {"isolation.level": isolation}
        made.append(OwnConsumer(open_client(options), settings, lambda: translated(options)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def sender(options: ClusterOptions, **settings: object) -> OwnProducer:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return OwnProducer(open_client(options), {"acks": "all", **given})


def until_end(consumer: OwnConsumer, *partitions: TopicPartition) -> list[OwnMessage]:
    """All records until the end of each partition was reported."""
    consumer.assign(partitions)
    found: list[OwnMessage] = []
    ended, deadline = 0, time.monotonic() + PATIENCE_S
    while ended < len(partitions):
        assert time.monotonic() < deadline
        for message in consumer.consume(100, timeout=1):
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF
                ended += 1
    return found


def test_aborted_transactions_are_visible_to_uncommitted_readers_only(
    options: ClusterOptions, topic: str, reader: Callable[..., OwnConsumer]
) -> None:
    producer = Producer({"bootstrap.servers": options.bootstrap, "transactional.id": topic})
    producer.init_transactions(PATIENCE_S)
    for text, commit in (("one", True), ("two", False), ("three", True)):
        producer.begin_transaction()
        producer.produce(topic, text.encode(), partition=0)
        producer.flush(PATIENCE_S)
        if commit:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
    place = TopicPartition(topic, 0, OFFSET_BEGINNING)
    assert [one.value() for one in until_end(reader(), place)] == [b"one", b"three"]
    read = until_end(reader("read_uncommitted"), place)
    assert [one.value() for one in read] == [b"one", b"two", b"three"]


def test_new_records_arrive_after_the_end_was_reported(
    options: ClusterOptions, topic: str, reader: Callable[..., OwnConsumer]
) -> None:
    consumer = reader()
    assert until_end(consumer, TopicPartition(topic, 0, 0)) == []
    assert consumer.poll(0.1) is None, "the end is reported once"
    producer = sender(options)
    producer.produce(topic, b"late", b"key", partition=0, timestamp=7, headers=[("a", None)])
    deadline = time.monotonic() + PATIENCE_S
    # Sent without a call of poll or flush: a line that a user types is not held back.
    while (found := consumer.poll(1)) is None:
        assert time.monotonic() < deadline
    assert (found.key(), found.value(), found.timestamp()) == (b"key", b"late", (1, 7))
    assert found.headers() == [("a", None)]
    assert (found.topic(), found.partition(), found.offset()) == (topic, 0, 0)


def test_a_deleted_position_continues_with_the_first_record_that_is_left(
    options: ClusterOptions, topic: str, reader: Callable[..., OwnConsumer]
) -> None:
    producer = sender(options)
    for number in range(10):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    admin = AdminClient({"bootstrap.servers": options.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 4)]).values()
    assert deleted.result(PATIENCE_S).low_watermark == 4
    read = until_end(reader(), TopicPartition(topic, 0, 1))
    assert [one.value() for one in read] == [b"%d" % number for number in range(4, 10)]


def test_a_refused_batch_fails_its_records_and_no_others(
    options: ClusterOptions, topic: str
) -> None:
    with open_client(options) as cluster:
        alter_configs(cluster, ConfigResourceType.TOPIC, topic, {"max.message.bytes": "2000"})
    producer = sender(options)
    results: list[KafkaError | None] = []
    for size in (10, 1_000_000, 10):
        producer.produce(
            topic,
            b"x" * size,
            partition=0,
            on_delivery=lambda error, _: results.append(error),
        )
        assert producer.flush(PATIENCE_S) == 0
    assert results[0] is None
    assert results[2] is None
    assert results[1] is not None
    assert results[1].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_too_many_waiting_records_are_refused_until_some_are_delivered(
    options: ClusterOptions, topic: str
) -> None:
    producer = sender(options, queue_buffering_max_messages=2)
    producer.produce(topic, b"1")
    producer.produce(topic, b"2")
    with pytest.raises(BufferError):
        producer.produce(topic, b"3")
    assert len(producer) == 2
    assert producer.flush(PATIENCE_S) == 0
    producer.produce(topic, b"3")
    assert producer.flush(PATIENCE_S) == 0
