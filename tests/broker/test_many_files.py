"""Many partitions within few descriptors."""

import os
import resource
from collections.abc import Callable

from confluent_kafka import OFFSET_BEGINNING, Producer, TopicPartition

from headrace.testing.running import RunningBroker
from tests.broker.test_data_folders import create
from tests.testing.test_running import consumer_of

PARTITIONS = 300
FILES = 40
OTHERS = 60
"""Sockets, the database, standard streams, locks, and a few of the moment."""


def open_files(broker: RunningBroker) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


def test_more_partitions_than_descriptors_are_written_and_read(
    headrace_factory: Callable[..., RunningBroker],
) -> None:
    broker = headrace_factory({"headrace.open.files.max": str(FILES)})
    limit = FILES + OTHERS
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (limit, limit))
    create(broker, "many", PARTITIONS)
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for turn in range(2):
        for index in range(PARTITIONS):
            producer.produce(
                "many", f"{index}/{turn}", partition=index,
                callback=lambda error, _: failures.append(error) if error else None,
            )  # fmt: skip
        assert producer.flush(60) == 0
        assert open_files(broker) <= limit
    assert failures == []
    broker.restart()
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (limit, limit))
    consumer = consumer_of(broker)
    consumer.assign([TopicPartition("many", n, OFFSET_BEGINNING) for n in range(PARTITIONS)])
    found: dict[int, list[str]] = {}
    while sum(map(len, found.values())) < 2 * PARTITIONS:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None, message.error()
        found.setdefault(message.partition(), []).append(message.value().decode())
    consumer.close()
    assert found == {n: [f"{n}/0", f"{n}/1"] for n in range(PARTITIONS)}
    assert open_files(broker) <= limit
