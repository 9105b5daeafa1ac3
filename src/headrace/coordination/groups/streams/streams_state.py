"""The persistent state of a streams group, which only `replay` changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from headrace.coordination.groups.streams.streams_member import NEW_ASSIGNMENT, StreamsMember
from headrace.coordination.groups.streams.tasks import NO_TASKS, TaskId, TaskSets
from headrace.coordination.groups.streams.topology import StreamsTopology
from headrace.coordination.streams_records import (
    StreamsCurrentAssignment,
    StreamsCurrentKey,
    StreamsGroupMetadata,
    StreamsGroupMetadataKey,
    StreamsKey,
    StreamsMemberKey,
    StreamsMemberMetadata,
    StreamsRecord,
    StreamsTarget,
    StreamsTargetKey,
    StreamsTargetMetadata,
    StreamsTargetMetadataKey,
    StreamsTopologyKey,
    StreamsTopologyRecord,
    StreamsValue,
    streams_group_tombstones,
)
from headrace.errors import ErrorCode, KafkaError

FIRST_EPOCH = 1
"""The epoch of a new group and of its empty target: a member without tasks needs an epoch, too."""


class StreamsState:
    """The epochs, the topology, and the members with their current and target assignments."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.metadata = StreamsGroupMetadata(FIRST_EPOCH)
        self.target = StreamsTargetMetadata(FIRST_EPOCH)
        self.topology: StreamsTopology | None = None
        self.members: dict[str, StreamsMember] = {}
        self.targets: dict[str, TaskSets] = {}
        self._owners: dict[TaskId, str] = {}
        """The member that has each active task, or has not revoked it yet."""
        self._copies: Counter[tuple[str, TaskId]] = Counter()
        """Standby and warm-up tasks by process."""
        self._orphans: dict[str, StreamsCurrentAssignment] = {}
        """Assignments whose member has not been read yet: a compacted log keeps no order."""

    # ------------------------------------------------------------------------------ questions

    def state(self) -> str:
        """Empty, NotReady, Assigning, Reconciling or Stable."""
        if not self.members:
            return "Empty"
        if self.topology is None or self.topology.epoch != self.metadata.validated_epoch:
            return "NotReady"
        if self.metadata.epoch > self.target.epoch:
            return "Assigning"
        if all(one.is_reconciled_to(self.target.epoch) for one in self.members.values()):
            return "Stable"
        return "Reconciling"

    def active_process(self, task: TaskId) -> str | None:
        """The process that has it as an active task, or has not revoked it yet."""
        owner = self._owners.get(task)
        return None if owner is None else self.members[owner].process_id

    def has_copy(self, process_id: str, task: TaskId) -> bool:
        """Whether this process has it as a standby or warm-up task."""
        return self._copies[process_id, task] > 0

    def target_of(self, member_id: str) -> TaskSets:
        """The target assignment of a member."""
        return self.targets.get(member_id, NO_TASKS)

    def member(self, member_id: str) -> StreamsMember:
        """The member; UNKNOWN_MEMBER_ID if there is none."""
        found = self.members.get(member_id)
        if found is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return found

    def tombstones(self) -> list[StreamsRecord]:
        """The records that remove the group."""
        return streams_group_tombstones(self.group_id, self.members)

    # --------------------------------------------------------------------------------- replay

    def replay(self, key: StreamsKey, value: StreamsValue | None) -> None:
        """Apply a record of this group."""
        match key, value:
            case StreamsGroupMetadataKey(), StreamsGroupMetadata():
                self.metadata = value
            case StreamsTargetMetadataKey(), StreamsTargetMetadata():
                self.target = value
            case StreamsTopologyKey(), StreamsTopologyRecord():
                self.topology = value.topology
            case StreamsMemberKey(), StreamsMemberMetadata():
                self._put_member(key.member_id, value)
            case StreamsMemberKey(), None:
                self._remove_member(key.member_id)
            case StreamsTargetKey(), StreamsTarget():
                self.targets[key.member_id] = value.tasks
            case StreamsTargetKey(), None:
                self.targets.pop(key.member_id, None)
            case StreamsCurrentKey(), StreamsCurrentAssignment():
                self._put_current(key.member_id, value)
            case StreamsCurrentKey(), None:
                self._orphans.pop(key.member_id, None)
                if key.member_id in self.members:
                    self._put_current(key.member_id, NEW_ASSIGNMENT)

    def loaded(self) -> None:
        """The log has been read: assignments without a member are dropped."""
        self._orphans.clear()

    def _put_member(self, member_id: str, metadata: StreamsMemberMetadata) -> None:
        old = self.members.get(member_id)
        if old is None:
            self.members[member_id] = StreamsMember(member_id, metadata)
            if member_id in self._orphans:
                self._put_current(member_id, self._orphans.pop(member_id))
            return
        self._release(old)
        self.members[member_id] = replace(old, metadata=metadata)
        self._hold(self.members[member_id])

    def _remove_member(self, member_id: str) -> None:
        if member_id in self.members:
            self._release(self.members.pop(member_id))

    def _put_current(self, member_id: str, current: StreamsCurrentAssignment) -> None:
        member = self.members.get(member_id)
        if member is None:
            self._orphans[member_id] = current
            return
        self._release(member)
        self.members[member_id] = replace(member, current=current)
        self._hold(self.members[member_id])

    def _hold(self, member: StreamsMember) -> None:
        held = member.current.assigned | member.current.revoking
        self._owners.update(dict.fromkeys(held.active, member.id))
        self._copies.update((member.process_id, one) for one in (*held.standby, *held.warmup))

    def _release(self, member: StreamsMember) -> None:
        held = member.current.assigned | member.current.revoking
        for task in held.active:
            if self._owners.get(task) == member.id:
                del self._owners[task]
        for task in (*held.standby, *held.warmup):
            self._copies[member.process_id, task] -= 1
            if not self._copies[member.process_id, task]:
                del self._copies[member.process_id, task]
