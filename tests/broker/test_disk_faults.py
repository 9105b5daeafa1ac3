"""Real brokers with a disk that fails, fills up, loses power or returns damaged bytes."""

import errno
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.cli.broker.verification import Verification
from headrace.disk import RealDisk
from headrace.errors import ErrorCode
from headrace.testing.running import RunningBroker
from tests.broker.test_data_folders import create, refusal
from tests.support.headrace_broker import HeadraceBroker
from tests.support.mounts import power_cut_disk, small_disk
from tests.testing.test_running import consumer_of, read, send, send_to

Factory = Callable[..., RunningBroker]

SMALL_SEGMENTS = {"segment_bytes": str(1 << 20), "segment_index_bytes": "100"}
FREQUENT = {"log.flush.offset.checkpoint.interval.ms": "100"}


def findings(folder: Path) -> list[object]:
    verification = Verification(RealDisk())
    verification.folder(str(folder))
    return [*verification.findings]


@pytest.mark.parametrize(
    ("point", "fault"),
    [
        ("pwrite .log", {"written": 30}),
        ("open .log", {}),
        ("open .index", {"after": 1}),
        ("pwrite .timeindex", {"written": 5}),
        ("pwrite .snapshot", {"written": 5}),
        ("rename recovery-point-offset-checkpoint", {}),
        ("rename recovery-point-offset-checkpoint", {"after": 1}),
        ("pwrite log-start-offset-checkpoint.tmp", {"written": 1}),
    ],
)
def test_what_was_acknowledged_survives_a_kill_at_a_named_point(
    headrace_factory: Factory, point: str, fault: dict[str, int]
) -> None:
    broker = headrace_factory({**FREQUENT, "log.index.size.max.bytes": "24"})
    create(broker, "orders", 1, index_interval_bytes="0", segment_index_bytes="24")
    send(broker, "orders", "before")
    broker.spoil_disk(point, kill=1, **fault)
    acknowledged = ["before"]

    def delivered(error: object, message: object) -> None:
        if error is None:
            acknowledged.append(message.value().decode())  # type: ignore[attr-defined]

    # Idempotent: a record that was written but not acknowledged is sent again, and counts once.
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "log_level": 0,
        }
    )
    died = threading.Thread(target=broker.wait_until_dead)
    died.start()
    sent = 0
    while died.is_alive():
        producer.produce("orders", f"{sent}", callback=delivered)
        producer.flush(0.05)
        sent += 1
    died.join()
    broker.start()
    producer.flush(60)
    assert len(acknowledged) == sent + 1, "what waited for an answer was sent again"
    assert read(broker, "orders", sent + 1) == ["before", *map(str, range(sent))]
    broker.stop()
    assert findings(broker.data_dir) == []
    broker.start()


def test_a_full_disk_refuses_and_goes_on_when_there_is_room(
    headrace_factory: Factory,
) -> None:
    broker = headrace_factory(FREQUENT, folders=2)
    create(broker, "orders", 2)
    homes = [int((broker.data_dirs[1] / f"orders-{index}").exists()) for index in range(2)]
    full, other = homes.index(1), homes.index(0)
    send_to(broker, "orders", full, "before")
    broker.trace_disk()
    broker.spoil_disk(
        "pwrite", code=errno.ENOSPC, written=7, count=-1, under=str(broker.data_dirs[1])
    )
    for _ in range(2):
        assert refusal(broker, "orders", full) == ErrorCode.KAFKA_STORAGE_ERROR
    send_to(broker, "orders", other, "fine")
    while "pwrite recovery-point-offset-checkpoint.tmp" not in broker.trace_disk():
        send_to(broker, "orders", other, "a checkpoint fails meanwhile")
    broker.clear_faults()
    assert send_to(broker, "orders", full, "after") == [1]
    broker.kill()
    broker.start()
    assert send_to(broker, "orders", full, "last") == [2]
    broker.stop()
    assert findings(broker.data_dirs[1]) == []
    broker.start()


def test_a_fetch_whose_records_cannot_be_sent_is_repeated_by_the_client(
    headrace_factory: Factory,
) -> None:
    broker = headrace_factory()
    large = ["x" * 5000, "y" * 5000]
    create(broker, "orders", 1)
    send(broker, "orders", *large)
    broker.trace_disk()
    broker.spoil_disk("sendfile .log", code=errno.EIO, count=2)
    assert read(broker, "orders", 2) == large
    assert broker.trace_disk().count("sendfile .log") > 2
    assert broker.log_file.read_text().count("cannot read the records for") == 2


def test_a_disk_that_is_really_full_keeps_every_acknowledged_record(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 3000) as small:
        broker = HeadraceBroker(tmp_path / "broker", settings={"log.segment.bytes": str(1 << 20)})
        broker.data = small / "data"
        with broker:
            acknowledged, refused = fill(broker.bootstrap)
            assert refused
            broker.kill()
            broker.start()
            assert values(broker.bootstrap, "orders")[: len(acknowledged)] == acknowledged
        assert findings(small / "data") == []


def fill(bootstrap: str) -> tuple[list[str], int]:
    """Produce until the disk has refused three times; what was acknowledged."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(60)
    acknowledged: list[str] = []
    refusals: list[object] = []

    def delivered(error: object, message: object) -> None:
        if error is None:
            acknowledged.append(message.value().decode())  # type: ignore[attr-defined]
        else:
            refusals.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "retries": 0})
    for number in range(1000):
        producer.produce("orders", f"{number:07d}" + "x" * 30_000, callback=delivered)
        producer.flush(60)
        if len(refusals) == 3:
            break
    return acknowledged, len(refusals)


def values(bootstrap: str, topic: str) -> list[str]:
    """Everything in partition 0, up to its end."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), 60)
        consumer.assign([TopicPartition(topic, 0, low)])
        found: list[str] = []
        while len(found) < high - low:
            message = consumer.poll(60)
            assert message is not None, f"{len(found)} of {high - low} came"
            assert message.error() is None, message.error()
            found.append(message.value().decode())
        return found
    finally:
        consumer.close()


def test_a_rotten_batch_is_never_served_and_its_neighbours_are(headrace_factory: Factory) -> None:
    broker = headrace_factory()
    create(broker, "orders", 1, index_interval_bytes="0")
    for value in ("zero", "rotten", "two"):
        send(broker, "orders", value)
    broker.stop()
    file = broker.data_dir / "orders-0" / "00000000000000000000.log"
    content = file.read_bytes()
    file.write_bytes(content.replace(b"rotten", b"sotten"))
    broker.start()
    from confluent_kafka import TopicPartition

    consumer = consumer_of(broker)
    consumer.assign([TopicPartition("orders", 0, 0)])
    first = consumer.poll(60)
    assert first is not None
    assert first.value() == b"zero"
    failed = consumer.poll(60)
    assert failed is not None
    assert failed.error() is not None
    assert failed.value() is None or b"otten" not in failed.value()
    consumer.seek(TopicPartition("orders", 0, 2))
    while (message := consumer.poll(60)) is not None and message.error() is not None:
        continue
    assert message is not None
    assert message.value() == b"two"
    consumer.close()
    assert "is damaged at position" in broker.log_file.read_text()
    assert send(broker, "orders", "three") == [3]


def test_after_a_power_cut_synced_topics_lost_nothing_and_others_only_their_end(
    tmp_path: Path,
) -> None:
    with power_cut_disk(tmp_path) as disk:
        broker = HeadraceBroker(tmp_path / "broker", settings=FREQUENT)
        broker.data = disk.path / "data"
        with broker:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            synced = NewTopic("synced", 1, 1, config={"flush.messages": "1"})
            for future in admin.create_topics([synced, NewTopic("lazy", 1, 1)]).values():
                future.result(60)
            acknowledged, sent = produce_until_dead(broker, disk.cut)
            broker.kill()
        disk.unmount()
        disk.mount()
        with broker:
            kept = values(broker.bootstrap, "synced")
            assert kept[: len(acknowledged["synced"])] == acknowledged["synced"]
            for topic in ("synced", "lazy"):
                found = values(broker.bootstrap, topic)
                assert found == sent[topic][: len(found)], "a prefix, and never garbage"
        assert findings(disk.path / "data") == []


def produce_until_dead(
    broker: HeadraceBroker, cut: Callable[[], None]
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Produce to both topics, cut the power in the middle: what was acknowledged, what was sent."""
    acknowledged: dict[str, list[str]] = {"synced": [], "lazy": []}
    sent: dict[str, list[str]] = {"synced": [], "lazy": []}
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "log_level": 0,
            "enable.idempotence": True,
            "message.timeout.ms": 4000,
            "linger.ms": 0,
        }
    )
    refused = False

    def delivered(error: object, message: object) -> None:
        nonlocal refused
        if error is None:
            acknowledged[message.topic()].append(message.value().decode())  # type: ignore[attr-defined]
        else:
            refused = True

    number, is_cut = 0, False
    while not refused:
        for topic in sent:
            value = f"{number:08d}" * 20
            sent[topic].append(value)
            producer.produce(topic, value, callback=delivered)
        producer.poll(0.001)
        number += 1
        if len(acknowledged["synced"]) >= 200 and not is_cut:
            is_cut = True
            cut()
    producer.purge()
    producer.flush(60)
    return acknowledged, sent


def test_a_disk_is_whole_again_though_a_namespace_of_another_test_still_has_it_mounted(
    tmp_path: Path,
) -> None:
    with power_cut_disk(tmp_path) as disk:
        with (disk.path / "file").open("wb", buffering=0) as file:
            file.write(b"synced")
            os.fsync(file.fileno())
        command = ["unshare", "--mount", "sh", "-c", "echo ready; sleep 600"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"ready\n"
            try:
                disk.cut()
                disk.unmount()
                disk.mount()
                assert (disk.path / "file").read_bytes() == b"synced"
            finally:
                other.kill()
