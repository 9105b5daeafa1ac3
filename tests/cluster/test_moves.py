"""A reassignment never loses records."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.cluster import elections, moves
from headrace.cluster.image import NO_LEADER, PartitionState
from headrace.errors import ErrorCode, KafkaError

FIRST = PartitionState(1, 4, (1, 2, 3), (1, 2, 3), 7)
ALL = {1, 2, 3, 4, 5, 6}


def test_old_replicas_stay_until_all_new_ones_are_in_sync() -> None:
    moving = moves.begin(FIRST, (4, 2, 5), ALL)
    assert moving.replicas == (4, 2, 5, 1, 3)
    assert (moving.adding, moving.removing) == ((4, 5), (1, 3))
    assert (moving.leader, moving.leader_epoch, moving.isr) == (1, 4, (1, 2, 3))
    assert moves.finish(moving, ALL) is moving
    half = elections.with_isr(moving, (1, 2, 3, 4), 2)
    assert moves.finish(half, ALL) is half
    after = moves.finish(elections.with_isr(half, (1, 2, 3, 4, 5), 2), ALL)
    assert (after.replicas, set(after.isr)) == ((4, 2, 5), {2, 4, 5})
    assert (after.leader, after.leader_epoch) == (4, 5)
    assert not moves.is_moving(after)


def test_a_leader_that_stays_leads_on() -> None:
    moving = elections.with_isr(moves.begin(FIRST, (2, 4, 1), ALL), (1, 2, 3, 4), 2)
    after = moves.finish(moving, ALL)
    assert (after.leader, after.replicas) == (1, (2, 4, 1))


def test_an_epoch_begins_when_a_replica_goes() -> None:
    """Otherwise what its leader knows of it would outlive its folder."""
    moving = moves.begin(FIRST, (1, 2, 4), ALL)
    assert moving.leader_epoch == FIRST.leader_epoch
    stopped = moves.begin(moving, moves.original(moving), ALL)
    assert stopped.leader_epoch == FIRST.leader_epoch + 1
    done = moves.finish(elections.with_isr(moving, (1, 2, 3, 4), 2), ALL)
    assert (done.leader, done.leader_epoch) == (1, FIRST.leader_epoch + 1)


def test_fewer_replicas_need_no_catching_up() -> None:
    after = moves.finish(moves.begin(FIRST, (2,), ALL), ALL)
    assert (after.replicas, after.isr, after.leader) == ((2,), (2,), 2)


def test_a_replica_that_lags_holds_up_a_move_that_would_lean_on_it() -> None:
    lagging = elections.with_isr(FIRST, (1, 3), 2)
    moving = moves.begin(lagging, (1, 2), ALL)
    assert moves.finish(moving, ALL) is moving


def test_a_new_order_moves_nothing() -> None:
    after = moves.begin(FIRST, (3, 1, 2), ALL)
    assert not moves.is_moving(after)
    assert (after.replicas, after.leader, after.leader_epoch) == ((3, 1, 2), 1, 4)


def test_a_stopped_move_leaves_those_who_were_there() -> None:
    moving = elections.with_isr(moves.begin(FIRST, (4, 5, 1), ALL), (1, 2, 3, 4), 2)
    after = moves.begin(moving, moves.original(moving), ALL)
    assert (set(after.replicas), after.isr) == ({1, 2, 3}, (1, 2, 3))
    assert not moves.is_moving(after)


def test_a_new_replica_that_leads_gives_way_when_the_move_is_stopped() -> None:
    moving = elections.with_isr(moves.begin(FIRST, (4, 5, 1), ALL), (1, 2, 3, 4), 2)
    moving = elections.elect(elections.without(moving, (1,), 2), ALL - {1})
    assert moving.leader == 4
    after = moves.begin(moving, moves.original(moving), ALL - {1})
    assert after.leader in (2, 3)
    assert after.leader_epoch == moving.leader_epoch + 1


def test_the_only_one_that_holds_everything_is_not_let_go() -> None:
    moving = moves.begin(PartitionState(1, 0, (1,), (1,)), (4,), ALL)
    moving = elections.with_isr(moving, (1, 4), 1)
    moving = elections.elect(elections.without(moving, (1,), 1), ALL - {1})
    assert moving.isr == (4,)
    with pytest.raises(KafkaError) as caught:
        moves.begin(moving, moves.original(moving), ALL - {1})
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_another_target_drops_what_the_first_one_was_adding() -> None:
    moving = elections.with_isr(moves.begin(FIRST, (4, 5, 1), ALL), (1, 2, 3, 4), 2)
    other = moves.begin(moving, (1, 2, 6), ALL)
    assert other.replicas == (1, 2, 6, 3)
    assert (other.adding, other.removing, other.isr) == ((6,), (3,), (1, 2, 3))


def test_nothing_waits_for_a_replica_that_is_only_being_added() -> None:
    moving = moves.begin(PartitionState(1, 0, (1,), (1,)), (1, 4), ALL)
    assert elections.effective_min_isr(moving, 2) == 1


@settings(deadline=None)
@given(st.data())
def test_whatever_happens_on_the_way_the_leader_holds_what_was_committed(
    data: st.DataObject,
) -> None:
    """A model as in `test_elections.py`, with moves."""
    min_isr = data.draw(st.integers(1, 3))
    brokers = (1, 2, 3, 4, 5)
    state = PartitionState(1, 0, (1, 2, 3), (1, 2, 3))
    held: dict[int, set[int]] = {broker: set() for broker in brokers}
    alive = set(brokers)
    committed: set[int] = set()
    for number in range(data.draw(st.integers(1, 30))):
        action = data.draw(
            st.sampled_from(["write", "write", "stop", "start", "catch up", "move", "cancel"])
        )
        broker = data.draw(st.sampled_from(brokers))
        if action == "write" and state.leader in alive and set(state.isr) <= alive:
            if len(state.isr) >= elections.effective_min_isr(state, min_isr):
                committed.add(number)
                for one in state.isr:
                    held[one].add(number)
        elif action == "stop" and broker in alive:
            alive.remove(broker)
        elif action == "start":
            alive.add(broker)
        elif action == "catch up" and state.leader in alive and broker in alive:
            if broker in state.replicas and broker not in state.isr:
                held[broker] |= held[state.leader]
                state = elections.with_isr(state, (*state.isr, broker), min_isr)
        elif action in ("move", "cancel"):
            target = tuple(data.draw(st.permutations(brokers)))[: data.draw(st.integers(1, 4))]
            wanted = moves.original(state) if action == "cancel" else target
            try:
                state = moves.begin(state, wanted, alive)
            except KafkaError:
                assert state.adding
        gone = [one for one in {*state.isr, state.leader} if one not in alive and one > 0]
        if gone:
            state = elections.without(state, gone, min_isr)
        state = elections.elect(moves.finish(state, alive), alive)
        for one in brokers:
            if one not in state.replicas:
                held[one].clear()  # its folder goes
        assert set(state.isr) <= set(state.replicas)
        if state.leader != NO_LEADER:
            assert state.leader in state.isr
            assert committed <= held[state.leader]
