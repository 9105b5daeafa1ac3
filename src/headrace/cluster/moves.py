"""Partition reassignment. Pure: takes a partition's state, returns the next one.

A reassignment keeps the old replicas until all target replicas are in sync; the replica list has
the target first, then the replicas to remove. They are removed in one step, with a leader change if
the leader is one of them. Cancelling or replacing a reassignment removes the replicas that were
being added; the original replicas stay until the end.
"""

from collections.abc import Collection
from dataclasses import replace

from headrace.cluster.elections import first_of, with_epochs
from headrace.cluster.image import NO_LEADER, PartitionState
from headrace.errors import ErrorCode, KafkaError
from headrace.types import BrokerId


def is_moving(state: PartitionState) -> bool:
    """Whether replicas are being added or removed."""
    return bool(state.adding or state.removing)


def original(state: PartitionState) -> tuple[BrokerId, ...]:
    """The replicas before the reassignment, which are restored if it is cancelled."""
    return tuple(broker for broker in state.replicas if broker not in state.adding)


def target(state: PartitionState) -> tuple[BrokerId, ...]:
    """The replicas after the reassignment."""
    return tuple(broker for broker in state.replicas if broker not in state.removing)


def begin(
    state: PartitionState, wanted: tuple[BrokerId, ...], alive: Collection[BrokerId]
) -> PartitionState:
    """The state that begins a reassignment; KafkaError if no remaining replica is in sync."""
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
    """The state after the reassignment if all target replicas are in sync, else unchanged."""
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
    """The new state with its epochs. Removing a replica begins a leader epoch, as in Kafka.

    A removed replica loses its data. If it is added again, the leader must not use an old fetch
    of it, or an offset that it remembers, as the position of the replica.
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
