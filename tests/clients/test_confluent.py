"""confluent-kafka (librdkafka): produce, fetch and administration, newest request versions."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.clients.conftest import MakeTopic

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@contextmanager
def consuming(bootstrap: str, *partitions: TopicPartition, **options: Any) -> Iterator[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "fetch.wait.max.ms": 100,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
    )
    consumer.assign(list(partitions))
    try:
        yield consumer
    finally:
        consumer.close()


def take(consumer: Any, count: int, timeout_s: float = 60) -> list[Any]:
    messages: list[Any] = []
    deadline = time.monotonic() + timeout_s
    while len(messages) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(messages), 0.5):
            assert message.error() is None, message.error()
            messages.append(message)
    return messages


def send(bootstrap: str, topic: str, values: list[bytes | None], **options: Any) -> list[Any]:
    """Produces and waits; returns the delivery reports, in order."""
    reports: list[Any] = []

    def on_delivery(error: Any, message: Any) -> None:
        assert error is None, error
        reports.append(message)

    producer = Producer(
        {"bootstrap.servers": bootstrap, **{k.replace("_", "."): v for k, v in options.items()}}
    )
    for value in values:
        producer.produce(topic, value, on_delivery=on_delivery)
    assert producer.flush(60) == 0
    return reports


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_comes_back_readable(bootstrap: str, topic: str, codec: str) -> None:
    values: list[bytes | None] = [b"mill " * 40 + b"%d" % n for n in range(500)]
    send(bootstrap, topic, values, compression_type=codec, linger_ms=20)
    with consuming(bootstrap, TopicPartition(topic, 0, 0)) as consumer:
        assert [m.value() for m in take(consumer, 500)] == values


@pytest.mark.parametrize("topic_codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_with_a_codec_of_its_own_still_reads_the_same(
    bootstrap: str, make_topic: MakeTopic, topic_codec: str
) -> None:
    topic = make_topic(**{"compression.type": topic_codec})
    values: list[bytes | None] = [b"mill " * 40 + b"%d" % n for n in range(100)]
    send(bootstrap, topic, values, compression_type="gzip", linger_ms=20)
    with consuming(bootstrap, TopicPartition(topic, 0, 0)) as consumer:
        messages = take(consumer, 100)
    assert [m.value() for m in messages] == values
    assert [m.offset() for m in messages] == list(range(100))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("topic_codec", ["producer", "zstd"])
def test_large_batches_whose_records_are_checked_are_read_in_order(
    bootstrap: str, make_topic: MakeTopic, codec: str, topic_codec: str
) -> None:
    """An idempotent producer with five requests under way; each batch takes the broker long."""
    topic = make_topic(**{"record.validation": "full", "compression.type": topic_codec})
    values: list[bytes | None] = [b"mill " * 100 + b"%d" % n for n in range(20_000)]
    send(
        bootstrap, topic, values, compression_type=codec, linger_ms=100, enable_idempotence=True,
        batch_num_messages=5_000, batch_size=10_000_000, message_max_bytes=1_000_000,
    )  # fmt: skip
    with consuming(bootstrap, TopicPartition(topic, 0, 0)) as consumer:
        messages = take(consumer, len(values), 60)
    assert [m.value() for m in messages] == values
    assert [m.offset() for m in messages] == list(range(len(values)))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_level_stores_the_records(bootstrap: str, topic: str, acks: str) -> None:
    values: list[bytes | None] = [b"%d" % n for n in range(50)]
    reports = send(bootstrap, topic, values, acks=acks)
    if acks != "0":
        assert [m.offset() for m in reports] == list(range(50))
    with consuming(bootstrap, TopicPartition(topic, 0, 0)) as consumer:
        assert [m.value() for m in take(consumer, 50)] == values


def test_an_idempotent_producer_stores_each_record_once_and_in_order(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "batch.num.messages": 7,
            "linger.ms": 0,
        }
    )
    for n in range(1000):
        producer.produce(topic, b"%d" % n, partition=n % 2)
        producer.poll(0)
    assert producer.flush(60) == 0
    for partition in (0, 1):
        with consuming(bootstrap, TopicPartition(topic, partition, 0)) as consumer:
            expected = [b"%d" % n for n in range(1000) if n % 2 == partition]
            assert [m.value() for m in take(consumer, 500)] == expected


def test_null_values_null_keys_and_headers_survive(bootstrap: str, topic: str) -> None:
    headers = [("a", b"1"), ("a", b"2"), ("none", None), ("empty", b"")]
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, None, key=b"tombstone")
    producer.produce(topic, b"v", headers=headers)
    producer.produce(topic, b"", key=b"")
    assert producer.flush(60) == 0
    with consuming(bootstrap, TopicPartition(topic, 0, 0)) as consumer:
        first, second, third = take(consumer, 3)
    assert (first.key(), first.value()) == (b"tombstone", None)
    assert (second.key(), second.value(), second.headers()) == (None, b"v", headers)
    assert (third.key(), third.value()) == (b"", b"")


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_both_timestamp_types_are_distinguished(
    bootstrap: str, make_topic: MakeTopic, kind: str
) -> None:
    topic = make_topic(**{"message.timestamp.type": kind})
    own = int(time.time() * 1000) - 60_000
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"v", timestamp=own)
    assert producer.flush(60) == 0
    with consuming(bootstrap, TopicPartition(topic, 0, 0)) as consumer:
        (message,) = take(consumer, 1)
    tag, stamp = message.timestamp()
    if kind == "CreateTime":
        assert (tag, stamp) == (TIMESTAMP_CREATE_TIME, own)
    else:
        assert tag == TIMESTAMP_LOG_APPEND_TIME
        assert stamp > own


def test_a_megabyte_arrives_whole_even_through_small_fetches(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(**{"max.message.bytes": "2000000"})
    large = bytes(range(256)) * 4096
    send(bootstrap, topic, [large, large], message_max_bytes=2_000_000)
    with consuming(
        bootstrap, TopicPartition(topic, 0, 0), fetch_message_max_bytes=10_000
    ) as consumer:
        assert [m.value() == large for m in take(consumer, 2)] == [True, True]


def test_a_record_beyond_the_topics_limit_is_refused_by_its_name(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(**{"max.message.bytes": "1000"})
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, bytes(5000), on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert [error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_reading_starts_at_any_offset_and_ends_at_the_end(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, [b"%d" % n for n in range(100)], linger_ms=5)
    with consuming(bootstrap, TopicPartition(topic, 0, 37)) as consumer:
        assert take(consumer, 1)[0].offset() == 37
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), 10) == (0, 100)
    with consuming(bootstrap, TopicPartition(topic, 0, 95), enable_partition_eof=True) as consumer:
        seen: list[Any] = []
        while not seen or seen[-1].error() is None:
            seen += consumer.consume(1, 10)
        assert seen[-1].error().code() == KafkaError._PARTITION_EOF
        assert [m.offset() for m in seen[:-1]] == [95, 96, 97, 98, 99]


def test_an_offset_out_of_range_follows_the_reset_policy(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, [b"%d" % n for n in range(10)])
    with consuming(
        bootstrap, TopicPartition(topic, 0, 5000), auto_offset_reset="earliest"
    ) as consumer:
        assert take(consumer, 1)[0].offset() == 0


def test_a_waiting_consumer_gets_a_new_record(bootstrap: str, topic: str) -> None:
    with consuming(bootstrap, TopicPartition(topic, 0, 0), fetch_wait_max_ms=50_000) as consumer:
        assert consumer.consume(1, 0.5) == []
        send(bootstrap, topic, [b"now"])
        assert [m.value() for m in take(consumer, 1, 40)] == [b"now"], "it got it after the wait"


def test_a_read_committed_consumer_reads_plain_records(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, [b"plain"])
    with consuming(
        bootstrap, TopicPartition(topic, 0, 0), isolation_level="read_committed"
    ) as consumer:
        assert [m.value() for m in take(consumer, 1)] == [b"plain"]


def test_a_thousand_partitions_are_created_written_and_read(
    bootstrap: str, admin: AdminClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(1000)
    assert len(admin.list_topics(topic, 20).topics[topic].partitions) == 1000
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(1000):
        producer.produce(topic, b"%d" % n, partition=n)
    assert producer.flush(60) == 0
    partitions = [TopicPartition(topic, n, 0) for n in range(1000)]
    with consuming(bootstrap, *partitions) as consumer:
        messages = take(consumer, 1000, 60)
    assert {(m.partition(), m.value()) for m in messages} == {(n, b"%d" % n) for n in range(1000)}


def test_an_unknown_topic_is_an_error_when_creation_is_not_allowed(
    bootstrap: str, new_name: str
) -> None:
    with consuming(bootstrap, allow_auto_create_topics=False) as consumer:
        described = consumer.list_topics(new_name, 20).topics[new_name]
        assert described.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        assert new_name not in consumer.list_topics(timeout=60).topics


def test_offsets_are_listed_by_every_specification(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    start = int(time.time() * 1000) - 100_000
    for n in (0, 1, 5, 2, 3):
        producer.produce(topic, b"v", timestamp=start + n * 1000)
    assert producer.flush(60) == 0
    partition = TopicPartition(topic, 0)

    def listed(spec: Any, **options: Any) -> Any:
        return admin.list_offsets({partition: spec}, **options)[partition].result(60)

    assert listed(OffsetSpec.earliest()).offset == 0
    assert listed(OffsetSpec.latest()).offset == 5
    assert listed(OffsetSpec.latest(), isolation_level=IsolationLevel.READ_COMMITTED).offset == 5
    newest = listed(OffsetSpec.max_timestamp())
    assert (newest.offset, newest.timestamp) == (2, start + 5000)
    assert listed(OffsetSpec.for_timestamp(start + 500)).offset == 1
    assert listed(OffsetSpec.for_timestamp(start + 50_000)).offset == -1


def test_deleted_records_are_gone_and_the_rest_stays(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    send(bootstrap, topic, [b"%d" % n for n in range(100)])
    partition = TopicPartition(topic, 0, 60)
    assert admin.delete_records([partition])[partition].result(60).low_watermark == 60
    with consuming(
        bootstrap, TopicPartition(topic, 0, 0), auto_offset_reset="earliest"
    ) as consumer:
        assert [m.offset() for m in take(consumer, 40)] == list(range(60, 100))


def _config(admin: AdminClient, resource: ConfigResource) -> dict[str, Any]:
    described: dict[str, Any] = admin.describe_configs([resource])[resource].result(60)
    return described


def test_topic_settings_are_changed_one_by_one_and_reset(admin: AdminClient, topic: str) -> None:
    def change(operation: AlterConfigOpType, value: str | None) -> None:
        entry = ConfigEntry("retention.ms", value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(60)

    resource = ConfigResource(ResourceType.TOPIC, topic)
    change(AlterConfigOpType.SET, "12345")
    entry = _config(admin, resource)["retention.ms"]
    assert (entry.value, entry.is_default) == ("12345", False)
    change(AlterConfigOpType.DELETE, None)
    assert _config(admin, resource)["retention.ms"].value == "604800000"


def test_broker_settings_are_described(admin: AdminClient) -> None:
    node = next(iter(admin.list_topics(timeout=60).brokers))
    described = _config(admin, ConfigResource(ResourceType.BROKER, str(node)))
    assert described["num.partitions"].value.isdigit()
    assert described["log.dirs"].value or described["log.dir"].value


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda name: NewTopic(name, 0, 1), KafkaError.INVALID_PARTITIONS),
        (lambda name: NewTopic(name, 1, 5), KafkaError.INVALID_REPLICATION_FACTOR),
        (lambda name: NewTopic("bad name!", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (
            lambda name: NewTopic(name, 1, 1, config={"retention.ms": "soon"}),
            KafkaError.INVALID_CONFIG,
        ),
        (
            lambda name: NewTopic(name, 1, 1, config={"no.such.setting": "1"}),
            KafkaError.INVALID_CONFIG,
        ),
    ],
)
def test_a_topic_that_cannot_be_made_is_refused_with_kafkas_code(
    admin: AdminClient, new_name: str, make: Callable[[str], NewTopic], code: int
) -> None:
    new = make(new_name)
    with pytest.raises(KafkaException) as raised:
        admin.create_topics([new])[new.topic].result(60)
    assert raised.value.args[0].code() == code


def test_validation_alone_creates_nothing(admin: AdminClient, new_name: str) -> None:
    admin.create_topics([NewTopic(new_name, 3, 1)], validate_only=True)[new_name].result(60)
    assert new_name not in admin.list_topics(timeout=60).topics


def test_partitions_are_added_but_never_taken_away(
    admin: AdminClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    admin.create_partitions([NewPartitions(topic, 6)])[topic].result(60)
    assert len(admin.list_topics(topic, 10).topics[topic].partitions) == 6
    with pytest.raises(KafkaException) as raised:
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(60)
    assert raised.value.args[0].code() == KafkaError.INVALID_PARTITIONS


def test_a_deleted_topic_is_gone_and_its_name_can_be_used_again(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    send(bootstrap, topic, [b"old"])
    admin.delete_topics([topic])[topic].result(60)
    assert topic not in admin.list_topics(timeout=60).topics
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    send(bootstrap, topic, [b"new"])
    with consuming(bootstrap, TopicPartition(topic, 0, 0)) as consumer:
        assert [m.value() for m in take(consumer, 1)] == [b"new"]


def test_the_cluster_describes_itself(admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(60)
    assert cluster.cluster_id
    assert cluster.controller is not None
    assert len(cluster.nodes) == 1
