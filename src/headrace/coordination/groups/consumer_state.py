"""The persistent state of a consumer group, which only `replay` changes."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from headrace.coordination.consumer_records import (
    NOTHING,
    Assignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadata,
    ConsumerGroupMetadataKey,
    ConsumerKey,
    ConsumerRecord,
    ConsumerValue,
    CurrentAssignment,
    CurrentAssignmentKey,
    RegularExpression,
    RegularExpressionKey,
    TargetMember,
    TargetMemberKey,
    TargetMetadata,
    TargetMetadataKey,
    group_tombstones,
)
from headrace.coordination.groups.consumer_member import NEW, ConsumerMember
from headrace.coordination.groups.subscriptions import Subscriptions
from headrace.errors import ErrorCode, KafkaError


class ConsumerState:
    """The epochs, and the members with their current and target assignments."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.instances: dict[str, str] = {}
        """Member ids of static members, by instance id."""
        self.targets: dict[str, Assignment] = {}
        self.subscriptions = Subscriptions()
        self._holders: dict[tuple[UUID, int], str] = {}
        self._orphans: dict[str, CurrentAssignment] = {}
        """Assignments whose member has not been read yet: a compacted log keeps no order."""

    # ------------------------------------------------------------------------------ questions

    def state(self) -> str:
        """Empty, Assigning, Reconciling or Stable."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def holder(self, topic_id: UUID, partition: int) -> str | None:
        """The member that owns this partition, or has not revoked it yet."""
        return self._holders.get((topic_id, partition))

    def target_of(self, member_id: str) -> Assignment:
        """The target assignment of a member."""
        return self.targets.get(member_id, NOTHING)

    def member(self, member_id: str) -> ConsumerMember:
        """The member; UNKNOWN_MEMBER_ID if there is none."""
        found = self.members.get(member_id)
        if found is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return found

    def static_member(self, instance_id: str, member_id: str) -> ConsumerMember:
        """The static member; UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if it has another id."""
        known = self.instances.get(instance_id)
        if known is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if known != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{known}.",
            )
        return self.members[known]

    def any_member(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """The member, static if it has an instance id."""
        if instance_id is None:
            return self.member(member_id)
        return self.static_member(instance_id, member_id)

    def tombstones(self) -> list[ConsumerRecord]:
        """The records that remove the group."""
        return group_tombstones(self.group_id, self.members, self.subscriptions.resolved)

    # --------------------------------------------------------------------------------- replay

    def replay(self, key: ConsumerKey, value: ConsumerValue | None) -> None:
        """Apply a record of this group."""
        match key, value:
            case ConsumerGroupMetadataKey(), ConsumerGroupMetadata():
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case TargetMetadataKey(), TargetMetadata():
                self.target_epoch = value.epoch
            case TargetMetadataKey(), None:
                self.target_epoch = 0
            case ConsumerGroupMemberMetadataKey(), ConsumerGroupMemberMetadata():
                self._put_member(key.member_id, value)
            case ConsumerGroupMemberMetadataKey(), None:
                self._remove_member(key.member_id)
            case TargetMemberKey(), TargetMember():
                self.targets[key.member_id] = value.partitions
            case TargetMemberKey(), None:
                self.targets.pop(key.member_id, None)
            case CurrentAssignmentKey(), CurrentAssignment():
                self._put_current(key.member_id, value)
            case CurrentAssignmentKey(), None:
                self._orphans.pop(key.member_id, None)
                if key.member_id in self.members:
                    self._put_current(key.member_id, NEW)
            case RegularExpressionKey(), RegularExpression():
                self.subscriptions.resolved[key.expression] = value.topics
            case RegularExpressionKey(), None:
                self.subscriptions.resolved.pop(key.expression, None)

    def loaded(self) -> None:
        """The log has been read: assignments without a member are dropped."""
        self._orphans.clear()

    def _put_member(self, member_id: str, metadata: ConsumerGroupMemberMetadata) -> None:
        old = self.members.get(member_id)
        self.subscriptions.replace(old.metadata if old else None, metadata)
        if old is not None:
            self.members[member_id] = replace(old, metadata=metadata)
        else:
            self.members[member_id] = ConsumerMember(member_id, metadata)
            if member_id in self._orphans:
                self._put_current(member_id, self._orphans.pop(member_id))
        if metadata.instance_id is not None:
            self.instances[metadata.instance_id] = member_id

    def _remove_member(self, member_id: str) -> None:
        if member_id not in self.members:
            return
        self._put_current(member_id, NEW)
        old = self.members.pop(member_id)
        self.subscriptions.replace(old.metadata, None)
        if old.instance_id is not None and self.instances.get(old.instance_id) == member_id:
            del self.instances[old.instance_id]

    def _put_current(self, member_id: str, current: CurrentAssignment) -> None:
        member = self.members.get(member_id)
        if member is None:
            self._orphans[member_id] = current
            return
        self.members[member_id] = replace(member, current=current)
        for held in (member.current.assigned, member.current.revoking):
            for topic_id, partitions in held.items():
                for partition in partitions:
                    if self._holders.get((topic_id, partition)) == member_id:
                        del self._holders[topic_id, partition]
        for held in (current.assigned, current.revoking):
            for topic_id, partitions in held.items():
                for partition in partitions:
                    self._holders[topic_id, partition] = member_id
