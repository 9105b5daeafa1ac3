"""Moving a partition to other brokers. Pure: a partition's state in, its next one out.

A move keeps the old replicas beside the new ones until all of the target are in sync, in one order:
first the target, then those that go. Only then do the others go, in one step with the leader if
that is one of them. Stopping a move, or asking for another one meanwhile, lets go of the replicas
that were being added; what the partition held before is never given up on the way.
"""

from collections.abc import Collection
from dataclasses import replace

from headrace.cluster.elections import first_of, with_epochs
from headrace.cluster.image import NO_LEADER, PartitionState
from headrace.errors import ErrorCode, KafkaError
from headrace.types import BrokerId


def is_moving(state: PartitionState) -> bool:
    """Whether replicas come or go."""
    return bool(state.adding or state.removing)


def original(state: PartitionState) -> tuple[BrokerId, ...]:
    """Who held the partition before the move, and holds it again if that is stopped."""
    return tuple(broker for broker in state.replicas if broker not in state.adding)


def target(state: PartitionState) -> tuple[BrokerId, ...]:
    """Who holds the partition once the move is done."""
    return tuple(broker for broker in state.replicas if broker not in state.removing)


def begin(
    state: PartitionState, wanted: tuple[BrokerId, ...], alive: Collection[BrokerId]
) -> PartitionState:
    """The state on its way to these replicas; KafkaError if only those that go hold everything."""
    before = original(state)
    removing = tuple(broker for broker in before if broker not in wanted)
    replicas = (*wanted, *removing)
    isr, eligible = _among(state.isr, replicas), _among(state.eligible, replicas)
    last = state.last_leader if state.last_leader in replicas else NO_LEADER
    if not (isr or eligible or last in replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "only replicas that were being added are in sync; without them records would be lost",
        )
    leader = state.leader
    if leader not in replicas:
        leader = _leader(replicas, alive, isr)
    return _changed(
        state,
        replace(
            state,
            leader=leader,
            replicas=replicas,
            isr=isr,
            eligible=eligible,
            last_leader=last,
            adding=tuple(broker for broker in wanted if broker not in before),
            removing=removing,
        ),
    )


def finish(state: PartitionState, alive: Collection[BrokerId]) -> PartitionState:
    """The state after the move, once all of its target are in sync; until then as it is."""
    if not is_moving(state):
        return state
    replicas = target(state)
    if not set(replicas) <= set(state.isr):
        return state
    leader = state.leader
    if leader not in replicas:
        leader = _leader(replicas, alive, replicas)
    return _changed(
        state,
        replace(
            state,
            leader=leader,
            replicas=replicas,
            isr=_among(state.isr, replicas),
            eligible=(),
            adding=(),
            removing=(),
        ),
    )


def _changed(old: PartitionState, new: PartitionState) -> PartitionState:
    """The new state with its epochs: when a replica goes, a leader epoch begins, as in Kafka.

    Its folder goes with it. If it comes back, nobody may take an old fetch of it, or what the
    leader remembers of it, for a sign of what it holds.
    """
    after = with_epochs(old, new)
    if set(old.replicas) <= set(new.replicas) or after.leader_epoch != old.leader_epoch:
        return after
    return replace(after, leader_epoch=old.leader_epoch + 1)


def _among(brokers: tuple[BrokerId, ...], allowed: Collection[BrokerId]) -> tuple[BrokerId, ...]:
    return tuple(broker for broker in brokers if broker in allowed)


def _leader(
    replicas: tuple[BrokerId, ...], alive: Collection[BrokerId], isr: Collection[BrokerId]
) -> BrokerId:
    leader = first_of(replicas, alive, isr)
    return NO_LEADER if leader is None else leader
