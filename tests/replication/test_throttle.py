"""Moves are slowed down to the rate that was set, and only moves."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.cluster.controller import Alteration, ConfigChange, Operation
from headrace.cluster.image import Image, Topic
from headrace.replication.throttle import Throttle
from tests.apis.one_broker import NODE, OneBroker


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


def set_rate(broker: OneBroker, rate: int) -> None:
    name = "follower.replication.throttled.rate"
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
        waits.append(throttle.is_overdrawn)
    throttle.copied(5000)
    set_rate(broker, 10_000)
    for seconds in (0.4, 0.2):
        clock.now_s += seconds
        waits.append(throttle.is_overdrawn)
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
