"""The pytest fixture for other projects: a real broker with fault injection."""

import errno
import signal
import time
from collections.abc import Callable

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.errors import ErrorCode
from headrace.testing.running import BrokerDied, RunningBroker

Factory = Callable[..., RunningBroker]


def send(broker: RunningBroker, topic: str, *values: str, **options: object) -> list[int]:
    """Produce values one by one; the offsets they got."""
    return send_to(broker, topic, 0, *values, **options)


def send_to(
    broker: RunningBroker, topic: str, partition: int, *values: str, **options: object
) -> list[int]:
    """Produce values to one partition, one by one; the offsets they got."""
    offsets: list[int] = []

    def delivered(error: KafkaError | None, message: object) -> None:
        if error is not None:
            raise KafkaException(error)
        offsets.append(message.offset())  # type: ignore[attr-defined]

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, **options})
    for value in values:
        producer.produce(topic, value, partition=partition, callback=delivered)
        producer.flush(60)
    return offsets


def consumer_of(broker: RunningBroker) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
        }
    )


def read(broker: RunningBroker, topic: str, count: int) -> list[str]:
    return read_partition(broker, topic, 0, count)


def read_partition(broker: RunningBroker, topic: str, partition: int, count: int) -> list[str]:
    consumer = consumer_of(broker)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[str] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message.value().decode())
    consumer.close()
    return found


def test_a_shared_broker_takes_and_gives_records(headrace: RunningBroker) -> None:
    assert send(headrace, "shared", "a", "b") == [0, 1]
    assert read(headrace, "shared", 2) == ["a", "b"]


def test_settings_and_node_id_reach_the_broker(headrace_factory: Factory) -> None:
    broker = headrace_factory({"num.partitions": "4"}, node_id=7)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    metadata = producer.list_topics("made")
    assert list(metadata.brokers) == [7]
    assert sorted(metadata.topics["made"].partitions) == [0, 1, 2, 3]


def test_a_wrong_setting_is_named(headrace_factory: Factory) -> None:
    with pytest.raises(BrokerDied, match=r"num\.partition"):
        headrace_factory({"num.partitionz": "4"})


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_acknowledged_records_are_there_after_a_restart(
    headrace_factory: Factory, end: str
) -> None:
    broker = headrace_factory()
    address = broker.bootstrap_servers
    assert send(broker, "kept", "a", "b", "c") == [0, 1, 2]
    getattr(broker, end)()
    broker.start()
    assert broker.bootstrap_servers == address
    assert read(broker, "kept", 3) == ["a", "b", "c"]
    assert send(broker, "kept", "d") == [3]


def test_an_error_is_injected_count_times_and_the_request_is_not_handled(
    headrace_factory: Factory,
) -> None:
    broker = headrace_factory()
    send(broker, "struck", "a")
    broker.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, count=2)
    assert send(broker, "struck", "b", **{"retry.backoff.ms": 10}) == [1]
    assert read(broker, "struck", 2) == ["a", "b"]


def test_an_error_without_retry_reaches_the_client(headrace_factory: Factory) -> None:
    broker = headrace_factory()
    broker.fail("Produce", ErrorCode.MESSAGE_TOO_LARGE)
    with pytest.raises(KafkaException) as raised:
        send(broker, "refused", "a", retries=0)
    assert raised.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_an_error_in_an_administrative_request_reaches_the_client(
    headrace_factory: Factory,
) -> None:
    broker = headrace_factory()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    broker.fail("CreateTopics", ErrorCode.POLICY_VIOLATION)
    [created] = admin.create_topics([NewTopic("t", 1)]).values()
    with pytest.raises(KafkaException) as raised:
        created.result()
    assert raised.value.args[0].code() == KafkaError.POLICY_VIOLATION
    [created] = admin.create_topics([NewTopic("t", 1)]).values()
    assert created.result() is None


def test_a_lost_answer_makes_no_duplicate_of_an_idempotent_producer(
    headrace_factory: Factory,
) -> None:
    broker = headrace_factory()
    send(broker, "once", "a")
    broker.cut("Produce", after=True)
    options = {"enable.idempotence": True, "retry.backoff.ms": 10, "reconnect.backoff.ms": 10}
    assert send(broker, "once", "b", **options) == [1]
    assert send(broker, "once", "c") == [2]
    assert read(broker, "once", 3) == ["a", "b", "c"]


def test_a_cut_request_is_sent_again(headrace_factory: Factory) -> None:
    broker = headrace_factory()
    broker.cut("Produce")
    assert send(broker, "cut", "a", **{"reconnect.backoff.ms": 10}) == [0]


def test_a_delay_delays_and_nothing_is_lost(headrace_factory: Factory) -> None:
    broker = headrace_factory()
    send(broker, "late", "a")
    broker.delay("Produce", 0.4)
    began = time.monotonic()
    assert send(broker, "late", "b") == [1]
    assert time.monotonic() - began >= 0.4


def test_a_moved_clock_shows_in_log_append_times(headrace_factory: Factory) -> None:
    broker = headrace_factory({"log.message.timestamp.type": "LogAppendTime"})
    hour_ms = 3_600_000
    broker.move_clock(-5 * hour_ms)
    send(broker, "timed", "a")
    consumer = consumer_of(broker)
    consumer.assign([TopicPartition("timed", 0, 0)])
    message = consumer.poll(60)
    consumer.close()
    behind_ms = time.time() * 1000 - message.timestamp()[1]
    assert 4.9 * hour_ms < behind_ms < 5.1 * hour_ms


def test_cleared_faults_do_not_strike(headrace_factory: Factory) -> None:
    broker = headrace_factory()
    broker.fail("Produce", ErrorCode.MESSAGE_TOO_LARGE, count=5)
    assert broker.faults_left() == 5
    broker.clear_faults()
    assert broker.faults_left() == 0
    assert send(broker, "fine", "a", retries=0) == [0]


def test_an_unknown_api_is_refused_with_the_names_that_exist(headrace_factory: Factory) -> None:
    broker = headrace_factory()
    with pytest.raises(ValueError, match="Produce"):
        broker.fail("Prodoose", ErrorCode.NONE)


def test_the_disk_fails_at_the_point_that_was_named(headrace_factory: Factory) -> None:
    broker = headrace_factory()
    send(broker, "orders", "before")
    broker.trace_disk()
    broker.spoil_disk("pwrite .log", code=errno.ENOSPC, written=20)
    with pytest.raises(KafkaException):
        send(broker, "orders", "refused", retries=0)
    assert send(broker, "orders", "after") == [1]
    assert broker.trace_disk() == ["pwrite .log", "ftruncate .log", "pwrite .log"]
    assert read(broker, "orders", 2) == ["before", "after"]


def test_the_broker_dies_at_the_point_that_was_named(headrace_factory: Factory) -> None:
    broker = headrace_factory()
    send(broker, "orders", "before")
    broker.spoil_disk("pwrite .log", kill=True, written=30)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    producer.produce("orders", "torn")
    producer.poll(0)
    assert broker.wait_until_dead() == -signal.SIGKILL
    broker.start()
    assert producer.flush(60) == 0
    assert read(broker, "orders", 2) == ["before", "torn"]


def test_the_disk_can_fail_while_the_broker_starts(headrace_factory: Factory) -> None:
    broker = headrace_factory()
    broker.stop()
    with pytest.raises(BrokerDied):
        broker.start([{"point": "lock .lock", "code": errno.EIO}])
    broker.start()
