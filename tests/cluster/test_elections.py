"""Elections: in-sync replicas, eligible leaders, the last leader, and unclean elections."""

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster import elections
from headrace.cluster.image import NO_LEADER, PartitionState

FIRST = PartitionState(1, 4, (1, 2, 3), (1, 2, 3), 7)


def test_the_next_in_sync_replica_leads_in_a_new_epoch() -> None:
    after = elections.elect(elections.without(FIRST, (1,), 2), {2, 3})
    assert (after.leader, after.leader_epoch, after.isr) == (2, 6, (2, 3))
    assert after.eligible == ()


def test_who_leaves_a_set_that_is_too_small_stays_eligible() -> None:
    alone = elections.without(FIRST, (1, 2), 2)
    assert (alone.isr, alone.eligible) == ((3,), (1, 2))
    nobody = elections.without(elections.elect(alone, {3}), (3,), 2)
    assert (nobody.leader, nobody.isr, nobody.eligible) == (NO_LEADER, (), (1, 2, 3))
    back = elections.elect(nobody, {2})
    assert (back.leader, back.isr, back.eligible) == (2, (2,), (1, 3))


def test_an_unclean_stop_costs_eligibility() -> None:
    alone = elections.without(FIRST, (1, 2), 2)
    after = elections.without(alone, (1,), 2, uncleanly=True)
    assert after.eligible == (2,)
    nobody = elections.without(elections.elect(after, {3}), (3,), 2)
    assert elections.elect(nobody, {1}).leader == NO_LEADER
    assert elections.elect(nobody, {1}, unclean=True).leader == 1


def test_when_all_stopped_uncleanly_only_the_last_leader_is_taken_back() -> None:
    state = FIRST
    for broker in (1, 2, 3):
        state = elections.elect(
            elections.without(state, (broker,), 2), {2, 3} - set(range(broker + 1))
        )
    for broker in (1, 2, 3):
        state = elections.without(state, (broker,), 2, uncleanly=True)
    assert (state.isr, state.eligible, state.last_leader) == ((), (), 3)
    assert elections.elect(state, {1, 2}).leader == NO_LEADER
    assert elections.elect(state, {1, 2, 3}).leader == 3


def test_a_set_that_is_large_enough_makes_eligibility_void() -> None:
    alone = elections.elect(elections.without(FIRST, (1, 2), 2), {3})
    assert elections.with_isr(alone, (3, 1), 2).eligible == ()
    shrunk = elections.with_isr(FIRST, (1,), 2)
    assert (shrunk.isr, shrunk.eligible, shrunk.leader_epoch) == ((1,), (2, 3), 4)


def test_leadership_goes_back_to_the_first_replica_only_when_that_is_in_sync() -> None:
    moved = elections.elect(elections.without(FIRST, (1,), 2), {2, 3})
    assert elections.prefer(moved, {1, 2, 3}) is moved
    again = elections.prefer(elections.with_isr(moved, (2, 3, 1), 2), {1, 2, 3})
    assert (again.leader, again.leader_epoch) == (1, moved.leader_epoch + 1)


def test_a_broker_that_stops_hands_over_what_others_can_lead() -> None:
    assert elections.hand_over(FIRST, 1, {1, 2, 3}).leader == 2
    alone = PartitionState(1, 4, (1, 2), (1,), 7)
    assert elections.hand_over(alone, 1, {1, 2}) is alone


def test_a_broker_that_cannot_serve_retires_only_if_another_can_lead() -> None:
    after = elections.retire(FIRST, 1, {1, 2, 3}, 2)
    assert (after.leader, after.isr) == (2, (2, 3))
    assert elections.retire(FIRST, 3, {1, 2, 3}, 2).isr == (1, 2)
    alone = PartitionState(1, 4, (1, 2), (1,), 7)
    assert elections.retire(alone, 1, {1, 2}, 1) is alone


def test_a_damaged_replica_is_not_counted_on_until_it_caught_up_in_a_new_epoch() -> None:
    led = elections.without_damaged(FIRST, 1, {1, 2, 3})
    assert (led.leader, led.isr, led.leader_epoch) == (2, (2, 3), FIRST.leader_epoch + 1)
    followed = elections.without_damaged(FIRST, 3, {1, 2, 3})
    assert (followed.leader, followed.isr) == (1, (1, 2))
    assert followed.leader_epoch == FIRST.leader_epoch + 1
    eligible = PartitionState(1, 4, (1, 2, 3), (1,), 7, eligible=(2, 3))
    assert elections.without_damaged(eligible, 2, {1, 2, 3}).eligible == (3,)
    assert elections.without_damaged(eligible, 1, {1, 2, 3}) is eligible, "nobody else is in sync"
    assert elections.without_damaged(FIRST, 1, {1}) is FIRST, "nobody else is there"


BROKERS = (1, 2, 3, 4)


@given(st.data())
def test_every_leader_has_all_committed_records(data: st.DataObject) -> None:
    """A model: each broker has the epochs of commits it holds; unclean stops may lose them."""
    min_isr = data.draw(st.integers(1, 3))
    state = PartitionState(1, 0, (1, 2, 3), (1, 2, 3))
    held: dict[int, set[int]] = {broker: set() for broker in BROKERS}
    alive: set[int] = {1, 2, 3}
    committed: set[int] = set()
    clean: dict[int, bool] = {}
    for number in range(data.draw(st.integers(1, 25))):
        action = data.draw(st.sampled_from(["write", "stop", "crash", "start", "catch up", "lag"]))
        broker = data.draw(st.sampled_from((1, 2, 3)))
        if action == "write" and state.leader in alive:
            in_sync = [one for one in state.isr if one in alive]
            if len(state.isr) >= elections.effective_min_isr(state, min_isr) and len(
                in_sync
            ) == len(state.isr):
                committed.add(number)
                for one in state.isr:
                    held[one].add(number)
        elif action in ("stop", "crash") and broker in alive:
            alive.remove(broker)
            clean[broker] = action == "stop"
            state = _settle(elections.without(state, (broker,), min_isr), alive)
        elif action == "start" and broker not in alive:
            if not clean[broker]:
                state = elections.without(state, (broker,), min_isr, uncleanly=True)
                others = (*state.isr, *state.eligible)
                if any(one in alive or clean[one] for one in others):
                    held[broker].clear()  # at worst; but never all of those who held it
            alive.add(broker)
            state = _settle(state, alive)
        elif action == "catch up" and broker in alive and state.leader in alive:
            held[broker] |= held[state.leader]
            if broker not in state.isr:
                state = elections.with_isr(state, (*state.isr, broker), min_isr)
        elif action == "lag" and broker in state.isr and broker != state.leader in alive:
            rest = tuple(one for one in state.isr if one != broker)
            state = elections.with_isr(state, rest, min_isr)
        if state.leader != NO_LEADER:
            assert state.leader in state.isr
            assert committed <= held[state.leader]
        assert not set(state.isr) & set(state.eligible)


def _settle(state: PartitionState, alive: Collection[int]) -> PartitionState:
    return elections.elect(state, alive)


@pytest.mark.parametrize(("replicas", "configured", "effective"), [(3, 2, 2), (1, 2, 1), (2, 0, 1)])
def test_a_topic_cannot_ask_for_more_in_sync_than_it_has(
    replicas: int, configured: int, effective: int
) -> None:
    state = PartitionState(1, 0, tuple(range(1, replicas + 1)), (1,))
    assert elections.effective_min_isr(state, configured) == effective
