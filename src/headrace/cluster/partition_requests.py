"""Decides requests to reassign partitions or to elect leaders. Pure, as `controller.py`.

The rules of a single partition are in `moves.py` and `elections.py`; this module has the
validation and Kafka's error codes.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from headrace.cluster import elections, moves
from headrace.cluster.image import NO_LEADER, Image, PartitionState, Topic
from headrace.errors import ErrorCode, KafkaError
from headrace.types import BrokerId, TopicPartition

_Wanted = TypeVar("_Wanted")
Outcome = tuple[list[KafkaError | None], list[Topic]]
"""For each requested partition None or its error, and the topics that change."""


@dataclass(frozen=True, slots=True)
class ReassignmentRequest:
    """A partition and its target replicas; None cancels its reassignment."""

    partition: TopicPartition
    replicas: tuple[BrokerId, ...] | None


def reassign(
    image: Image,
    registered: Collection[BrokerId],
    requested: Iterable[ReassignmentRequest],
    *,
    may_resize: bool = True,
) -> Outcome:
    """Begin or cancel reassignments.

    `registered` are the brokers that have ever registered, alive or not; a reassignment to one that
    is not alive waits for it. `may_resize` is whether the number of replicas may change.
    """

    def moved(state: PartitionState, request: ReassignmentRequest) -> PartitionState:
        before = moves.original(state)
        if request.replicas is None:
            if not moves.is_moving(state):
                raise KafkaError(
                    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{request.partition} is not moving"
                )
            return moves.begin(state, before, image.brokers)
        _check_target(request.partition, request.replicas, registered)
        if not may_resize and len(request.replicas) != len(before):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{request.partition} has {len(before)} replica(s), the request has "
                f"{len(request.replicas)} and forbids a change of the replication factor",
            )
        if request.replicas == moves.target(state):
            return state
        return moves.begin(state, request.replicas, image.brokers)

    return _change(image, [(request.partition, request) for request in requested], moved)


def elect_preferred(image: Image, partitions: Iterable[TopicPartition]) -> Outcome:
    """Elect the preferred leader (the first replica) of each partition."""

    def elected(state: PartitionState, partition: TopicPartition) -> PartitionState:
        first = state.replicas[0]
        if state.leader == first:
            raise _not_needed(partition, state)
        after = elections.prefer(state, image.brokers)
        if after is state:
            raise KafkaError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"broker {first} cannot lead {partition} now: it is not alive and in sync",
            )
        return after

    return _change(image, [(one, one) for one in partitions], elected)


def elect_unclean(image: Image, partitions: Iterable[TopicPartition]) -> Outcome:
    """Unclean election: any live replica may lead a leaderless partition; records may be lost."""

    def elected(state: PartitionState, partition: TopicPartition) -> PartitionState:
        if state.leader != NO_LEADER:
            raise _not_needed(partition, state)
        after = elections.elect(state, image.brokers, unclean=True)
        if after.leader == NO_LEADER:
            raise KafkaError(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica of {partition} is alive"
            )
        return after

    return _change(image, [(one, one) for one in partitions], elected)


def _not_needed(partition: TopicPartition, state: PartitionState) -> KafkaError:
    return KafkaError(
        ErrorCode.ELECTION_NOT_NEEDED, f"{partition} is led by broker {state.leader} already"
    )


def _check_target(
    partition: TopicPartition, wanted: Sequence[BrokerId], registered: Collection[BrokerId]
) -> None:
    if not wanted:
        reason = "name at least one broker"
    elif len(set(wanted)) != len(wanted):
        reason = f"a broker is named more than once: {list(wanted)}"
    elif unknown := [broker for broker in wanted if broker not in registered]:
        reason = f"unknown broker {unknown[0]}"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{partition}: {reason}")


def _change(
    image: Image,
    wanted: Iterable[tuple[TopicPartition, _Wanted]],
    change: Callable[[PartitionState, _Wanted], PartitionState],
) -> Outcome:
    """`change` applied to each partition in turn; an error of one does not affect the others."""
    results: list[KafkaError | None] = []
    changed: dict[str, list[PartitionState]] = {}
    for (name, index), request in wanted:
        topic = image.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            error = KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"unknown partition {name}-{index}"
            )
            results.append(error)
            continue
        states = changed.get(name) or list(topic.partitions)
        try:
            after = change(states[index], request)
        except KafkaError as error:
            results.append(error)
            continue
        results.append(None)
        if after is not states[index]:
            states[index] = after
            changed[name] = states
    topics = [replace(image.topics[name], partitions=tuple(s)) for name, s in changed.items()]
    return results, topics
