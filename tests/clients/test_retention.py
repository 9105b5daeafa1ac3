"""Retention as clients see it: log start offsets, and errors for deleted records."""

import os
import struct
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import kafka
import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka.errors import OffsetOutOfRangeError

from headrace.testing.running import RunningBroker
from tests.support.ports import free_port
from tests.support.raw import RawClient, batch_of, frame, produce, produce_error

Factory = Callable[..., RunningBroker]
SETTINGS = {"log.retention.check.interval.ms": "50", "log.segment.delete.delay.ms": "0"}
METRICS = f"127.0.0.1:{free_port()}"
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    running = RunningBroker({**SETTINGS, "headrace.metrics.address": METRICS})
    yield running
    running.close()


def create(broker: RunningBroker, name: str, **config: str) -> None:
    """A topic of one partition, each of whose segments holds one or two batches."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    given = {key.replace("_", "."): value for key, value in config.items()}
    new = NewTopic(name, 1, 1, config={"internal.segment.bytes": "1000", **given})
    admin.create_topics([new])[name].result(60)


def alter(broker: RunningBroker, name: str, setting: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)


def send(broker: RunningBroker, topic: str, count: int, age_ms: int = 0) -> None:
    """Records of 400 bytes, a batch each."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    timestamp = int(time.time() * 1000) - age_ms
    for number in range(count):
        producer.produce(topic, b"%d" % number + b"." * 400, timestamp=timestamp)
        producer.flush(60)


def watermarks(broker: RunningBroker, topic: str) -> tuple[int, int]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    at = TopicPartition(topic, 0)
    low = admin.list_offsets({at: OffsetSpec.earliest()})[at].result(60).offset
    high = admin.list_offsets({at: OffsetSpec.latest()})[at].result(60).offset
    return low, high


def wait_for_start(broker: RunningBroker, topic: str, reached: Callable[[int], bool]) -> int:
    deadline = time.monotonic() + 60
    while not reached(start := watermarks(broker, topic)[0]):
        assert time.monotonic() < deadline, f"{topic} still begins at {start}"
        time.sleep(0.02)
    return start


def passes() -> int:
    """How often the module's broker has looked for something to delete."""
    with urllib.request.urlopen(f"http://{METRICS}/metrics", timeout=60) as page:
        lines = page.read().decode().splitlines()
    found = [line for line in lines if line.startswith("headrace_retention_passes_total ")]
    return int(found[0].split()[1])


def wait_for_passes(count: int) -> None:
    """Until that many passes have begun and ended."""
    wanted = passes() + count + 1  # one may be under way
    deadline = time.monotonic() + 60
    while passes() < wanted:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def read(consumer: Consumer) -> Message:
    deadline = time.monotonic() + 60
    while (message := consumer.poll(1)) is None:
        assert time.monotonic() < deadline
    return message


def consumer(broker: RunningBroker, group: str, reset: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": reset,
            "enable.auto.commit": False,
        }
    )


def test_old_records_go_and_young_ones_stay(broker: RunningBroker) -> None:
    create(broker, "by-time", retention_ms=str(HOUR_MS))
    send(broker, "by-time", 10, age_ms=2 * HOUR_MS)
    send(broker, "by-time", 3)
    start = wait_for_start(broker, "by-time", lambda at: at >= 8)
    assert start <= 10
    wait_for_passes(2)
    assert watermarks(broker, "by-time") == (start, 13)


def test_an_active_segment_that_is_due_goes_too(broker: RunningBroker) -> None:
    create(broker, "all-old", retention_ms=str(HOUR_MS))
    send(broker, "all-old", 5, age_ms=2 * HOUR_MS)
    assert wait_for_start(broker, "all-old", lambda at: at == 5) == 5
    wait_for_files(broker, "all-old", 5)
    send(broker, "all-old", 1)
    assert watermarks(broker, "all-old") == (5, 6)


def test_a_setting_that_is_changed_counts_from_the_next_pass_on(broker: RunningBroker) -> None:
    create(broker, "altered")
    send(broker, "altered", 20)
    assert watermarks(broker, "altered") == (0, 20)
    alter(broker, "altered", "retention.messages", "7")
    start = wait_for_start(broker, "altered", lambda at: at > 10)
    assert 20 - start >= 7, "never fewer than asked for"
    alter(broker, "altered", "retention.bytes", "900")
    start = wait_for_start(broker, "altered", lambda at: at >= 16)
    log_bytes = [path.stat().st_size for path in (broker.data_dir / "altered-0").glob("*.log")]
    assert sum(log_bytes) >= 900


def test_a_compacted_topic_does_not_age(broker: RunningBroker) -> None:
    create(broker, "compacted", cleanup_policy="compact,delete", retention_ms=str(HOUR_MS))
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    old = int(time.time() * 1000) - 2 * HOUR_MS
    alter(broker, "compacted", "cleanup.policy", "compact")
    for number in range(10):
        producer.produce("compacted", b"." * 400, key=b"%d" % number, timestamp=old)
        producer.flush(60)
    wait_for_passes(2)
    assert watermarks(broker, "compacted") == (0, 10)
    alter(broker, "compacted", "cleanup.policy", "compact,delete")
    wait_for_start(broker, "compacted", lambda at: at == 10)


@pytest.fixture
def shortened(broker: RunningBroker) -> tuple[str, int]:
    """A topic whose first records are gone, and where it begins."""
    name = f"short-{time.monotonic_ns()}"
    create(broker, name)
    send(broker, name, 12)
    alter(broker, name, "retention.messages", "3")
    return name, wait_for_start(broker, name, lambda at: at > 0)


def test_librdkafka_goes_on_at_the_earliest_record_that_is_left(
    broker: RunningBroker, shortened: tuple[str, int]
) -> None:
    topic, start = shortened
    reader = consumer(broker, "r1", "earliest")
    reader.assign([TopicPartition(topic, 0, 0)])
    message = read(reader)
    assert message.error() is None
    assert message.offset() == start
    reader.close()


def test_librdkafka_gets_offset_out_of_range(
    broker: RunningBroker, shortened: tuple[str, int]
) -> None:
    topic, _ = shortened
    reader = consumer(broker, "r2", "error")
    reader.assign([TopicPartition(topic, 0, 0)])
    error = read(reader).error()
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
    assert "out of range" in error.str()
    reader.close()


@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_kafka_python_continues_or_reports_offset_out_of_range(
    broker: RunningBroker, shortened: tuple[str, int], reset: str
) -> None:
    topic, start = shortened
    reader = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset=reset,
        enable_auto_commit=False,
        consumer_timeout_ms=60_000,
    )
    at = kafka.TopicPartition(topic, 0)
    reader.assign([at])
    reader.seek(at, 0)
    try:
        if reset == "none":
            with pytest.raises(OffsetOutOfRangeError):
                next(reader)
        else:
            assert next(reader).offset == start
    finally:
        reader.close()


def test_consumed_records_go_once_every_group_has_committed(broker: RunningBroker) -> None:
    create(broker, "queue", cleanup_policy="consumed")
    send(broker, "queue", 10)
    for group in ("first", "second"):
        reader = consumer(broker, group, "earliest")
        reader.commit(offsets=[TopicPartition("queue", 0, 1)], asynchronous=False)
        reader.close()
    first = consumer(broker, "first", "earliest")
    first.commit(offsets=[TopicPartition("queue", 0, 10)], asynchronous=False)
    wait_for_passes(2)
    assert watermarks(broker, "queue") == (0, 10), "the second group has not read them"
    first.close()
    second = consumer(broker, "second", "earliest")
    second.commit(offsets=[TopicPartition("queue", 0, 5)], asynchronous=False)
    start = wait_for_start(broker, "queue", lambda at: at > 0)
    assert start <= 5
    second.commit(offsets=[TopicPartition("queue", 0, 10)], asynchronous=False)
    second.close()
    wait_for_start(broker, "queue", lambda at: at == 10)


def test_the_beginning_survives_restarts_and_kills(headrace_factory: Factory) -> None:
    broker = headrace_factory(SETTINGS)
    create(broker, "t")
    send(broker, "t", 12)
    alter(broker, "t", "retention.messages", "3")
    start = wait_for_start(broker, "t", lambda at: at > 0)
    for end in (broker.stop, broker.kill, broker.kill):
        end()
        broker.start()
        assert watermarks(broker, "t") == (start, 12)


def test_records_deleted_by_hand_stay_deleted_after_a_kill(headrace_factory: Factory) -> None:
    broker = headrace_factory()
    create(broker, "t")
    send(broker, "t", 9)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    at = TopicPartition("t", 0, 5)
    assert admin.delete_records([at])[at].result(60).low_watermark == 5
    broker.kill()
    broker.start()
    assert watermarks(broker, "t") == (5, 9)
    reader = consumer(broker, "g", "error")
    reader.assign([TopicPartition("t", 0, 4)])
    error = read(reader).error()
    assert error is not None, "a record that was deleted came back"
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
    reader.close()


def test_files_of_deleted_segments_go_with_all_that_belongs_to_them(
    headrace_factory: Factory,
) -> None:
    broker = headrace_factory(SETTINGS)
    create(broker, "t")
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "tx", "linger.ms": 0}
    )
    producer.init_transactions(60)
    for number in range(12):
        producer.begin_transaction()
        producer.produce("t", b"." * 400)
        producer.flush(60)
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    alter(broker, "t", "retention.messages", "5")
    start = wait_for_start(broker, "t", lambda at: at > 10)
    wait_for_files(broker, "t", start)


def wait_for_files(broker: RunningBroker, topic: str, start: int) -> None:
    """Until no file of a segment from before `start` is left."""
    folder = broker.data_dir / f"{topic}-0"
    deadline = time.monotonic() + 60
    while names := stale_names(folder, start):
        assert time.monotonic() < deadline, names
        time.sleep(0.05)


def stale_names(folder: Path, start: int) -> list[str]:
    """Files of segments that should be gone."""
    return sorted(
        path.name
        for path in folder.iterdir()
        if path.name[:20].isdecimal() and int(path.name[:20]) < start
    )


STEPS = (
    "rename log-start-offset-checkpoint",
    "rename .log.deleted",
    "rename .snapshot.deleted",
    "remove .log.deleted",
)


def test_a_broker_that_is_killed_while_it_deletes_goes_on_at_the_next_start(
    headrace_factory: Factory,
) -> None:
    broker = headrace_factory(SETTINGS)
    create(broker, "t")
    sent = 0
    for keep, point in enumerate(STEPS, 3):
        alter(broker, "t", "retention.messages", "1000")
        send(broker, "t", 8)
        sent += 8
        begins = watermarks(broker, "t")[0]
        broker.spoil_disk(point, kill=1, skip=int(point.endswith(".deleted")))
        alter(broker, "t", "retention.messages", str(keep))
        broker.wait_until_dead()
        broker.start()
        low, high = watermarks(broker, "t")
        assert high == sent, point
        assert begins <= low <= sent - keep, point
        start = wait_for_start(broker, "t", at_least(sent - keep - 1))
        assert start <= sent - keep, point
        assert offsets_from(broker, "t", start, sent) == list(range(start, sent)), point
    broker.stop()
    broker.start()
    assert watermarks(broker, "t") == (start, sent)
    wait_for_files(broker, "t", start - 1)


def at_least(offset: int) -> Callable[[int], bool]:
    return lambda at: at >= offset


def offsets_from(broker: RunningBroker, topic: str, start: int, end: int) -> list[int]:
    """The offsets that a consumer gets."""
    reader = consumer(broker, "reads", "error")
    reader.assign([TopicPartition(topic, 0, start)])
    found: list[int] = []
    while not found or found[-1] + 1 < end:
        message = read(reader)
        assert message.error() is None, message.error()
        found.append(message.offset())
    reader.close()
    return found


def test_an_answer_that_is_on_its_way_is_finished_though_its_segment_is_deleted(
    headrace_factory: Factory,
) -> None:
    broker = headrace_factory(SETTINGS)
    create(broker, "large", internal_segment_bytes="60000000", max_message_bytes="60000000")
    value = os.urandom(40_000_000)
    with RawClient(broker.bootstrap_servers, timeout_s=60) as client:
        client.send(produce("large", batch_of(value)))
        assert produce_error(client.answer(), "large") == (0, 0)
        client.send(fetch("large", 0, 50_000_000))
        size = int.from_bytes(exactly(client, 4), "big")  # the rest has to wait in the broker
        alter(broker, "large", "retention.bytes", "0")
        wait_for_start(broker, "large", lambda at: at == 1)
        wait_for_files(broker, "large", 1)
        answer = exactly(client, size)
    assert value in answer


def exactly(client: RawClient, count: int) -> bytearray:
    data = bytearray(count)
    view, got = memoryview(data), 0
    while got < count:
        more = client.socket.recv_into(view[got:])
        assert more, "the broker hung up"
        got += more
    return data


def fetch(topic: str, offset: int, max_bytes: int) -> bytes:
    """A Fetch request of version 4 for one partition."""
    name = topic.encode()
    body = struct.pack(">iiiibi", -1, 1000, 1, max_bytes, 0, 1)
    body += struct.pack(">h", len(name)) + name + struct.pack(">iiqi", 1, 0, offset, max_bytes)
    return frame(1, 4, body)
