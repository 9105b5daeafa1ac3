"""Compaction in a running broker: killed at its steps, its process killed, its internal topics."""

import os
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from headrace.testing.plugin import BrokerFactory
from headrace.testing.running import RunningBroker
from tests.support.ports import free_port

TOPIC = "states"
KEYS = 40
SETTINGS = {
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
CONFIG = {"cleanup.policy": "compact", "internal.segment.bytes": "4000"}


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    running = RunningBroker(SETTINGS)
    yield running
    running.close()


def admin(broker: RunningBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def create(broker: RunningBroker) -> None:
    client = admin(broker)
    client.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIG)])[TOPIC].result(60)


def alter(broker: RunningBroker, kind: ResourceType, name: str, **config: str) -> None:
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in config.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    client = admin(broker)
    for future in client.incremental_alter_configs([resource]).values():
        future.result(60)


def write(broker: RunningBroker, turn: int, count: int = 600) -> dict[bytes, bytes]:
    """Give every key a new value, many times over; the last ones."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.size": 1000})
    last = {}
    for n in range(count):
        key, value = b"k%d" % (n % KEYS), b"%d-%d" % (turn, n)
        producer.produce(TOPIC, value, key)
        last[key] = value
        if n % 50 == 0:
            producer.poll(0)
    producer.flush(60)
    return last


def read(broker: RunningBroker, topic: str = TOPIC) -> list[tuple[int, bytes, bytes]]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while not (message := consumer.poll(60)).error():
        found.append((message.offset(), message.key(), message.value()))
    consumer.close()
    return found


def folder(broker: RunningBroker, topic: str = TOPIC) -> Path:
    return broker.data_dir / f"{topic}-0"


def cleaned_to(broker: RunningBroker, topic: str = TOPIC) -> int:
    path = broker.data_dir / "cleaner-offset-checkpoint"
    rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return next((int(row[2]) for row in rows if row[0] == topic), 0)


def wait_until(what: str, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.02)


def wait_compacted(broker: RunningBroker, topic: str = TOPIC) -> None:
    def clean() -> bool:
        bases = [int(path.stem) for path in folder(broker, topic).glob("*.log")]
        return max(bases) == cleaned_to(broker, topic) > 0

    wait_until(f"compaction of {topic}", clean)


def workers(broker: RunningBroker) -> list[int]:
    children = [
        int(child)
        for task in Path(f"/proc/{broker.pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    return [
        child
        for child in children
        if b"compaction.worker" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0]
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_a_broker_killed_at_any_step_of_a_swap_loses_nothing(broker: RunningBroker) -> None:
    create(broker)
    points = [
        ".log.swap",
        ".timeindex.swap",
        ".log.deleted",
        ".timeindex.deleted",
        ".log",
        ".index",
    ]
    points.append("cleaner-offset-checkpoint")
    last = write(broker, 0)
    for turn, point in enumerate(points, 1):
        wait_compacted(broker)
        broker.spoil_disk(f"rename {point}", kill=1, after=turn % 2)
        last.update(write(broker, turn))
        assert broker.wait_until_dead() == -signal.SIGKILL, point
        # The last batches may have been lost with the broker: write them again.
        broker.start()
        last.update(write(broker, turn))
        assert {key: value for _, key, value in read(broker)} == last, point
    wait_compacted(broker)
    found = read(broker)
    assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
    assert {key: value for _, key, value in found} == last
    assert len(found) < 600
    names = os.listdir(folder(broker))
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]


def slow_down(broker: RunningBroker) -> list[int]:
    """Have a compaction that takes long; the process that does it."""
    alter(broker, ResourceType.BROKER, "1", log_cleaner_io_max_bytes_per_second="10000")
    create(broker)
    write(broker, 0, 2000)
    wait_until("a compaction", lambda: [*folder(broker).glob("*.cleaned")])
    return workers(broker)


@pytest.mark.slow
def test_the_process_that_compacts_dies_with_its_broker(broker: RunningBroker) -> None:
    [worker] = slow_down(broker)
    broker.kill()
    wait_until("its end", lambda: not is_alive(worker))
    broker.start()
    wait_until("tidying", lambda: not [*folder(broker).glob("*.cleaned")] or workers(broker))


@pytest.mark.slow
def test_a_process_that_is_killed_is_replaced_and_its_work_done_again(
    broker: RunningBroker,
) -> None:
    [worker] = slow_down(broker)
    before = {key: value for _, key, value in read(broker)}
    os.kill(worker, signal.SIGKILL)
    alter(broker, ResourceType.BROKER, "1", log_cleaner_io_max_bytes_per_second="1e9")
    wait_compacted(broker)
    assert {key: value for _, key, value in read(broker)} == before
    assert "its process ended with code -9" in broker.log_file.read_text()


@pytest.mark.slow
def test_a_compaction_is_given_up_when_its_log_changes(broker: RunningBroker) -> None:
    slow_down(broker)
    alter(broker, ResourceType.TOPIC, TOPIC, cleanup_policy="delete")
    before = read(broker)
    wait_until("giving up", lambda: "cancelled the compaction of" in broker.log_file.read_text())
    wait_until("tidying", lambda: not [*folder(broker).glob("*.cleaned")])
    assert read(broker) == before


def test_a_cleaner_backoff_that_was_altered_holds_from_the_next_start_on(
    headrace_factory: BrokerFactory,
) -> None:
    broker = headrace_factory({**SETTINGS, "log.cleaner.backoff.ms": "100000000"})
    alter(broker, ResourceType.BROKER, "1", log_cleaner_backoff_ms="50")
    broker.restart()
    create(broker)
    write(broker, 0)
    wait_compacted(broker)


def test_offsets_and_transactions_are_found_in_compacted_logs(broker: RunningBroker) -> None:
    create(broker)
    where = {"bootstrap.servers": broker.bootstrap_servers}
    write(broker, 0, 50)
    consumers = {
        name: Consumer({**where, "group.id": name, "enable.auto.commit": False})
        for name in ("one", "two")
    }
    producers = [Producer({**where, "transactional.id": f"t{n}"}) for n in range(2)]
    for producer in producers:
        producer.init_transactions(60)

    def work(turn: int) -> None:
        for number, consumer in enumerate(consumers.values()):
            position = TopicPartition(TOPIC, 0, turn + number)
            consumer.commit(offsets=[position], asynchronous=False)
        for producer in producers:
            producer.begin_transaction()
            producer.produce(TOPIC, b"%d" % turn, b"in a transaction")
            producer.commit_transaction(60)

    work(0)
    for topic in ("__consumer_offsets", "__transaction_state"):
        alter(broker, ResourceType.TOPIC, topic, internal_segment_bytes="1500")
    for turn in range(1, 26):
        work(turn)
    for topic in ("__consumer_offsets", "__transaction_state"):
        wait_compacted(broker, topic)
        assert len(read(broker, topic)) < 60, "they held a hundred"
    broker.kill()
    broker.start()
    for number, consumer in enumerate(consumers.values()):
        [position] = consumer.committed([TopicPartition(TOPIC, 0)], 60)
        assert position.offset == 25 + number
    for producer in producers:
        producer.begin_transaction()
        producer.produce(TOPIC, b"after", b"in a transaction")
        producer.commit_transaction(60)
    assert read(broker)[-1][1:] == (b"in a transaction", b"after")


def metrics(address: str) -> dict[str, float]:
    """What Prometheus reads, by metric and labels."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return {
        name.removeprefix("headrace_compaction_"): float(value)
        for name, _, value in (line.rpartition(" ") for line in lines)
        if name.startswith("headrace_compaction_")
    }


def test_operators_see_what_compaction_does_and_where_it_fails() -> None:
    address = f"127.0.0.1:{free_port()}"
    broker = RunningBroker({**SETTINGS, "headrace.metrics.address": address})
    try:
        create(broker)
        before_s = time.time()
        write(broker, 0)
        wait_compacted(broker)
        label = f'{{topic="{TOPIC}"}}'
        wait_until("a look after it", lambda: metrics(address)["max_dirty_ratio"] == 0)
        shown = metrics(address)
        assert shown['runs_total{result="finished"}'] >= 1
        assert 0 < shown[f"removed_records_total{label}"] < shown[f"read_records_total{label}"]
        assert 0 < shown[f"removed_bytes_total{label}"] < shown[f"read_bytes_total{label}"]
        assert 0 < shown["last_seconds"] <= shown["seconds_total"]
        assert before_s - 1 < shown["last_end_timestamp_seconds"] <= time.time() + 1
        assert shown["last_look_timestamp_seconds"] >= shown["last_end_timestamp_seconds"]
        assert shown["uncleanable_partitions"] == shown["uncleanable_bytes"] == 0
        # Bytes that rot before they are compacted.
        alter(broker, ResourceType.TOPIC, TOPIC, min_cleanable_dirty_ratio="1")
        write(broker, 1)
        damaged = sorted(folder(broker).glob("*.log"))[-3]
        content = bytearray(damaged.read_bytes())
        content[len(content) // 2] ^= 0xFF
        damaged.write_bytes(content)
        alter(broker, ResourceType.TOPIC, TOPIC, min_cleanable_dirty_ratio="0.01")
        wait_until("a failure", lambda: metrics(address)["uncleanable_partitions"] == 1)
        shown = metrics(address)
        assert shown['runs_total{result="failed"}'] >= 1
        assert shown["uncleanable_bytes"] > 0
        assert shown["max_dirty_ratio"] > 0
        assert shown["in_progress"] == 0
        client = admin(broker)
        client.delete_topics([TOPIC])[TOPIC].result(60)
        wait_until("no failure", lambda: metrics(address)["uncleanable_partitions"] == 0)
    finally:
        broker.close()
