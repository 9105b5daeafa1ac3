"""Replicas of new partitions go round all brokers."""

from collections import Counter

import pytest

from headrace.cluster.image import Broker
from headrace.cluster.placement import place


def brokers(count: int, racks: int = 0) -> list[Broker]:
    return [Broker(n, "h", 9092, f"r{n % racks}" if racks else None) for n in range(count)]


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_leaders_and_replicas_are_spread_evenly(factor: int) -> None:
    placed = place(brokers(5), 100, factor)
    assert Counter(replicas[0] for replicas in placed) == dict.fromkeys(range(5), 20)
    assert set(Counter(b for replicas in placed for b in replicas).values()) == {20 * factor}


def test_no_broker_holds_a_partition_twice() -> None:
    for replicas in place(brokers(4), 50, 4, start=7):
        assert sorted(replicas) == [0, 1, 2, 3]


def test_the_leaders_of_a_lost_broker_move_to_all_others() -> None:
    heirs = {replicas[1] for replicas in place(brokers(4), 40, 2) if replicas[0] == 0}
    assert heirs == {1, 2, 3}


def test_replicas_are_in_different_racks_where_racks_are_known() -> None:
    for replicas in place(brokers(6, racks=3), 30, 3):
        assert len({broker % 3 for broker in replicas}) == 3


def test_small_topics_begin_at_different_brokers() -> None:
    assert {place(brokers(3), 1, 1, start)[0] for start in range(3)} == {(0,), (1,), (2,)}


def test_a_single_broker_holds_everything_in_one_shared_tuple() -> None:
    placed = place(brokers(1), 1000, 1)
    assert placed == [(0,)] * 1000
    assert all(replicas is placed[0] for replicas in placed)
