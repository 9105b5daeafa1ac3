"""kafka-python: the lecture snippets that need no consumer group, and what else it can do."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewPartitions, NewTopic
from kafka.errors import MessageSizeTooLargeError, TopicAlreadyExistsError

from tests.clients.conftest import MakeTopic

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]


@contextmanager
def producing(bootstrap: str, **options: Any) -> Iterator[Any]:
    producer = KafkaProducer(bootstrap_servers=[bootstrap], **options)
    try:
        yield producer
    finally:
        producer.close(timeout=60)


@contextmanager
def consuming(bootstrap: str, *topics: str, **options: Any) -> Iterator[Any]:
    options.setdefault("auto_offset_reset", "earliest")
    options.setdefault("consumer_timeout_ms", 60_000)
    consumer = KafkaConsumer(*topics, bootstrap_servers=[bootstrap], **options)
    try:
        yield consumer
    finally:
        consumer.close()


def take(consumer: Any, count: int, timeout_s: float = 60) -> list[Any]:
    """Exactly `count` records, or fewer when time is up."""
    records: list[Any] = []
    deadline = time.monotonic() + timeout_s
    while len(records) < count and time.monotonic() < deadline:
        for batch in consumer.poll(timeout_ms=500, max_records=count - len(records)).values():
            records += batch
    return records


def test_the_simple_producer_and_consumer_use_an_automatically_created_topic(
    bootstrap: str, new_name: str
) -> None:
    with producing(bootstrap) as producer:
        producer.send(new_name, b"a_value")

    with consuming(bootstrap, new_name) as consumer:
        message = next(iter(consumer))

    line = (
        f"{message.topic}:{message.partition:d}:{message.offset:d}: "
        f"key={message.key} value={message.value}"
    )
    assert line == f"{new_name}:{message.partition}:0: key=None value=b'a_value'"


def test_the_iterator_ends_by_itself_when_nothing_more_comes(bootstrap: str, topic: str) -> None:
    with producing(bootstrap) as producer:
        for number in range(3):
            producer.send(topic, b"%d" % number)

    with consuming(bootstrap, topic, consumer_timeout_ms=1000) as consumer:
        assert [message.value for message in take(consumer, 3)] == [b"0", b"1", b"2"]
        assert list(consumer) == []


def test_a_connection_that_fails_is_an_exception_and_not_a_hang(bootstrap: str) -> None:
    def connect(address: str) -> Any:
        try:
            return KafkaProducer(
                bootstrap_servers=[address], bootstrap_timeout_ms=500, request_timeout_ms=1000
            )
        except Exception:
            return None

    connected = connect(bootstrap)
    assert connected is not None
    connected.close()
    assert connect("127.0.0.1:1") is None


def test_a_key_and_a_value_come_back_as_the_bytes_they_were(bootstrap: str, topic: str) -> None:
    with producing(bootstrap) as producer:
        producer.send(topic, b"a_value")
        producer.send(topic, value=b"a_value", key=b"a_key")

    with consuming(bootstrap, topic) as consumer:
        records = take(consumer, 2)
    assert [(r.key, r.value) for r in records] == [(None, b"a_value"), (b"a_key", b"a_value")]


def test_strings_and_integers_made_into_bytes_arrive(bootstrap: str, topic: str) -> None:
    with producing(bootstrap) as producer:
        producer.send(topic, bytes("a_string_value", "utf-8"))
        producer.send(topic, bytes(5))

    with consuming(bootstrap, topic) as consumer:
        assert [r.value for r in take(consumer, 2)] == [b"a_string_value", b"\0" * 5]


def test_a_thousand_json_records_keep_their_order(bootstrap: str, topic: str) -> None:
    with producing(bootstrap, value_serializer=lambda x: json.dumps(x).encode("utf-8")) as producer:
        for number in range(1000):
            producer.send(topic, {"number": number})

    with consuming(
        bootstrap, topic, value_deserializer=lambda x: json.loads(x.decode("utf-8"))
    ) as consumer:
        assert [r.value["number"] for r in take(consumer, 1000)] == list(range(1000))


def test_json_can_be_parsed_by_the_reader_itself(bootstrap: str, topic: str) -> None:
    with producing(bootstrap) as producer:
        producer.send(topic, b'{"number": 7}')

    with consuming(bootstrap, topic) as consumer:
        assert [json.loads(r.value) for r in take(consumer, 1)] == [{"number": 7}]


def test_a_synchronous_send_returns_topic_partition_and_offset(bootstrap: str, topic: str) -> None:
    with producing(bootstrap) as producer:
        for expected in range(3):
            metadata = producer.send(topic, b"raw_bytes").get(timeout=60)
            assert (metadata.topic, metadata.partition, metadata.offset) == (topic, 0, expected)


def test_publish_and_flush_leaves_the_message_in_the_log(bootstrap: str, topic: str) -> None:
    with producing(bootstrap) as producer:
        producer.send(topic, key=bytes("k", encoding="utf-8"), value=bytes("v", encoding="utf-8"))
        producer.flush()
        with consuming(bootstrap, topic) as consumer:
            assert [(r.key, r.value) for r in take(consumer, 1)] == [(b"k", b"v")]


def test_the_same_key_always_goes_to_the_same_partition(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(4)
    with producing(bootstrap) as producer:
        sent = [producer.send(topic, key=b"key-%d" % (n % 20), value=b"v") for n in range(100)]
        places = [(n % 20, future.get(60).partition) for n, future in enumerate(sent)]
    assert len(set(places)) == 20
    assert len({partition for _, partition in places}) > 1


def test_a_partitioner_given_to_the_producer_decides(bootstrap: str, make_topic: MakeTopic) -> None:
    class Last:
        def partition(self, topic: str, key: bytes, cluster: Any) -> int:
            return max(cluster.partitions_for_topic(topic))

    topic = make_topic(3)
    with producing(bootstrap, partitioner=Last()) as producer:
        assert {producer.send(topic, b"v", key=b"%d" % n).get(60).partition for n in range(5)} == {
            2
        }


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_comes_back_readable(bootstrap: str, topic: str, codec: str | None) -> None:
    values = [b"river " * 50 + b"%d" % number for number in range(200)]
    with producing(bootstrap, compression_type=codec, linger_ms=20) as producer:
        for value in values:
            producer.send(topic, value)

    with consuming(bootstrap, topic) as consumer:
        assert [r.value for r in take(consumer, 200)] == values


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_acks_level_stores_the_records(bootstrap: str, topic: str, acks: int | str) -> None:
    with producing(bootstrap, acks=acks, enable_idempotence=False) as producer:
        futures = [producer.send(topic, b"%d" % number) for number in range(10)]
        producer.flush(60)
    if acks != 0:
        assert [future.get(1).offset for future in futures] == list(range(10))

    with consuming(bootstrap, topic) as consumer:
        assert [r.value for r in take(consumer, 10)] == [b"%d" % number for number in range(10)]


def test_null_values_null_keys_and_headers_survive(bootstrap: str, topic: str) -> None:
    headers = [("trace", b"\x00\x01"), ("empty", b""), ("trace", b"again")]
    with producing(bootstrap) as producer:
        producer.send(topic, value=None, key=b"tombstone")
        producer.send(topic, value=b"v", key=None, headers=headers)
        producer.send(topic, value=b"", key=b"")

    with consuming(bootstrap, topic) as consumer:
        first, second, third = take(consumer, 3)
    assert (first.key, first.value) == (b"tombstone", None)
    assert (second.key, second.value, list(second.headers)) == (None, b"v", headers)
    assert (third.key, third.value) == (b"", b"")


def test_a_timestamp_set_by_the_application_is_kept(bootstrap: str, topic: str) -> None:
    moment = int(time.time() * 1000) - 3_600_000
    with producing(bootstrap) as producer:
        assert producer.send(topic, b"v", timestamp_ms=moment).get(60).timestamp == moment

    with consuming(bootstrap, topic) as consumer:
        (record,) = take(consumer, 1)
    assert (record.timestamp, record.timestamp_type) == (moment, 0)


def test_log_append_time_is_the_brokers_own(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(**{"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000) - 1000
    with producing(bootstrap) as producer:
        producer.send(topic, b"v", timestamp_ms=before - 3_600_000).get(60)

    with consuming(bootstrap, topic) as consumer:
        (record,) = take(consumer, 1)
    assert record.timestamp_type == 1
    assert before <= record.timestamp <= int(time.time() * 1000) + 1000


def test_an_assigned_consumer_seeks_anywhere(bootstrap: str, topic: str) -> None:
    with producing(bootstrap) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number)

    partition = TopicPartition(topic, 0)
    with consuming(bootstrap) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 90)
        assert take(consumer, 1)[0].offset == 90
        consumer.seek_to_beginning(partition)
        assert take(consumer, 1)[0].offset == 0
        consumer.seek_to_end(partition)
        assert consumer.position(partition) == 100
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 100}


def test_an_offset_is_found_by_its_timestamp(bootstrap: str, topic: str) -> None:
    start = int(time.time() * 1000) - 100_000
    with producing(bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"v", timestamp_ms=start + number * 1000)

    partition = TopicPartition(topic, 0)
    with consuming(bootstrap) as consumer:
        found = consumer.offsets_for_times({partition: start + 4500})[partition]
        assert (found.offset, found.timestamp) == (5, start + 5000)
        assert consumer.offsets_for_times({partition: start + 99_000})[partition] is None


def test_a_megabyte_arrives_whole_and_more_than_allowed_is_refused(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(**{"max.message.bytes": "1200000"})
    large = bytes(range(256)) * 4096
    with producing(bootstrap, max_request_size=3_000_000) as producer:
        producer.send(topic, large).get(60)
        with pytest.raises(MessageSizeTooLargeError):
            producer.send(topic, large * 2).get(60)

    with consuming(bootstrap, topic) as consumer:
        assert [r.value for r in take(consumer, 1)] == [large]


def test_a_waiting_consumer_gets_a_new_record(bootstrap: str, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    waits = {"fetch_max_wait_ms": 100_000, "request_timeout_ms": 110_000}
    with consuming(bootstrap, **waits) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        consumer.poll(timeout_ms=300)
        with producing(bootstrap) as producer:
            producer.send(topic, b"now").get(60)
        # Long before the broker would have answered that there is nothing.
        assert [r.value for r in take(consumer, 1, timeout_s=60)] == [b"now"]


def test_the_admin_client_creates_describes_grows_and_deletes(
    bootstrap: str, new_name: str
) -> None:
    client = KafkaAdminClient(bootstrap_servers=[bootstrap])
    try:
        client.create_topics([NewTopic(new_name, num_partitions=2, replication_factor=1)])
        with pytest.raises(TopicAlreadyExistsError):
            client.create_topics([NewTopic(new_name, num_partitions=2, replication_factor=1)])
        assert new_name in client.list_topics()
        client.create_partitions({new_name: NewPartitions(5)})
        (described,) = client.describe_topics([new_name])
        assert len(described["partitions"]) == 5
        client.delete_topics([new_name])
        assert new_name not in client.list_topics()
    finally:
        client.close()
