"""Transactions with the usual clients: librdkafka, kafka-python, aiokafka, Kafka's own."""

import asyncio
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.conftest import MakeTopic
from tests.support.headrace_broker import HeadraceBroker
from tests.support.java import QUICK_START, java_command, run_tool

PATIENCE_S = 60
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


@pytest.fixture
def name() -> str:
    return f"x-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[HeadraceBroker]:
    """A broker that may be killed, and that looks for old transactions often."""
    with HeadraceBroker(tmp_path, settings=SETTINGS) as running:
        yield running


def producing(bootstrap: str, name: str, **options: object) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            **{key.replace("_", "."): value for key, value in options.items()},
        }
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def write(producer: Producer, topic: str, *values: str) -> None:
    for value in values:
        producer.produce(topic, value.encode())
    assert producer.flush(PATIENCE_S) == 0


def committed(producer: Producer, topic: str, *values: str) -> None:
    producer.begin_transaction()
    write(producer, topic, *values)
    producer.commit_transaction(PATIENCE_S)


def read(bootstrap: str, topic: str, until: str, isolation: str = "read_committed") -> list[str]:
    """Values of partition 0 up to a given one."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    while until not in found and time.monotonic() < deadline:
        for message in consumer.consume(100, 0.2):
            assert message.error() is None, message.error()
            found.append(message.value().decode())
    consumer.close()
    return found


def create(bootstrap: str, topic: str) -> None:
    # The client must outlive its answer.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(PATIENCE_S)


# ------------------------------------------------------------------------------- librdkafka


def test_readers_of_what_is_committed_see_commits_and_no_aborts(
    bootstrap: str, topic: str, name: str
) -> None:
    producer = producing(bootstrap, name)
    committed(producer, topic, "a", "b")
    producer.begin_transaction()
    write(producer, topic, "lost-1", "lost-2")
    producer.abort_transaction(PATIENCE_S)
    committed(producer, topic, "c")
    assert read(bootstrap, topic, "c") == ["a", "b", "c"]
    everything = read(bootstrap, topic, "c", "read_uncommitted")
    assert everything == ["a", "b", "lost-1", "lost-2", "c"]


def test_an_open_transaction_holds_back_what_follows_it(
    bootstrap: str, topic: str, name: str
) -> None:
    producer = producing(bootstrap, name)
    producer.begin_transaction()
    write(producer, topic, "open")
    plain = Producer({"bootstrap.servers": bootstrap})
    write(plain, topic, "plain")
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.consume(1, 1) == []
    producer.commit_transaction(PATIENCE_S)
    consumer.close()
    assert read(bootstrap, topic, "plain") == ["open", "plain"]


def test_a_second_producer_with_the_same_id_fences_the_first(
    bootstrap: str, topic: str, name: str
) -> None:
    first = producing(bootstrap, name)
    first.begin_transaction()
    write(first, topic, "zombie")
    second = producing(bootstrap, name)
    committed(second, topic, "new")
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    assert refused.value.args[0].fatal()
    assert read(bootstrap, topic, "new") == ["new"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_and_records_are_committed_together(
    bootstrap: str, make_topic: MakeTopic, name: str, protocol: str
) -> None:
    source, target = make_topic(), make_topic()
    plain = Producer({"bootstrap.servers": bootstrap})
    write(plain, source, *(f"m{n}" for n in range(20)))

    def copy(stop_after: int, commit_last: bool) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"g-{name}",
                "group.protocol": protocol,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([source])
        producer = producing(bootstrap, name)
        deadline = time.monotonic() + PATIENCE_S
        for count in range(stop_after):
            message = None
            while message is None and time.monotonic() < deadline:
                message = consumer.poll(0.5)
            assert message is not None
            producer.begin_transaction()
            producer.produce(target, message.value())
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()),
                consumer.consumer_group_metadata(),
                PATIENCE_S,
            )
            if count < stop_after - 1 or commit_last:
                producer.commit_transaction(PATIENCE_S)
            else:
                producer.abort_transaction(PATIENCE_S)
        consumer.close()

    copy(8, commit_last=False)
    copy(13, commit_last=True)
    assert read(bootstrap, target, "m19") == [f"m{n}" for n in range(20)]


def test_what_is_open_and_what_is_committed_survives_a_crash(
    own: HeadraceBroker, name: str
) -> None:
    create(own.bootstrap, "orders")
    producer = producing(own.bootstrap, name)
    committed(producer, "orders", "a")
    producer.begin_transaction()
    write(producer, "orders", "b")
    own.kill()
    own.start()
    write(producer, "orders", "c")
    producer.commit_transaction(PATIENCE_S)
    producer.begin_transaction()
    write(producer, "orders", "lost")
    own.kill()
    own.start()
    producer.abort_transaction(PATIENCE_S)
    committed(producer, "orders", "d")
    assert read(own.bootstrap, "orders", "d") == ["a", "b", "c", "d"]


def test_an_abandoned_transaction_is_aborted_after_its_timeout(
    own: HeadraceBroker, name: str
) -> None:
    create(own.bootstrap, "orders")
    # librdkafka would give up its transaction by its own clock.
    producer = producing(own.bootstrap, name, transaction_timeout_ms=1000)
    producer.begin_transaction()
    write(producer, "orders", "slow")
    plain = Producer({"bootstrap.servers": own.bootstrap})
    write(plain, "orders", "plain")
    assert read(own.bootstrap, "orders", "plain") == ["plain"]
    with pytest.raises(KafkaException):
        producer.commit_transaction(PATIENCE_S)


# ----------------------------------------------------------------------- clients in Python


def test_kafka_python_commits_and_aborts(bootstrap: str, topic: str, name: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    producer.init_transactions()
    for values, commit in ((("a", "b"), True), (("lost",), False), (("c",), True)):
        producer.begin_transaction()
        for value in values:
            producer.send(topic, value.encode())
        producer.flush()
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()
    consumer: Any = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
        group_id=None,
    )
    read_records = zip(range(3), consumer, strict=False)
    assert [message.value for _, message in read_records] == [b"a", b"b", b"c"]
    consumer.close()
    assert read(bootstrap, topic, "c") == ["a", "b", "c"]


def test_aiokafka_commits_and_aborts(bootstrap: str, topic: str, name: str) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait(topic, b"a")
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"lost")
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait(topic, b"b")
            offsets = {AioTopicPartition(topic, 0): 3}
            await producer.send_offsets_to_transaction(offsets, f"g-{name}")
        await producer.stop()

    asyncio.run(run())
    assert read(bootstrap, topic, "b") == ["a", "b"]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"g-{name}"})
    (found,) = consumer.committed([TopicPartition(topic, 0)], PATIENCE_S)
    consumer.close()
    assert found.offset == 3


# ------------------------------------------------------------------------- Kafka's own tools


@pytest.mark.java
@pytest.mark.slow
def test_kafkas_tools_write_list_describe_and_decode_transactions(
    own: HeadraceBroker, name: str
) -> None:
    create(own.bootstrap, "orders")
    done = run_tool(
        "kafka-producer-perf-test",
        "--topic", "orders", "--num-records", "5000", "--record-size", "100",
        "--throughput", "-1", "--transaction-duration-ms", "100", "--transactional-id", name,
        "--command-property", f"bootstrap.servers={own.bootstrap}",
    )  # fmt: skip
    assert "5000 records sent" in done.text, done.text
    listed = run_tool("kafka-transactions", "--bootstrap-server", own.bootstrap, "list")
    assert name in listed.stdout
    assert "CompleteCommit" in listed.stdout
    described = run_tool(
        "kafka-transactions", "--bootstrap-server", own.bootstrap, "describe",
        "--transactional-id", name,
    )  # fmt: skip
    assert "CompleteCommit" in described.stdout, described.text
    own.stop()
    logs = sorted(own.data.glob("__transaction_state-*/*.log"))
    (log,) = [path for path in logs if name.encode() in path.read_bytes()]
    decoded = run_tool(
        "kafka-dump-log", "--files", str(log), "--transaction-log-decoder", "--print-data-log"
    )
    assert '"transactionStatus":4' in decoded.stdout, decoded.text
    own.start()


COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"


@pytest.mark.java
@pytest.mark.slow
def test_copiers_copy_each_message_once_and_in_order_while_the_broker_is_killed(
    own: HeadraceBroker, name: str
) -> None:
    copiers, each = 3, 1500
    admin = AdminClient({"bootstrap.servers": own.bootstrap})
    topics = [NewTopic("source", copiers), NewTopic("target", copiers)]
    for created in admin.create_topics(topics).values():
        created.result(PATIENCE_S)
    plain = Producer({"bootstrap.servers": own.bootstrap})
    for index in range(copiers):
        for n in range(each):
            plain.produce("source", f"{index}-{n}".encode(), str(index).encode(), index)
    assert plain.flush(PATIENCE_S) == 0

    def start(index: int) -> subprocess.Popen[bytes]:
        arguments = (
            "--input-topic", "source", "--input-partition", str(index),
            "--output-topic", "target", "--broker-list", own.bootstrap,
            "--consumer-group", f"g-{name}", "--transaction-size", "50",
            "--transactional-id", f"{name}-{index}", "--enable-random-aborts",
            "--use-group-metadata",
        )  # fmt: skip
        command = java_command(COPIER, *arguments, options=QUICK_START)
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    running = [start(index) for index in range(copiers)]
    try:
        for _ in range(2):
            time.sleep(3)
            own.kill()
            own.start()
        # One copier dies as well, and another takes its place.
        running[0].kill()
        running[0].wait()
        running[0] = start(0)
        codes = [process.wait(90) for process in running]
    finally:
        for process in running:
            process.kill()
    assert codes == [0] * copiers
    copied = read_all(own.bootstrap, "target", copiers)
    for index in range(copiers):
        mine = [value for value in copied if value.startswith(f"{index}-")]
        assert mine == [f"{index}-{n}" for n in range(each)]


def read_all(bootstrap: str, topic: str, partitions: int) -> list[str]:
    """Everything committed, up to the end of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[str] = []
    left = set(range(partitions))
    deadline = time.monotonic() + PATIENCE_S
    while left and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.append(message.value().decode())
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            left.discard(message.partition())
    consumer.close()
    assert not left
    return found
