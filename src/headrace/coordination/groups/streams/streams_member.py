"""A member of a streams group, and its reconciliation: the way from its tasks to its target.

`reconcile` makes one step: a member first revokes tasks that are not in its target, then its epoch
rises, then it gets tasks that others have revoked. An active task has one owner at any time, and no
process runs the same task twice, in whatever roles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Protocol

from headrace.coordination.groups.streams.tasks import NO_TASKS, TaskId, TaskSets
from headrace.coordination.streams_records import StreamsCurrentAssignment, StreamsMemberMetadata
from headrace.errors import ErrorCode, KafkaError

JOINING = 0
LEAVING = -1


class StreamsMemberState(IntEnum):
    """The state of a member's reconciliation; the numbers are Kafka's, in the log."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3


NEW_ASSIGNMENT = StreamsCurrentAssignment(JOINING, JOINING, StreamsMemberState.STABLE)
"""The assignment of a new member."""


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """A member, as its two records in the log describe it."""

    id: str
    metadata: StreamsMemberMetadata
    current: StreamsCurrentAssignment = NEW_ASSIGNMENT

    @property
    def epoch(self) -> int:
        """The epoch that its next heartbeat should have."""
        return self.current.member_epoch

    @property
    def process_id(self) -> str:
        """The process that it runs in."""
        return self.metadata.process_id

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether it has reached its target of this epoch."""
        return self.epoch == epoch and self.current.state == StreamsMemberState.STABLE

    @property
    def is_revoking(self) -> bool:
        """Whether the group waits until it has revoked tasks."""
        return self.current.state == StreamsMemberState.UNREVOKED_TASKS


class TaskHolders(Protocol):
    """Which processes run a task, or have not revoked it yet."""

    def active_process(self, task: TaskId) -> str | None:
        """The process that has it as an active task."""

    def has_copy(self, process_id: str, task: TaskId) -> bool:
        """Whether this process has it as a standby or warm-up task."""


def check_epoch(member: StreamsMember, epoch: int, owned: TaskSets | None) -> None:
    """FENCED_MEMBER_EPOCH unless the member is in this epoch, or joins again.

    The previous epoch is accepted too, if the member owns only tasks that it has now: the response
    with its new epoch may have been lost.
    """
    if epoch in (JOINING, member.epoch):
        return
    if (
        epoch == member.current.previous_epoch
        and epoch < member.epoch
        and owned is not None
        and not owned - member.current.assigned
    ):
        return
    size = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {size} member epoch ({epoch}) than the one known by the "
        f"group coordinator ({member.epoch}). The member must abandon all its partitions and "
        "rejoin.",
    )


def reconcile(
    member: StreamsMember,
    target_epoch: int,
    target: TaskSets,
    holders: TaskHolders,
    owned: TaskSets | None,
) -> StreamsCurrentAssignment:
    """The member's next step towards `target`; its current assignment if it cannot move.

    `owned` is what the member reports to own; None if its heartbeat does not contain it.
    """
    current = member.current
    epoch = current.member_epoch
    if current.state == StreamsMemberState.STABLE and epoch == target_epoch:
        return current
    if current.state == StreamsMemberState.UNREVOKED_TASKS:
        if _owns_any(owned, current.revoking):
            return current
        epoch += 1
    keep = current.assigned & target
    give_up = current.assigned - keep
    if give_up and _owns_any(owned, give_up):
        state = StreamsMemberState.UNREVOKED_TASKS
        return _moved(current, epoch, state, keep, give_up, current.epochs)
    wanted = target - keep
    free = _free(wanted, member.process_id, holders)
    state = StreamsMemberState.UNRELEASED_TASKS if free != wanted else StreamsMemberState.STABLE
    epochs = {**current.epochs, **dict.fromkeys(free.active, target_epoch)}
    return _moved(current, target_epoch, state, keep | free, NO_TASKS, epochs)


def _free(wanted: TaskSets, process_id: str, holders: TaskHolders) -> TaskSets:
    """The tasks that this process may start: nobody has the active task, it has no copy."""
    without_copy = TaskSets(
        *(
            frozenset(task for task in tasks if not holders.has_copy(process_id, task))
            for tasks in (wanted.active, wanted.standby, wanted.warmup)
        )
    )
    return TaskSets(
        frozenset(one for one in without_copy.active if holders.active_process(one) is None),
        *(
            frozenset(one for one in tasks if holders.active_process(one) != process_id)
            for tasks in (without_copy.standby, without_copy.warmup)
        ),
    )


def _moved(
    current: StreamsCurrentAssignment,
    epoch: int,
    state: StreamsMemberState,
    assigned: TaskSets,
    revoking: TaskSets,
    epochs: Mapping[TaskId, int],
) -> StreamsCurrentAssignment:
    previous = current.previous_epoch if epoch == current.member_epoch else current.member_epoch
    held = assigned.active | revoking.active
    return replace(
        current,
        member_epoch=epoch,
        previous_epoch=previous,
        state=state,
        assigned=assigned,
        revoking=revoking,
        epochs={task: epochs[task] for task in held},
    )


def _owns_any(owned: TaskSets | None, given_up: TaskSets) -> bool:
    """Whether the member may still own some of it; it may if it did not report."""
    return owned is None or bool(owned & given_up)
