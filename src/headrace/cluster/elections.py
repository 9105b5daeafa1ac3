"""Leader election and the in-sync replicas. Pure: takes a partition's state, returns the next one.

The rules are those of KIP-966: a replica that leaves the in-sync set while that is smaller than
`min.insync.replicas` stays eligible, because it still holds everything that was acknowledged
(nothing is committed below that size). A broker that stopped uncleanly may have lost records:
it is neither in sync nor eligible until it has caught up. If no replica is eligible, the last
leader is elected when it returns; any other replica needs `unclean.leader.election.enable`.
"""

from collections.abc import Collection
from dataclasses import replace

from headrace.cluster.image import NO_LEADER, PartitionState
from headrace.types import BrokerId


def effective_min_isr(state: PartitionState, configured: int) -> int:
    """The number of in-sync replicas that a commit needs.

    Replicas that a reassignment adds do not count yet: commits do not wait for them.
    """
    return max(1, min(configured, len(state.replicas) - len(state.adding)))


def without(
    state: PartitionState, gone: Collection[BrokerId], min_isr: int, *, uncleanly: bool = False
) -> PartitionState:
    """The state after these brokers ended, or restarted after an unclean stop."""
    isr = tuple(broker for broker in state.isr if broker not in gone)
    eligible = state.eligible
    if uncleanly:
        eligible = tuple(broker for broker in eligible if broker not in gone)
    elif len(isr) < effective_min_isr(state, min_isr):
        left = tuple(broker for broker in state.isr if broker in gone and broker not in eligible)
        eligible = (*eligible, *left)
    last = state.last_leader
    if state.isr and not isr:
        last = state.leader if state.leader in state.isr else state.isr[0]
    leader = NO_LEADER if state.leader in gone else state.leader
    changed = replace(state, isr=isr, eligible=eligible, last_leader=last, leader=leader)
    return with_epochs(state, changed)


def elect(
    state: PartitionState, alive: Collection[BrokerId], *, unclean: bool = False
) -> PartitionState:
    """The state with a leader, if it had none and a replica may lead."""
    if state.leader in alive and state.leader in state.isr:
        return state
    leader = first_of(state.replicas, alive, state.isr)
    if leader is not None:
        return with_epochs(state, replace(state, leader=leader))
    leader = first_of(state.replicas, alive, state.eligible)
    if leader is None and not state.isr and not state.eligible and state.last_leader in alive:
        leader = state.last_leader
    if leader is None and unclean:
        leader = first_of(state.replicas, alive, state.replicas)
    if leader is None:
        return with_epochs(state, replace(state, leader=NO_LEADER))
    eligible = tuple(broker for broker in state.eligible if broker != leader)
    return with_epochs(state, replace(state, leader=leader, isr=(leader,), eligible=eligible))


def prefer(state: PartitionState, alive: Collection[BrokerId]) -> PartitionState:
    """The state led by the first replica, if that one is alive and in sync."""
    first = state.replicas[0]
    if state.leader == first or first not in alive or first not in state.isr:
        return state
    return with_epochs(state, replace(state, leader=first))


def hand_over(
    state: PartitionState, leaving: BrokerId, alive: Collection[BrokerId]
) -> PartitionState:
    """The state without a stopping broker, if another can lead or it is not the leader."""
    others = [broker for broker in alive if broker != leaving]
    if state.leader == leaving:
        leader = first_of(state.replicas, others, state.isr)
        if leader is None:
            return state
        state = with_epochs(state, replace(state, leader=leader))
    return state


def retire(
    state: PartitionState, broker: BrokerId, alive: Collection[BrokerId], min_isr: int
) -> PartitionState:
    """The state after a broker's replica went offline, if another can lead."""
    if broker not in (state.leader, *state.isr):
        return state
    others = [one for one in alive if one != broker]
    after = elect(without(state, (broker,), min_isr), others)
    return state if after.leader == NO_LEADER else after


def without_damaged(
    state: PartitionState, broker: BrokerId, alive: Collection[BrokerId]
) -> PartitionState:
    """The state after a broker's replica was found damaged, if another in-sync one can lead.

    A leader epoch begins in any case: offsets that the leader knows of this replica, or receives
    late, are from before the truncation of its log.
    """
    others = tuple(one for one in state.isr if one != broker)
    leader = state.leader if state.leader != broker else None
    if leader not in alive:
        leader = first_of(state.replicas, alive, others)
    if broker not in state.replicas or leader is None:
        return state
    return replace(
        state,
        leader=leader,
        isr=others,
        eligible=tuple(one for one in state.eligible if one != broker),
        leader_epoch=state.leader_epoch + 1,
        partition_epoch=state.partition_epoch + 1,
    )


def with_isr(state: PartitionState, isr: tuple[BrokerId, ...], min_isr: int) -> PartitionState:
    """The state with the in-sync set that its leader proposes."""
    if len(isr) >= effective_min_isr(state, min_isr):
        eligible: tuple[BrokerId, ...] = ()
    else:
        left = (*state.eligible, *state.isr)
        eligible = tuple(broker for broker in dict.fromkeys(left) if broker not in isr)
    return with_epochs(state, replace(state, isr=isr, eligible=eligible))


def first_of(
    order: Collection[BrokerId], alive: Collection[BrokerId], among: Collection[BrokerId]
) -> BrokerId | None:
    """The first broker in this order that is alive and a candidate."""
    return next((broker for broker in order if broker in alive and broker in among), None)


def with_epochs(old: PartitionState, new: PartitionState) -> PartitionState:
    """The new state with its epochs: a change of leader, also to none, begins a leader epoch."""
    if new == old:
        return old
    epoch = old.leader_epoch + (new.leader != old.leader)
    return replace(new, leader_epoch=epoch, partition_epoch=old.partition_epoch + 1)
