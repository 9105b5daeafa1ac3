"""Plans for reassignments from a layout, without a broker; `tests/cli` carries them out."""

import pytest

from headrace.admin.errors import AdminError, NotFound
from headrace.admin.reassignment import (
    not_led_by_preferred,
    plan_balance,
    plan_drain,
    plan_replication_factor,
)
from headrace.client.layout import Held, Layout
from headrace.types import TopicPartition

AT = TopicPartition("t", 0)


def layout(*brokers: int, replicas: tuple[int, ...] = (1, 2), leader: int = 1) -> Layout:
    return Layout(dict.fromkeys(brokers), {AT: Held(replicas, replicas, leader)})


def test_a_drained_broker_gives_its_replicas_to_another() -> None:
    (move,) = plan_drain(layout(1, 2, 3), 2).moves
    assert (move.partition, set(move.after)) == (AT, {1, 3})


def test_a_dead_broker_can_be_drained_and_an_unknown_one_is_not_found() -> None:
    (move,) = plan_drain(layout(1, 3), 2).moves
    assert set(move.after) == {1, 3}
    with pytest.raises(NotFound, match="broker 9 does not exist") as caught:
        plan_drain(layout(1, 2), 9)
    assert caught.value.hint == "There are 1, 2."


def test_a_plan_that_needs_more_brokers_than_there_are_is_an_error() -> None:
    with pytest.raises(AdminError) as caught:
        plan_drain(layout(1, 2), 2)
    assert caught.value.code == "TOO_FEW_BROKERS"
    with pytest.raises(AdminError, match="replication factor 3"):
        plan_replication_factor(layout(1, 2), "t", 3)


def test_what_is_even_needs_no_moves() -> None:
    assert plan_balance(layout(1, 2)).moves == ()


def test_partitions_that_the_preferred_replica_could_lead_are_found() -> None:
    assert not_led_by_preferred(layout(1, 2, leader=1)) == []
    assert not_led_by_preferred(layout(1, 2, leader=2)) == [AT]
    out_of_sync = Layout({1: None, 2: None}, {AT: Held((1, 2), (2,), 2)})
    assert not_led_by_preferred(out_of_sync) == []
