"""Moves are slowed down to the rate that was set, and only moves."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.cluster.controller import Alteration, ConfigChange, Operation
from headrace.cluster.image import Image, PartitionState, Topic
from headrace.replication.throttle import Throttle
from tests.apis.one_broker import NODE, OneBroker
from tests.apis.test_fetch import Consumer, follow


class SteadyClock:
    """Time that moves when told."""

    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1000)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    running = OneBroker(tmp_path)
    yield running
    running.close()


def set_rate(broker: OneBroker, rate: int, side: str = "follower") -> None:
    name = f"{side}.replication.throttled.rate"
    change = ConfigChange(name, Operation.SET, str(rate))
    assert broker.metadata.alter_configs([Alteration("broker", str(NODE), (change,))]) == [None]


def test_copying_pauses_until_the_rate_has_caught_up(broker: OneBroker) -> None:
    clock = SteadyClock()
    throttle = Throttle(broker.replicas, broker.metadata, clock)
    before = throttle.is_on
    set_rate(broker, 1000)
    assert (before, throttle.is_on) == (False, True)
    throttle.copied(5000)
    waits = []
    for seconds in (4.9, 0.2):
        clock.now_s += seconds
        waits.append(throttle.is_exceeded)
    throttle.copied(5000)
    set_rate(broker, 10_000)
    for seconds in (0.4, 0.2):
        clock.now_s += seconds
        waits.append(throttle.is_exceeded)
    assert waits == [True, False, True, False]


@pytest.mark.parametrize(
    ("named", "is_named"), [("*", True), (f"0:{NODE}", True), (f"1:{NODE}", False), ("0:9", False)]
)
def test_only_named_replicas_that_are_not_in_sync_wait(
    broker: OneBroker, named: str, is_named: bool
) -> None:
    topic = broker.create("t", follower_replication_throttled_replicas=named)
    throttle = Throttle(broker.replicas, broker.metadata, SteadyClock())
    (partition,) = broker.replicas.topic("t")
    assert not throttle.applies_to(partition)

    def out_of_sync(_image: Image) -> list[Topic]:
        return [replace(topic, partitions=(replace(topic.partitions[0], isr=(2,)),))]

    broker.metadata.alter_partitions(out_of_sync)
    assert throttle.applies_to(partition) is is_named


def test_a_leader_makes_only_those_wait_that_are_not_in_sync(broker: OneBroker) -> None:
    broker.create("t", leader_replication_throttled_replicas=f"0:{NODE}")
    set_rate(broker, 1000, "leader")
    consumer = Consumer(broker)
    (partition,) = broker.replicas.topic("t")
    partition.use_state(PartitionState(NODE, 1, (NODE, 2, 3), (NODE, 2)))
    consumer.append("t", b"v" * 5000)

    def got(follower: int) -> bool:
        answer = consumer.ask(follow(epoch=1), replica_id=follower)
        return bool(answer.responses[0].partitions[0].records)

    assert [got(3), got(3), got(2)] == [True, False, True]
    consumer.clock.advance(9000)
    assert not got(3), "what those in sync fetch counts too"
    consumer.clock.advance(3000)
    assert got(3)


def test_a_leader_slows_down_only_what_is_named(broker: OneBroker) -> None:
    broker.create("t", leader_replication_throttled_replicas="1:1")
    set_rate(broker, 1, "leader")
    consumer = Consumer(broker)
    (partition,) = broker.replicas.topic("t")
    partition.use_state(PartitionState(NODE, 1, (NODE, 2, 3), (NODE, 2)))
    consumer.append("t", b"v" * 5000)
    for _ in range(2):
        answer = consumer.ask(follow(epoch=1), replica_id=3)
        assert answer.responses[0].partitions[0].records
