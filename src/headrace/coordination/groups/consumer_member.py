"""A member of a consumer group, and its reconciliation: the way from its current assignment to its
target.

`reconcile` makes one step: a member first revokes partitions that are not in its target, then its
epoch rises, then it gets partitions that others have revoked. A partition is assigned only after
its previous owner has confirmed the revocation, so that it never has two owners.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TypeAlias
from uuid import UUID

from headrace.coordination.consumer_records import (
    NOTHING,
    Assignment,
    ConsumerGroupMemberMetadata,
    CurrentAssignment,
)
from headrace.errors import ErrorCode, KafkaError

JOINING = 0
LEAVING = -1
LEAVING_FOR_NOW = -2
"""The epoch of a static member that has left temporarily."""

IsHeld: TypeAlias = Callable[[UUID, int], bool]
"""Whether a member owns this partition, or has not yet revoked it."""


class MemberState(IntEnum):
    """The state of a member's reconciliation; the numbers are Kafka's, in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


NEW = CurrentAssignment(JOINING, -1, MemberState.STABLE)
"""The assignment of a new member."""


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member, as its two records in the log describe it."""

    id: str
    metadata: ConsumerGroupMemberMetadata
    current: CurrentAssignment = NEW

    @property
    def epoch(self) -> int:
        """The epoch that its next heartbeat should have."""
        return self.current.member_epoch

    @property
    def instance_id(self) -> str | None:
        """The instance id of a static member."""
        return self.metadata.instance_id

    @property
    def uses_classic(self) -> bool:
        """Whether it uses JoinGroup and SyncGroup."""
        return self.metadata.classic is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether it has reached its target of this epoch."""
        return self.epoch == epoch and self.current.state == MemberState.STABLE


def check_epoch(member: ConsumerMember, epoch: int, owned: Assignment | None) -> None:
    """FENCED_MEMBER_EPOCH unless the member is in this epoch.

    The previous epoch is accepted too, if the member owns only partitions that it has now: the
    response with its new epoch may have been lost.
    """
    if epoch == member.epoch:
        return
    if (
        epoch == member.current.previous_epoch
        and owned is not None
        and epoch < member.epoch
        and _is_subset(owned, member.current.assigned)
    ):
        return
    size = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the "
        f"group coordinator ({member.epoch}). The member must abandon all its partitions and "
        "rejoin.",
    )


def reconcile(
    current: CurrentAssignment,
    target_epoch: int,
    target: Assignment,
    is_held: IsHeld,
    owned: Assignment | None,
) -> CurrentAssignment:
    """The member's next step towards `target`; the current assignment if it cannot move.

    `owned` is what the member reports to own; None if its heartbeat does not contain it.
    """
    match current.state:
        case MemberState.STABLE if current.member_epoch == target_epoch:
            return current
        case MemberState.UNREVOKED_PARTITIONS if _owns_any(owned, current.revoking):
            return current
        case MemberState.UNREVOKED_PARTITIONS:
            return _next(current, current.member_epoch + 1, target_epoch, target, is_held, owned)
    return _next(current, current.member_epoch, target_epoch, target, is_held, owned)


def _next(
    current: CurrentAssignment,
    epoch: int,
    target_epoch: int,
    target: Assignment,
    is_held: IsHeld,
    owned: Assignment | None,
) -> CurrentAssignment:
    keep = intersection(current.assigned, target)
    give_up = difference(current.assigned, keep)
    if give_up and _owns_any(owned, give_up):
        return _moved(current, epoch, MemberState.UNREVOKED_PARTITIONS, keep, give_up)
    wanted = difference(target, keep)
    free = {
        topic_id: found
        for topic_id, partitions in wanted.items()
        if (found := frozenset(one for one in partitions if not is_held(topic_id, one)))
    }
    waits = size(free) < size(wanted)
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return _moved(current, target_epoch, state, union(keep, free), NOTHING)


def _moved(
    current: CurrentAssignment,
    epoch: int,
    state: MemberState,
    assigned: Assignment,
    revoking: Assignment,
) -> CurrentAssignment:
    previous = current.previous_epoch if epoch == current.member_epoch else current.member_epoch
    return replace(
        current,
        member_epoch=epoch,
        previous_epoch=previous,
        state=state,
        assigned=assigned,
        revoking=revoking,
    )


# ------------------------------------------------------------------------------ assignments


def size(assignment: Assignment) -> int:
    """The number of partitions."""
    return sum(map(len, assignment.values()))


def intersection(one: Assignment, other: Assignment) -> Assignment:
    """The partitions that are in both."""
    return _without_empty(
        {topic: held & other[topic] for topic, held in one.items() if topic in other}
    )


def difference(one: Assignment, other: Assignment) -> Assignment:
    """The partitions that are only in the first."""
    nobody: frozenset[int] = frozenset()
    return _without_empty({topic: held - other.get(topic, nobody) for topic, held in one.items()})


def union(one: Assignment, other: Assignment) -> Assignment:
    """The partitions that are in either."""
    if not other:
        return one
    nobody: frozenset[int] = frozenset()
    return {**one, **{topic: held | one.get(topic, nobody) for topic, held in other.items()}}


def _without_empty(assignment: Mapping[UUID, frozenset[int]]) -> Assignment:
    return {topic: held for topic, held in assignment.items() if held}


def _owns_any(owned: Assignment | None, given_up: Assignment) -> bool:
    """Whether the member may still own some of it; it may if it did not report."""
    return owned is None or bool(intersection(owned, given_up))


def _is_subset(owned: Assignment, assigned: Assignment) -> bool:
    return not difference(owned, assigned)
