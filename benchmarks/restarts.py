"""Restarts with many partitions that all hold records: after a clean stop and after kill -9."""

import os
import time

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from benchmarks.processes import resident_mb
from benchmarks.sides import Broker, fresh_broker
from tests.support.headrace_broker import HeadraceBroker

_TOPIC_PARTITIONS = 1000


def measure(partitions: int) -> list[tuple[str, float, str]]:
    """(title, value, unit) of each figure."""
    topics = [f"wide-{n}" for n in range(max(1, partitions // _TOPIC_PARTITIONS))]
    each = partitions // len(topics)
    with fresh_broker("headrace", "restarts") as broker:
        assert isinstance(broker, HeadraceBroker), "Apache Kafka is not what is measured here"
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for name in topics:
            admin.create_topics([NewTopic(name, each, 1)])[name].result(120)
        _write_everywhere(broker, topics, each)
        files = _open_files(broker)
        began = time.monotonic()
        broker.stop()
        stop_s = time.monotonic() - began
        clean_s = broker.start()
        opening_s = _open_everything(broker, topics, each)
        opened_files, memory_mb = _open_files(broker), resident_mb(broker.pid)
        broker.kill()
        killed_s = broker.start()
        _write_everywhere(broker, topics, each)
        broker.kill()
        dirty_s = broker.start()
        return [
            ("clean stop", stop_s, "s"),
            ("restart after a clean stop", clean_s, "s"),
            ("opening every log then", opening_s, "s"),
            ("memory with all of them open", memory_mb, "MB"),
            ("open files after writing to all", files, ""),
            ("open files after opening all", opened_files, ""),
            ("restart after kill -9, all flushed", killed_s, "s"),
            ("restart after kill -9, all written to", dirty_s, "s"),
        ]


def _write_everywhere(broker: Broker, topics: list[str], each: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "queue.buffering.max.messages": 1_000_000,
            "message.timeout.ms": 300_000,
        }
    )
    failures: list[object] = []
    for topic in topics:
        for index in range(each):
            producer.produce(
                topic, b"x" * 100, partition=index,
                callback=lambda error, _: failures.append(error) if error else None,
            )  # fmt: skip
        producer.poll(0)
    assert producer.flush(300) == 0
    assert not failures, failures[:3]


def _open_everything(broker: Broker, topics: list[str], each: int) -> float:
    """Seconds until the end of every log is known, which opens it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    began = time.monotonic()
    for topic in topics:
        wanted = {TopicPartition(topic, index): OffsetSpec.latest() for index in range(each)}
        for future in admin.list_offsets(wanted, request_timeout=120).values():
            assert future.result(120).offset > 0
    return time.monotonic() - began


def _open_files(broker: Broker) -> float:
    return float(len(os.listdir(f"/proc/{broker.pid}/fd")))
