"""A change to a streams group before it is written: the new state, and the records.

The steps of a heartbeat, in order: `put` the member, `take_topology`, `bump` the group epoch,
`retarget`, and `move` the member one step towards its target. Nothing here changes the group: its
records do, when they are replayed.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.coordination.groups.group import STREAMS
from headrace.coordination.groups.streams.streams_member import StreamsMember, reconcile
from headrace.coordination.groups.streams.streams_state import StreamsState
from headrace.coordination.groups.streams.task_assignor import (
    SubtopologyTasks,
    TaskRunner,
    assign_sticky,
)
from headrace.coordination.groups.streams.tasks import NO_TASKS, TaskSets
from headrace.coordination.groups.streams.topic_setup import ConfiguredTopology
from headrace.coordination.groups.streams.topology import StreamsTopology
from headrace.coordination.outcome import Outcome, Record, Timer
from headrace.coordination.streams_records import (
    StreamsCurrentKey,
    StreamsGroupMetadata,
    StreamsGroupMetadataKey,
    StreamsMemberKey,
    StreamsTarget,
    StreamsTargetKey,
    StreamsTargetMetadata,
    StreamsTargetMetadataKey,
    StreamsTopologyKey,
    StreamsTopologyRecord,
    streams_member_tombstones,
)
from headrace.errors import ErrorCode, KafkaError

SESSION, REBALANCE = "session", "rebalance"
"""Third part of the key of a member's timer; the fourth is the member's id."""
INITIAL = "initial"
"""The same for the timer of the group's initial delay."""


class StreamsChange:
    """The changes of one operation to a group."""

    def __init__(self, state: StreamsState) -> None:
        self.outcome = Outcome()
        self.epoch = state.metadata.epoch
        self._state = state
        self._group_id = state.group_id
        self._members = dict(state.members)
        self._targets = state.targets
        self._target_epoch = state.target.epoch

    def put(self, member: StreamsMember) -> bool:
        """Write a new or changed member; returns whether it changed."""
        old = self._members.get(member.id)
        self._members[member.id] = member
        if old is not None and old.metadata == member.metadata:
            return False
        self._write((StreamsMemberKey(self._group_id, member.id), member.metadata))
        return True

    def remove(self, member_id: str) -> None:
        """Remove a member, with its assignments, and increase the group epoch."""
        del self._members[member_id]
        self._write(*streams_member_tombstones(self._group_id, member_id))
        self.bump(replace(self._state.metadata, epoch=self.epoch + 1))
        for kind in (SESSION, REBALANCE):
            self.timer(None, kind, member_id)

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members after the change."""
        return not self._members

    def take_topology(self, offered: StreamsTopology | None) -> StreamsTopology:
        """The topology of the group after a member has sent its own, or None."""
        known = self._state.topology
        if known is None:
            if offered is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The group has no topology yet.")
            self._write((StreamsTopologyKey(self._group_id), StreamsTopologyRecord(offered)))
            return offered
        if offered is not None and offered.epoch >= known.epoch and offered != known:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        return known

    def bump(self, metadata: StreamsGroupMetadata) -> None:
        """Write a new group epoch."""
        self.epoch = metadata.epoch
        self._write((StreamsGroupMetadataKey(self._group_id), metadata))

    def needs_target(self) -> bool:
        """Whether the group epoch is ahead of the target."""
        return self.epoch > self._target_epoch

    def retarget(self, topology: ConfiguredTopology, standbys: int, wall_ms: int) -> None:
        """Make a target for the group epoch, and write its changes.

        Members have no tasks while topics are missing.
        """
        if topology.is_ready:
            counts = {
                name: SubtopologyTasks(one.task_count, one.is_stateful)
                for name, one in topology.subtopologies.items()
            }
            runners = [
                TaskRunner(one.id, one.process_id, self._state.target_of(one.id))
                for one in self._members.values()
            ]
            targets = assign_sticky(runners, counts, standbys)
        else:
            targets = dict.fromkeys(self._members, NO_TASKS)
        for member_id, tasks in targets.items():
            if self._targets.get(member_id) != tasks:
                self._write((StreamsTargetKey(self._group_id, member_id), StreamsTarget(tasks)))
        self._targets = targets
        self._target_epoch = self.epoch
        made = StreamsTargetMetadata(self.epoch, wall_ms)
        self._write((StreamsTargetMetadataKey(self._group_id), made))

    def move(
        self, member: StreamsMember, owned: TaskSets | None, target: TaskSets | None = None
    ) -> StreamsMember:
        """Move a member one step towards its target, or `target`; the member after that."""
        if member.is_reconciled_to(self._target_epoch):
            return member
        wanted = self._targets.get(member.id, NO_TASKS) if target is None else target
        current = reconcile(member, self._target_epoch, wanted, self._state, owned)
        if current == member.current:
            return member
        self._write((StreamsCurrentKey(self._group_id, member.id), current))
        return replace(member, current=current)

    def timer(self, at_ms: int | None, *key: str) -> None:
        """Set or stop a timer of the group."""
        self.outcome.timers.append(Timer((STREAMS, self._group_id, *key), at_ms))

    def _write(self, *records: Record) -> None:
        self.outcome.records += records
