"""The progress topic on a real broker: publishing and reading, without blocking queries."""

import logging
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource

from headrace.pipelines.running import progress
from headrace.pipelines.running.progress import Query
from headrace.pipelines.running.progress_topic import TOPIC, Publisher, QueryWatcher
from headrace.testing.plugin import BrokerFactory
from headrace.testing.running import RunningBroker
from tests.support.ports import free_port


@pytest.fixture
def broker(headrace_factory: BrokerFactory) -> RunningBroker:
    return headrace_factory()


@pytest.fixture
def consumer(broker: RunningBroker) -> Iterator[Consumer]:
    made = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "test",
            "enable.partition.eof": True,
        }
    )
    yield made
    made.close()


def query(name: str) -> Query:
    return Query(uuid.uuid4().hex, "run", name, "shop", "local-1", 1000, 1000)


def test_the_last_word_of_every_query_is_read(broker: RunningBroker, consumer: Consumer) -> None:
    one, two = query("one"), query("two")
    publisher = Publisher(broker.bootstrap_servers, {})
    for each in (one, two, replace(one, rows_total=5), progress.ended(two, 2000, "boom")):
        publisher.publish(each)
    publisher.flush(60)
    watcher = QueryWatcher(consumer)
    assert watcher.catch_up(10)
    assert watcher.queries == {
        one.id: replace(one, rows_total=5),
        two.id: progress.ended(two, 2000, "boom"),
    }
    publisher.publish(replace(one, rows_total=6))
    publisher.flush(60)
    assert watcher.catch_up(10)
    assert watcher.queries[one.id].rows_total == 6


def test_the_topic_is_compacted_and_has_one_partition(broker: RunningBroker) -> None:
    publisher = Publisher(broker.bootstrap_servers, {})
    publisher.publish(query("one"))
    publisher.flush(60)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    assert len(admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions) == 1
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
    found = admin.describe_configs([resource])[resource].result()
    assert found["cleanup.policy"].value == "compact,delete"


def test_a_second_program_finds_the_topic_there(broker: RunningBroker, consumer: Consumer) -> None:
    one, two = query("one"), query("two")
    for each in (one, two):
        publisher = Publisher(broker.bootstrap_servers, {})
        publisher.publish(each)
        publisher.flush(60)
    watcher = QueryWatcher(consumer)
    assert watcher.catch_up(10)
    assert set(watcher.queries) == {one.id, two.id}


def test_what_is_no_query_does_not_disturb(broker: RunningBroker, consumer: Consumer) -> None:
    one, gone = query("one"), query("gone")
    publisher = Publisher(broker.bootstrap_servers, {})
    publisher.publish(one)
    publisher.publish(gone)
    publisher.flush(60)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for key, value in [("x", b"\xff\xfe"), ("y", b"{}"), (gone.id, None), ("w", b"[]")]:
        producer.produce(TOPIC, key=key, value=value)
    assert producer.flush(60) == 0
    watcher = QueryWatcher(consumer)
    assert watcher.catch_up(10)
    assert watcher.queries == {one.id: one}


def test_an_unreachable_cluster_is_logged_once_and_affects_no_query(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"127.0.0.1:{free_port()}"
    publisher = Publisher(address, {"socket.connection.setup.timeout.ms": "1000"})
    monkeypatch.setattr("headrace.pipelines.running.progress_topic.ANSWER_TIMEOUT_S", 1)
    with caplog.at_level(logging.WARNING):
        publisher.publish(query("one"))
        publisher.publish(query("one"))
        publisher.flush(0.1)
    complaints = [record.getMessage() for record in caplog.records]
    assert len(complaints) == 1
    assert address in complaints[0]
    assert TOPIC in complaints[0]


def test_a_login_that_librdkafka_does_not_have_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
    publisher = Publisher("127.0.0.1:1", login)
    publisher.publish(query("one"))
    publisher.flush(1)
    assert "progress of queries cannot be published" in caplog.text
    assert "GSSAPI" in caplog.text
