"""Plans: brokers differ by one at most, nothing moves without need, racks are kept apart."""

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.admin.balance import Plan, Replicas, TooFewBrokers, drain, even_out, resize
from headrace.types import TopicPartition

Held = dict[TopicPartition, Replicas]


def flat(*brokers: int) -> dict[int, str | None]:
    return dict.fromkeys(brokers)


def topic(name: str, *replicas: Replicas) -> Held:
    return {TopicPartition(name, index): each for index, each in enumerate(replicas)}


def after(held: Mapping[TopicPartition, Replicas], plan: Plan) -> Held:
    return {**held, **{move.partition: move.after for move in plan.moves}}


def per_broker(
    held: Mapping[TopicPartition, Replicas], brokers: Mapping[int, object]
) -> Counter[int]:
    counted = Counter(broker for replicas in held.values() for broker in replicas)
    return Counter({broker: counted[broker] for broker in brokers})


def spread(counts: Mapping[int, int]) -> int:
    return max(counts.values()) - min(counts.values())


def test_a_new_broker_gets_its_share_and_no_more_moves_than_that() -> None:
    held = topic("t", *[(1 + n % 2, 2 - n % 2) for n in range(12)])
    plan = even_out(flat(1, 2, 3), held)
    assert {share.replicas for share in plan.after.values()} == {8}
    assert {share.leaders for share in plan.after.values()} == {4}
    assert sum(move.copies for move in plan.moves) == 8
    assert plan.before[3].replicas == 0
    assert "broker 3 0" in plan.moves[0].why


def test_what_is_even_stays_as_it_is() -> None:
    held = topic("t", (1, 2), (2, 3), (3, 1)) | topic("u", (1, 2))
    assert even_out(flat(1, 2, 3), held).moves == ()


def test_many_small_topics_are_spread_too() -> None:
    held: Held = {}
    for number in range(9):
        held |= topic(f"t{number}", (1,))
    plan = even_out(flat(1, 2, 3), held)
    assert {share.replicas for share in plan.after.values()} == {3}
    assert len(plan.moves) == 6


def test_leaders_change_without_a_copy() -> None:
    held = topic("t", (1, 2, 3), (1, 2, 3), (1, 3, 2))
    plan = even_out(flat(1, 2, 3), held)
    assert {share.leaders for share in plan.after.values()} == {1}
    assert [move.copies for move in plan.moves] == [0, 0]


def test_leaders_go_by_way_of_others_where_no_partition_is_shared() -> None:
    held = topic("t", (1, 2), (1, 2), (1, 2), (2, 3), (2, 3), (4, 3))
    plan = even_out(flat(1, 2, 3, 4), held)
    assert spread({broker: share.leaders for broker, share in plan.after.items()}) <= 1


def test_replicas_in_one_rack_are_moved_apart() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    held = topic("t", (1, 2), (3, 4), (1, 3), (2, 4))
    result = after(held, even_out(racks, held))
    for replicas in result.values():
        assert {racks[broker] for broker in replicas} == {"a", "b"}


def test_a_replica_on_a_dead_broker_waits_for_it() -> None:
    held = topic("t", (9, 1), (1, 9), (1, 2))
    result = after(held, even_out(flat(1, 2), held))
    assert sum(9 in replicas for replicas in result.values()) == 2


def test_a_drained_broker_holds_nothing_and_its_leaders_are_shared() -> None:
    held = topic("t", *[(1, 2 + n % 3) for n in range(6)], *[(2 + n % 3, 1) for n in range(3)])
    plan = drain(flat(1, 2, 3, 4), held, 1)
    result = after(held, plan)
    assert all(1 not in replicas and len(set(replicas)) == 2 for replicas in result.values())
    assert plan.after[1].replicas == plan.after[1].leaders == 0
    rest = {broker: share for broker, share in plan.after.items() if broker != 1}
    assert spread({broker: share.replicas for broker, share in rest.items()}) <= 2
    assert spread({broker: share.leaders for broker, share in rest.items()}) <= 2
    assert {move.why for move in plan.moves} == {"broker 1 is drained"}


def test_a_broker_that_a_topic_needs_cannot_be_drained() -> None:
    with pytest.raises(TooFewBrokers, match="topic t has replication factor 3"):
        drain(flat(1, 2, 3), topic("t", (1, 2, 3)), 1)
    assert drain(flat(1, 2, 3), topic("t", (1, 2)), 3).moves == ()


def test_more_replicas_go_where_there_are_few_and_the_leader_stays() -> None:
    held = topic("t", (1,), (1,)) | topic("u", (1, 2), (2, 1))
    plan = resize(flat(1, 2, 3), held, "t", 2)
    assert [(str(move.partition), move.after) for move in plan.moves] == [
        ("t-0", (1, 3)), ("t-1", (1, 2)),
    ]  # fmt: skip
    with pytest.raises(TooFewBrokers, match="needs 4 brokers"):
        resize(flat(1, 2, 3), held, "t", 4)


def test_fewer_replicas_let_the_dead_go_first() -> None:
    held = topic("t", (1, 9, 2), (9, 1, 2))
    plan = resize(flat(1, 2), held, "t", 2)
    assert [move.after for move in plan.moves] == [(1, 2), (1, 2)]


@settings(deadline=None)
@given(st.data())
def test_any_cluster_gets_even_and_stays_so(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 6))
    brokers = flat(*range(1, size + 1))
    held: Held = {}
    for number in range(data.draw(st.integers(1, 5))):
        factor = data.draw(st.integers(1, size))
        orders = [
            tuple(data.draw(st.permutations(range(1, size + 1))))[:factor]
            for _ in range(data.draw(st.integers(1, 8)))
        ]
        held |= topic(f"t{number}", *orders)
    plan = even_out(brokers, held)
    result = after(held, plan)
    assert all(len(set(one)) == len(held[name]) for name, one in result.items())
    assert spread(per_broker(result, brokers)) <= 1
    for name in {partition.topic for partition in held}:
        one = {partition: each for partition, each in result.items() if partition.topic == name}
        assert spread(per_broker(one, brokers)) <= 1
    assert even_out(brokers, result).moves == ()
