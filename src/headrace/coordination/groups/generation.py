"""The generation of a classic group: its number, its protocol and its members' assignments.

What survives a restart is the last generation that was assigned, or the empty one after it: it
changes only in `replay`. A generation without an assignment is lost with the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.coordination.groups.group import Join, Joined, Sync, Synced
from headrace.coordination.groups.roster import ClassicMember, Roster, subscribed_topics
from headrace.coordination.outcome import Record
from headrace.coordination.records import GroupMetadata, GroupMetadataKey, MemberMetadata
from headrace.coordination.wall_time import WallTime
from headrace.errors import ErrorCode, KafkaError

CONSUMER_PROTOCOL = "consumer"


class Generation:
    """The current generation of one group."""

    __slots__ = (
        "_group_id", "_wall", "number", "persisted", "protocol", "protocol_type", "roster",
        "state_ms", "topics",
    )  # fmt: skip

    def __init__(self, group_id: str, wall: WallTime) -> None:
        self._group_id = group_id
        self._wall = wall
        self.number = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.roster = Roster()
        self.topics: frozenset[str] | None = None
        """The topics that the members subscribe to; None if unknown."""
        self.state_ms = -1
        """When the group last changed its state; -1 if it never did."""
        self.persisted = False
        """Whether the log has a record of the group."""

    # ------------------------------------------------------------------------------- the log

    def replay(self, value: GroupMetadata) -> None:
        """Apply a record: a generation with its assignments, or the empty one."""
        self.persisted = True
        self.protocol_type = value.protocol_type
        self.number = value.generation
        self.protocol = value.protocol
        self.state_ms = value.state_ms
        stored = {member.member_id: member for member in value.members}
        for member in value.members:
            self._take_in(member)
        for member_id in [known for known in self.roster.members if known not in stored]:
            self.roster.remove(member_id)
        self.roster.leader = value.leader if value.leader in stored else next(iter(stored), None)
        self.learn_topics()

    def _take_in(self, stored: MemberMetadata) -> None:
        member = self.roster.members.get(stored.member_id)
        if member is None and stored.instance_id in self.roster.static:
            member = self.roster.members[self.roster.static[stored.instance_id]]
            self.roster.rename(member, stored.member_id)
        if member is None:
            self.roster.add(ClassicMember.stored(stored, self.protocol))
        else:
            member.assignment = stored.assignment

    def record(self, assignments: Mapping[str, bytes]) -> Record:
        """The record of this generation with these assignments, by member id."""
        return GroupMetadataKey(self._group_id), self._snapshot(assignments)

    def empty_record(self) -> Record:
        """The record of the next generation, if no member is left."""
        empty = GroupMetadata(self.protocol_type, self.number + 1, None, None, self._wall.ms, ())
        return GroupMetadataKey(self._group_id), empty

    def record_of_return(self, member: ClassicMember, join: Join, new_id: str) -> Record:
        """The record of this generation after a static member came back with another id."""
        before = self._snapshot({one.member_id: one.assignment for one in self.roster})
        members = tuple(
            replace(
                one,
                member_id=new_id,
                rebalance_timeout_ms=join.rebalance_timeout_ms,
                session_timeout_ms=join.session_timeout_ms,
                subscription=join.metadata(self.protocol),
            )
            if one.member_id == member.member_id
            else one
            for one in before.members
        )
        leader = new_id if before.leader == member.member_id else before.leader
        return GroupMetadataKey(self._group_id), replace(before, leader=leader, members=members)

    def _snapshot(self, assignments: Mapping[str, bytes]) -> GroupMetadata:
        members = tuple(
            one.to_store(assignments.get(one.member_id, b""), self.protocol) for one in self.roster
        )
        return GroupMetadata(
            self.protocol_type, self.number, self.protocol, self.roster.leader, self._wall.ms,
            members,
        )  # fmt: skip

    # ------------------------------------------------------------------------------- changes

    def advance(self) -> None:
        """Begin the next generation, with the members that are in the roster now."""
        self.number += 1
        self.protocol = self.roster.select_protocol()
        self.learn_topics()

    def learn_topics(self) -> None:
        """Read the subscriptions of the members."""
        self.topics = None
        if self.protocol_type == CONSUMER_PROTOCOL:
            self.topics = subscribed_topics(one.metadata(self.protocol) for one in self.roster)

    # ----------------------------------------------------------------------------- responses

    def joined(self, member: ClassicMember) -> Joined:
        """The response to a member that joined; the leader also gets the members."""
        leads = member.member_id == self.roster.leader
        return Joined(
            ErrorCode.NONE,
            member.member_id,
            self.number,
            self.protocol_type,
            self.protocol,
            self.roster.leader or "",
            False,
            self.roster.as_joined(self.protocol) if leads else (),
        )

    def returned(self, member: ClassicMember, join: Join, new_id: str) -> Joined:
        """The response to a static member that came back with another id."""
        leader = self.roster.leader
        # A client that cannot skip the assignment gets the old leader's id: it must not assign.
        skips = member.member_id == leader and join.can_skip_assignment
        members = tuple(
            replace(one, member_id=new_id, metadata=join.metadata(self.protocol))
            if one.member_id == member.member_id
            else one
            for one in self.roster.as_joined(self.protocol)
        )
        return Joined(
            ErrorCode.NONE, new_id, self.number, self.protocol_type, self.protocol,
            new_id if skips else leader or "", skips, members if skips else (),
        )  # fmt: skip

    def check_sync(self, sync: Sync) -> ClassicMember:
        """The member that sent a SyncGroup; KafkaError unless it is in this generation."""
        member = self.roster.check(sync.member_id, sync.instance_id)
        if sync.generation != self.number:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if sync.protocol_type not in (None, self.protocol_type) or sync.protocol_name not in (
            None,
            self.protocol,
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return member

    def synced(self, assignment: bytes) -> Synced:
        """The response to a member that asked for its assignment."""
        return Synced(ErrorCode.NONE, self.protocol_type, self.protocol, assignment)
