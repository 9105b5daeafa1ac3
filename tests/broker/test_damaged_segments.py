"""A real broker, the only replica, whose old segments were damaged while it was dead."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from headrace.testing.running import RunningBroker
from tests.broker.test_data_folders import create
from tests.support.ports import free_port

Factory = Callable[..., RunningBroker]
COUNT = 400
VALUES = [b"%06d" % number + b"v" * 10_000 for number in range(COUNT)]


def flip(content: bytearray) -> None:
    content[len(content) // 2] ^= 1


def cut(content: bytearray) -> None:
    del content[len(content) // 2 :]


def fill(broker: RunningBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.size": 50_000})
    for value in VALUES:
        producer.produce("orders", value, partition=0)
    assert producer.flush(60) == 0


def segments(broker: RunningBroker) -> list[Path]:
    return sorted((broker.data_dir / "orders-0").glob("*.log"))


def read(broker: RunningBroker) -> tuple[dict[int, bytes], list[int]]:
    """All records by offset, and the offsets at which the consumer had to go on elsewhere."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "audit",
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.error.backoff.ms": 10,
        }
    )
    partition = TopicPartition("orders", 0, 0)
    consumer.assign([partition])
    found: dict[int, bytes] = {}
    refused: list[int] = []
    while True:
        message = consumer.poll(60)
        assert message is not None, "the consumer hangs"
        error = message.error()
        if error is None:
            found[message.offset() or 0] = message.value() or b""
        elif error.code() == KafkaError._PARTITION_EOF:
            break
        else:
            # The first offset behind what is damaged, as an operator would find it by trial.
            refused.append(message.offset() or 0)
            consumer.seek(TopicPartition("orders", 0, refused[-1] + 1))
    consumer.close()
    return found, refused


def health(port: int) -> dict[str, object]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        found = json.load(error)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("damage", [flip, cut])
def test_damage_in_an_old_segment_takes_no_other_record_after_a_kill(
    headrace_factory: Factory, damage: Callable[[bytearray], None]
) -> None:
    port = free_port()
    broker = headrace_factory({"headrace.metrics.address": f"127.0.0.1:{port}"})
    create(broker, "orders", 1, segment_bytes=str(1 << 20))
    fill(broker)
    broker.kill()
    first, second, third, *_ = segments(broker)
    content = bytearray(second.read_bytes())
    damage(content)
    second.write_bytes(content)
    broker.start()
    found, refused = read(broker)
    expected = dict(enumerate(VALUES))
    lost = {*expected} - {*found}
    assert found.items() <= expected.items()
    assert lost
    assert {*refused} <= lost
    assert int(second.stem) <= min(lost)
    assert max(lost) < int(third.stem), f"only records of {second.name} can be damaged"
    told = health(port)
    assert told["healthy"], "a restart would not help"
    assert f"the offsets {min(lost)} to {max(lost)} cannot be read" in str(told["warnings"])
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    offsets: list[int] = []
    producer.produce("orders", b"new", on_delivery=lambda _, sent: offsets.append(sent.offset()))
    assert producer.flush(60) == 0
    assert offsets == [COUNT], "no offset is given out again"
    assert first.exists()
    broker.restart()
    assert {*read(broker)[0]} == {*found, COUNT}
