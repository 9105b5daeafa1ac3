"""Reliability case 30: side files are lost or damaged while a real broker is down."""

import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.testing.running import RunningBroker
from tests.broker.test_data_folders import create
from tests.support.committed import committed_values
from tests.support.raw import RawClient, batch_of, produce, produce_error

Factory = Callable[..., RunningBroker]

TOPIC = "orders"
LOST, ROTTEN = 0, 1
"""Of one partition a file is deleted, of the other one all its bits are flipped."""
PRODUCER_ID = 4711
IN_LOGS = (".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint",
           "transaction-index-checkpoint")  # fmt: skip
IN_ROOT = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint")


def idempotent(broker: RunningBroker, partition: int) -> tuple[int, int]:
    """The same batch every time: error code and offset."""
    batch = batch_of(b"12", producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=0)
    with RawClient(broker.bootstrap_servers) as client:
        answer = client.ask(produce(TOPIC, batch, partition, acks=-1))
    return produce_error(answer, TOPIC)


def fill(broker: RunningBroker) -> int:
    """Transactions, two of three committed, over many small segments; a time in the middle."""
    create(broker, TOPIC, 2, index_interval_bytes="0", segment_index_bytes="48")
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": "writer",
            "linger.ms": 0,
        }
    )
    producer.init_transactions(60)
    middle_ms = 0
    for n in range(12):
        producer.begin_transaction()
        for partition in (LOST, ROTTEN):
            producer.produce(TOPIC, f"{n}", partition=partition)
        producer.flush(60)
        if n % 3:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
        if n == 6:
            time.sleep(0.01)  # a millisecond that no other record has
            middle_ms = int(time.time() * 1000)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    wanted = [TopicPartition(TOPIC, partition, 4) for partition in (LOST, ROTTEN)]
    for deleted in admin.delete_records(wanted).values():
        assert deleted.result(60).low_watermark == 4
    return middle_ms


def answers(broker: RunningBroker, middle_ms: int) -> object:
    """What clients see of both partitions."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused"})
    values = committed_values(broker.bootstrap_servers, TOPIC)
    found: list[object] = [sorted(values, key=int)]  # partitions come in any order
    for partition in (LOST, ROTTEN):
        wanted = TopicPartition(TOPIC, partition, middle_ms)
        found.append(consumer.offsets_for_times([wanted], timeout=60)[0].offset)
        found.append(consumer.get_watermark_offsets(wanted, timeout=60))
        found.append(idempotent(broker, partition))
    consumer.close()
    return found


def flip(path: Path) -> None:
    path.write_bytes(bytes(byte ^ 0x55 for byte in path.read_bytes()))


def test_no_file_beside_the_records_is_needed_for_the_right_answers(
    headrace_factory: Factory,
) -> None:
    broker = headrace_factory()
    middle_ms = fill(broker)
    for partition in (LOST, ROTTEN):
        assert idempotent(broker, partition)[0] == 0
    expected = answers(broker, middle_ms)
    for name in IN_LOGS:
        broker.stop()
        for partition, damage in ((LOST, Path.unlink), (ROTTEN, flip)):
            paths = [*(broker.data_dir / f"{TOPIC}-{partition}").glob(f"*{name}")]
            assert paths, name
            for path in paths:
                damage(path)
        broker.start()
        assert answers(broker, middle_ms) == expected, name
    for name in IN_ROOT:
        for damage in (Path.unlink, flip):
            broker.stop()
            damage(broker.data_dir / name)
            broker.start()
            assert answers(broker, middle_ms) == expected, (name, damage)
