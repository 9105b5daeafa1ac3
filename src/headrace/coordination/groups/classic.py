"""A classic group: members join, the leader assigns, each member gets its assignment.

    Empty ─ join ─▶ PreparingRebalance ─ all joined ─▶ CompletingRebalance ─ leader's sync ─▶ Stable
      ▲                 │        ▲                              │                               │
      └── nobody left ──┘        └──────── join, leave, timeout ┴───────────────────────────────┘

What survives a restart is the last generation that was assigned (or the empty one after it): it
changes only in `replay`. Everything else (waiting members, a generation without an assignment) is
lost with the process: the members then join again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from headrace.coordination.groups.classic_limits import ClassicLimits
from headrace.coordination.groups.group import (
    CLASSIC,
    Committer,
    Heartbeat,
    Join,
    Joined,
    Leaver,
    Left,
    Sync,
    Synced,
    WallTime,
)
from headrace.coordination.groups.roster import ClassicMember, Roster, subscribed_topics
from headrace.coordination.outcome import AnyReply, Outcome, Record, Reply, Timer, Token, answer
from headrace.coordination.records import GroupMetadata, GroupMetadataKey, MemberMetadata
from headrace.errors import ErrorCode, KafkaError

EMPTY = "Empty"
PREPARING = "PreparingRebalance"
COMPLETING = "CompletingRebalance"
STABLE = "Stable"

CONSUMER_PROTOCOL = "consumer"

NEW_MEMBER_TIMEOUT_MS = 300_000
"""How long a member without an id may wait for its first generation: its client may be gone."""

MEMBER, JOIN, SYNC = "member", "join", "sync"  # third part of a timer's key
REBALANCE = "rebalance"  # the same: the group was of the other kind until now, and has lost members


@dataclass(slots=True)
class ClassicGroupDescription:
    """A group as DescribeGroups shows it; metadata and assignments only while it is stable."""

    state: str
    protocol_type: str
    protocol: str
    members: tuple[MemberMetadata, ...]


class ClassicGroup:
    """The state of one group."""

    __slots__ = (
        "_delay_left_ms", "_initial", "_limits", "_newcomer", "_pending", "_persisted", "_unsynced",
        "_wall", "generation", "group_id", "protocol", "protocol_type", "roster", "state",
        "state_ms", "topics",
    )  # fmt: skip

    kind = CLASSIC

    def __init__(self, group_id: str, limits: ClassicLimits, wall: WallTime) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.roster = Roster()
        self.topics: frozenset[str] | None = None
        """What the members subscribe to, where that is known."""
        self.state_ms = -1
        self._limits = limits
        self._wall = wall
        self._persisted = False
        self._pending: set[str] = set()
        """Ids that were given out with MEMBER_ID_REQUIRED and have not come back yet."""
        self._unsynced: set[str] = set()
        """Members of this generation that have not asked for their assignment yet."""
        self._initial = False
        self._newcomer = False
        self._delay_left_ms = 0

    # -------------------------------------------------------------------------------- questions

    def is_empty(self) -> bool:
        """Whether the group may be deleted."""
        return self.state == EMPTY

    def is_void(self) -> bool:
        """Whether nothing would be lost with the group."""
        return self.state == EMPTY and not self._persisted and not self._pending

    def subscribes_to(self, topic: str) -> bool:
        """Whether offsets of this topic are in use; consumers' are, if nobody knows better."""
        if self.topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL
        return topic in self.topics

    def retention_from(self, commit_ms: int) -> int | None:
        """When the retention of an offset began that was committed then; None: it is in use."""
        if not self.protocol_type:
            return commit_ms
        if self.state == EMPTY:
            return commit_ms if self.state_ms < 0 else self.state_ms
        consumes = self.protocol_type == CONSUMER_PROTOCOL and self.topics is not None
        return commit_ms if consumes and self.state == STABLE else None

    def describe(self) -> ClassicGroupDescription:
        """The group as DescribeGroups shows it."""
        stable = self.state == STABLE
        protocol = self.protocol if stable else None
        members = tuple(
            self._stored(one, one.assignment if stable else b"", protocol)
            for one in self._members()
        )
        return ClassicGroupDescription(self.state, self.protocol_type, protocol or "", members)

    def check_commit(self, who: Committer, now_ms: int) -> list[Timer]:
        """Raise KafkaError unless `who` may commit offsets; a commit is a sign of life."""
        if who.generation < 0 and self.state == EMPTY:
            return []
        if who.generation < 0 and not who.member_id and who.instance_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self.roster.check(who.member_id, who.instance_id)
        if who.generation != self.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if self.state == COMPLETING:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return [self._session(member, now_ms)]

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Anybody may read the offsets of a classic group."""

    def tombstones(self) -> list[Record]:
        """The record that deletes the group."""
        return [(GroupMetadataKey(self.group_id), None)]

    def _members(self) -> Sequence[ClassicMember]:
        return list(self.roster.members.values())

    # ------------------------------------------------------------------------ what is persistent

    def replay(self, value: GroupMetadata) -> None:
        """Become what a record says: a generation with its assignments, or the empty one."""
        self._persisted = True
        self.protocol_type = value.protocol_type
        self.generation = value.generation
        self.protocol = value.protocol
        self.state_ms = value.state_ms
        self.state = STABLE if value.members else EMPTY
        stored = {member.member_id: member for member in value.members}
        for member in value.members:
            self._take_in(member, value.protocol)
        for member_id in [known for known in self.roster.members if known not in stored]:
            self.roster.remove(member_id)
            self._unsynced.discard(member_id)
        self.roster.leader = value.leader if value.leader in stored else next(iter(stored), None)
        self._learn_topics()

    def _take_in(self, stored: MemberMetadata, protocol: str | None) -> None:
        member = self.roster.members.get(stored.member_id)
        if member is None and stored.instance_id in self.roster.static:
            known = self.roster.static[stored.instance_id]
            member = self.roster.members[known]
            self.roster.rename(member, stored.member_id)
            if known in self._unsynced:
                self._unsynced.discard(known)
                self._unsynced.add(stored.member_id)
        if member is None:
            self.roster.add(ClassicMember.stored(stored, protocol))
        else:
            member.assignment = stored.assignment

    def _learn_topics(self) -> None:
        self.topics = None
        if self.protocol_type == CONSUMER_PROTOCOL:
            self.topics = subscribed_topics(one.metadata(self.protocol) for one in self._members())

    def _stored(
        self, member: ClassicMember, assignment: bytes, protocol: str | None
    ) -> MemberMetadata:
        return MemberMetadata(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            member.metadata(protocol),
            assignment,
        )

    def _snapshot(self, assignments: Mapping[str, bytes]) -> GroupMetadata:
        members = tuple(
            self._stored(one, assignments.get(one.member_id, b""), self.protocol)
            for one in self._members()
        )
        return GroupMetadata(
            self.protocol_type, self.generation, self.protocol, self.roster.leader,
            self._wall.ms, members,
        )  # fmt: skip

    # ----------------------------------------------------------------------------------- timers

    def _timer(self, at_ms: int | None, *key: str) -> Timer:
        return Timer((CLASSIC, self.group_id, *key), at_ms)

    def _session(self, member: ClassicMember, now_ms: int) -> Timer:
        return self._timer(now_ms + member.session_timeout_ms, MEMBER, member.member_id)

    def loaded(self, now_ms: int) -> Outcome:
        """Members have one session's time to show that they are still there."""
        out = Outcome(timers=[self._session(member, now_ms) for member in self._members()])
        if len(self.roster) > self._limits.max_size:
            self._prepare_rebalance(now_ms, out)
        return out

    def expire(self, key: tuple[str, ...], now_ms: int) -> Outcome:
        """A member was silent for too long, or a phase of the rebalance has used up its time."""
        out = Outcome()
        if key[2] == MEMBER:
            self._expire_member(key[3], now_ms, out)
        elif key[2] == SYNC:
            self._expire_sync(now_ms, out)
        elif key[2] == REBALANCE:
            if self.roster.members:
                self._rebalance_or_complete(now_ms, out)
        elif self.state == PREPARING:
            if self._initial and self._newcomer and self._delay_left_ms > 0:
                # A member joined during the initial rebalance delay: more may follow.
                delay_ms = min(self._limits.initial_delay_ms, self._delay_left_ms)
                self._newcomer = False
                self._delay_left_ms -= delay_ms
                out.timers.append(self._timer(now_ms + delay_ms, JOIN))
            else:
                self._complete_join(now_ms, out)
        return out

    def _expire_member(self, member_id: str, now_ms: int, out: Outcome) -> None:
        if member_id in self._pending:
            self._forget([member_id], [], now_ms, out)
            return
        member = self.roster.members.get(member_id)
        if member is None:
            return
        # A member that waits for a response cannot send heartbeats; new members have another limit.
        waits = member.join_token is not None or member.sync_token is not None
        if member.is_new or not waits:
            self._let_go([member], now_ms, out)

    def _expire_sync(self, now_ms: int, out: Outcome) -> None:
        if self.state not in (COMPLETING, STABLE) or not self._unsynced:
            return
        self._let_go([self.roster.members[one] for one in sorted(self._unsynced)], now_ms, out)

    def withdraw(self, error: ErrorCode) -> list[AnyReply]:
        """Answer everybody who waits: the group is about to be dropped."""
        return [
            reply
            for member in self._members()
            for reply in _refusals(member, error, member.member_id)
        ]

    # ------------------------------------------------------------------------------------- join

    def join(self, join: Join, token: Token[Joined], new_member_id: str, now_ms: int) -> Outcome:
        """A member wants to be in the next generation."""
        if not self._has_room_for(join.member_id):
            out = answer(token, Joined(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
            if join.member_id in self.roster.members:
                # Others wait to join, so that the group does not end.
                self._remove(self.roster.members[join.member_id], out)
                self._complete_if_all_joined(now_ms, out)
            return out
        if not self._speaks(join):
            return answer(token, Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, join.member_id))
        out = Outcome()
        if not join.member_id:
            self._join_unknown(join, token, new_member_id, now_ms, out)
        elif join.member_id in self._pending and join.instance_id is None:
            self._add(join, token, join.member_id, now_ms, out)
        else:
            try:
                member = self.roster.check(join.member_id, join.instance_id)
            except KafkaError as error:
                return answer(token, Joined(error.code, join.member_id))
            self._rejoin(member, join, token, now_ms, out)
        return out

    def _has_room_for(self, member_id: str) -> bool:
        if self.state == EMPTY:
            return True
        member = self.roster.members.get(member_id)
        if self.state == PREPARING:
            # Those who wait are counted, so that a group that is too large loses the last to come.
            waits = member is not None and member.join_token is not None
            return waits or self.roster.joining < self._limits.max_size
        return member is not None or len(self.roster) < self._limits.max_size

    def _speaks(self, join: Join) -> bool:
        if not join.protocol_type or not join.protocols:
            return False
        if self.state == EMPTY or not self.roster.members:
            return True
        return join.protocol_type == self.protocol_type and self.roster.speak_any(join.protocols)

    def _join_unknown(
        self, join: Join, token: Token[Joined], new_member_id: str, now_ms: int, out: Outcome
    ) -> None:
        if join.instance_id is not None:
            known = self.roster.static.get(join.instance_id)
            if known is None:
                self._add(join, token, new_member_id, now_ms, out)
            else:
                member = self.roster.members[known]
                self._replace_static(member, join, token, new_member_id, now_ms, out)
        elif join.requires_member_id:
            self._pending.add(new_member_id)
            at_ms = now_ms + join.session_timeout_ms
            out.timers.append(self._timer(at_ms, MEMBER, new_member_id))
            refusal = Joined(ErrorCode.MEMBER_ID_REQUIRED, new_member_id)
            out.replies.append(Reply(token, refusal))
        else:
            self._add(join, token, new_member_id, now_ms, out)

    def _add(
        self, join: Join, token: Token[Joined], member_id: str, now_ms: int, out: Outcome
    ) -> None:
        self._pending.discard(member_id)
        if not self.roster.members:
            self.protocol_type = join.protocol_type
        member = ClassicMember.joining(join, member_id)
        self.roster.add(member)
        self.roster.wait_to_join(member, token)
        self._newcomer = True
        out.timers.append(self._timer(now_ms + NEW_MEMBER_TIMEOUT_MS, MEMBER, member_id))
        self._rebalance_or_complete(now_ms, out)

    def _rejoin(
        self, member: ClassicMember, join: Join, token: Token[Joined], now_ms: int, out: Outcome
    ) -> None:
        leads = member.member_id == self.roster.leader
        unchanged = member.protocols == join.protocols
        if unchanged and (self.state == COMPLETING or (self.state == STABLE and not leads)):
            # Its response was lost, or nothing changed: the generation stays.
            out.replies.append(Reply(token, self._joined(member)))
            return
        self._update(member, join, token, out)
        self._rebalance_or_complete(now_ms, out)

    def _update(
        self, member: ClassicMember, join: Join, token: Token[Joined], out: Outcome
    ) -> None:
        self.roster.update(member, join)
        earlier = self.roster.wait_to_join(member, token)
        if earlier is not None:
            refusal = Joined(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            out.replies.append(Reply(earlier, refusal))

    def _replace_static(
        self,
        member: ClassicMember,
        join: Join,
        token: Token[Joined],
        new_id: str,
        now_ms: int,
        out: Outcome,
    ) -> None:
        """A static member restarted; in a stable group it takes over its assignment in silence."""
        at_ms = now_ms + join.session_timeout_ms
        out.timers.append(self._timer(at_ms, MEMBER, new_id))
        old_id = member.member_id
        changed = {old_id: join.protocols}
        if self.state == STABLE and self.roster.select_protocol(changed) == self.protocol:
            self._replace_silently(member, join, token, new_id, out)
            return
        fenced = ErrorCode.FENCED_INSTANCE_ID
        waiting = self.roster.stop_waiting(member)
        if waiting is not None:
            out.replies.append(Reply(waiting, Joined(fenced, old_id)))
        if member.sync_token is not None:
            out.replies.append(Reply(member.sync_token, Synced(fenced)))
            member.sync_token = None
        self.roster.rename(member, new_id)
        self._unsynced.discard(old_id)
        self._update(member, join, token, out)
        self._rebalance_or_complete(now_ms, out)

    def _replace_silently(
        self, member: ClassicMember, join: Join, token: Token[Joined], new_id: str, out: Outcome
    ) -> None:
        old_id, leader = member.member_id, self.roster.leader
        leads = old_id == leader
        snapshot = self._snapshot({one.member_id: one.assignment for one in self._members()})
        metadata = dict(join.protocols).get(self.protocol or "", b"")
        renamed = tuple(
            replace(
                one,
                member_id=new_id,
                rebalance_timeout_ms=join.rebalance_timeout_ms,
                session_timeout_ms=join.session_timeout_ms,
                subscription=metadata,
            )
            if one.member_id == old_id
            else one
            for one in snapshot.members
        )
        value = replace(snapshot, leader=new_id if leads else leader, members=renamed)
        out.records.append((GroupMetadataKey(self.group_id), value))

        def updated() -> None:
            self.roster.update(member, join)
            self._learn_topics()

        out.effects.append(updated)
        members = tuple(
            replace(one, member_id=new_id, metadata=metadata) if one.member_id == old_id else one
            for one in self.roster.as_joined(self.protocol)
        )
        skips = leads and join.can_skip_assignment
        # A client that cannot skip the assignment is told the old leader's id: it must not assign.
        joined = Joined(
            ErrorCode.NONE, new_id, self.generation, self.protocol_type, self.protocol,
            new_id if skips else leader or "", skips, members if skips else (),
        )  # fmt: skip
        out.replies.append(Reply(token, joined))

    def _joined(self, member: ClassicMember) -> Joined:
        leads = member.member_id == self.roster.leader
        return Joined(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.roster.leader or "",
            False,
            self.roster.as_joined(self.protocol) if leads else (),
        )

    # -------------------------------------------------------------------------------- rebalance

    def _rebalance_or_complete(self, now_ms: int, out: Outcome) -> None:
        if self.state == PREPARING:
            self._complete_if_all_joined(now_ms, out)
        else:
            self._prepare_rebalance(now_ms, out)

    def _prepare_rebalance(self, now_ms: int, out: Outcome) -> None:
        if self.state == COMPLETING:
            for member in self._members():
                member.assignment = b""
                self._answer_sync(member, Synced(ErrorCode.REBALANCE_IN_PROGRESS), now_ms, out)
        self._unsynced.clear()
        out.timers.append(self._timer(None, SYNC))
        was_empty = self.state == EMPTY
        self._initial = was_empty and self._limits.initial_delay_ms > 0
        self.state = PREPARING
        if self._initial:
            delay_ms = self._limits.initial_delay_ms
            self._newcomer = False
            self._delay_left_ms = max(self.roster.rebalance_timeout_ms() - delay_ms, 0)
            out.timers.append(self._timer(now_ms + delay_ms, JOIN))
        elif was_empty or self._all_joined():
            self._complete_join(now_ms, out)
        else:
            out.timers.append(self._timer(now_ms + self.roster.rebalance_timeout_ms(), JOIN))

    def _all_joined(self) -> bool:
        return self.roster.joining == len(self.roster) and not self._pending

    def _complete_if_all_joined(self, now_ms: int, out: Outcome) -> None:
        if self.state == PREPARING and not self._initial and self._all_joined():
            self._complete_join(now_ms, out)

    def _complete_join(self, now_ms: int, out: Outcome) -> None:
        """End the join phase: the members that have joined form the next generation."""
        absent = [
            member
            for member in self._members()
            if member.join_token is None and member.instance_id is None
        ]
        if len(absent) == len(self.roster):
            self._end(out)
            return
        out.timers.append(self._timer(None, JOIN))
        for member in absent:
            self._remove(member, out)
        if self.roster.members and not self.roster.elect():
            # Only static members are left, and none has come back yet.
            out.timers.append(self._timer(now_ms + self.roster.rebalance_timeout_ms(), JOIN))
            return
        self._initial = False
        self._unsynced.clear()
        self.generation += 1
        self.protocol = self.roster.select_protocol()
        self.state = COMPLETING
        self._learn_topics()
        for member in self._members():
            token = self.roster.stop_waiting(member)
            if token is not None:
                out.replies.append(Reply(token, self._joined(member)))
            out.timers.append(self._session(member, now_ms))
            member.is_new = False
            self._unsynced.add(member.member_id)
        out.timers.append(self._timer(now_ms + self.roster.rebalance_timeout_ms(), SYNC))

    def _let_go(self, members: Sequence[ClassicMember], now_ms: int, out: Outcome) -> None:
        """Members are out: the others rebalance, or the group ends."""
        if self._ends_without(len(members), ()):
            self._end(out)
            return
        for member in members:
            self._remove(member, out)
        self._rebalance_or_complete(now_ms, out)

    def _ends_without(self, members: int, pending: Collection[str]) -> bool:
        """Whether the group is empty without these members and pending ids."""
        opening = self.state == PREPARING and self._initial
        return members == len(self.roster) and self._pending <= set(pending) and not opening

    def _end(self, out: Outcome) -> None:
        """The last member has left. Replaying the record makes the group empty, not before."""
        for member in self._members():
            self._dismiss(member, out)
        out.timers += [self._timer(None, JOIN), self._timer(None, SYNC)]
        empty = GroupMetadata(
            self.protocol_type, self.generation + 1, None, None, self._wall.ms, ()
        )
        out.records.append((GroupMetadataKey(self.group_id), empty))

    def _remove(self, member: ClassicMember, out: Outcome) -> None:
        self._dismiss(member, out)
        self.roster.remove(member.member_id)
        self._unsynced.discard(member.member_id)

    def _dismiss(self, member: ClassicMember, out: Outcome) -> None:
        """Answer a member that is out, and stop its timer."""
        out.replies += _refusals(member, ErrorCode.UNKNOWN_MEMBER_ID, "")
        out.timers.append(self._timer(None, MEMBER, member.member_id))

    def _forget(
        self, pending: Sequence[str], members: Sequence[ClassicMember], now_ms: int, out: Outcome
    ) -> None:
        """Pending ids and members are gone, as far as there are any; see who is left."""
        forget = partial(self._pending.difference_update, pending)
        rebalances = bool(members) or self.state == PREPARING
        if rebalances and self._ends_without(len(members), pending):
            self._end(out)
            out.effects.append(forget)
            return
        forget()
        if members:
            self._let_go(members, now_ms, out)
        else:
            self._complete_if_all_joined(now_ms, out)

    # ------------------------------------------------------------------- sync, heartbeat, leave

    def sync(self, sync: Sync, token: Token[Synced], now_ms: int) -> Outcome:
        """SyncGroup: a member asks for its assignment; the leader sends all of them."""
        try:
            member = self._check_sync(sync)
        except KafkaError as error:
            return answer(token, Synced(error.code))
        out = Outcome()
        if self._unsynced <= {member.member_id}:
            out.timers.append(self._timer(None, SYNC))
        if self.state != STABLE and member.sync_token is not None:
            superseded = Synced(ErrorCode.REBALANCE_IN_PROGRESS)
            out.replies.append(Reply(member.sync_token, superseded))
        if self.state != STABLE and member.member_id == self.roster.leader:
            self._assign(member, dict(sync.assignments), token, now_ms, out)
            return out
        self._unsynced.discard(member.member_id)
        if self.state == STABLE:
            out.replies.append(Reply(token, self._synced(member.assignment)))
            out.timers.append(self._session(member, now_ms))
        else:
            member.sync_token = token
        return out

    def _assign(
        self,
        leader: ClassicMember,
        assignments: Mapping[str, bytes],
        token: Token[Synced],
        now_ms: int,
        out: Outcome,
    ) -> None:
        """The leader's assignment is written: answer the waiting SyncGroup requests."""
        out.records.append((GroupMetadataKey(self.group_id), self._snapshot(assignments)))
        waiting = [(leader, token)]
        waiting += [
            (one, one.sync_token)
            for one in self._members()
            if one is not leader and one.sync_token is not None
        ]
        for one, asked in waiting:
            synced = self._synced(assignments.get(one.member_id, b""))
            out.replies.append(Reply(asked, synced))
            out.timers.append(self._session(one, now_ms))

        def answered() -> None:
            self._unsynced.discard(leader.member_id)
            for one, _ in waiting:
                one.sync_token = None

        out.effects.append(answered)

    def _check_sync(self, sync: Sync) -> ClassicMember:
        member = self.roster.check(sync.member_id, sync.instance_id)
        if sync.generation != self.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if sync.protocol_type not in (None, self.protocol_type) or sync.protocol_name not in (
            None,
            self.protocol,
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if self.state == PREPARING:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return member

    def _synced(self, assignment: bytes) -> Synced:
        return Synced(ErrorCode.NONE, self.protocol_type, self.protocol, assignment)

    def _answer_sync(
        self, member: ClassicMember, synced: Synced, now_ms: int, out: Outcome
    ) -> None:
        if member.sync_token is not None:
            out.replies.append(Reply(member.sync_token, synced))
            out.timers.append(self._session(member, now_ms))
            member.sync_token = None

    def heartbeat(self, beat: Heartbeat, token: Token[ErrorCode], now_ms: int) -> Outcome:
        """Heartbeat; the error says if the member has to join again."""
        try:
            member = self.roster.check(beat.member_id, beat.instance_id)
        except KafkaError as error:
            return answer(token, error.code)
        if beat.generation != self.generation:
            return answer(token, ErrorCode.ILLEGAL_GENERATION)
        rebalances = self.state == PREPARING
        out = answer(token, ErrorCode.REBALANCE_IN_PROGRESS if rebalances else ErrorCode.NONE)
        out.timers.append(self._session(member, now_ms))
        return out

    def leave(
        self, leavers: Sequence[Leaver], token: Token[tuple[Left, ...]], now_ms: int
    ) -> Outcome:
        """Members go, of their own will or an administrator's."""
        out = Outcome()
        pending: list[str] = []
        gone: dict[str, ClassicMember] = {}
        left = tuple(self._leave(leaver, pending, gone) for leaver in leavers)
        out.timers += [self._timer(None, MEMBER, member_id) for member_id in pending]
        self._forget(pending, list(gone.values()), now_ms, out)
        out.replies.append(Reply(token, left))
        return out

    def _leave(self, leaver: Leaver, pending: list[str], gone: dict[str, ClassicMember]) -> Left:
        """Put a leaver into `pending` or `gone`, if it is in the group."""
        left = Left(leaver.member_id, leaver.instance_id, ErrorCode.NONE)
        if leaver.member_id in self._pending and leaver.member_id not in pending:
            pending.append(leaver.member_id)
            return left
        member_id = leaver.member_id
        if not member_id and leaver.instance_id is not None:
            member_id = self.roster.static.get(leaver.instance_id, "")
        try:
            member = self.roster.check(member_id, leaver.instance_id)
        except KafkaError as error:
            return left.failed(error.code)
        if member_id in gone:
            return left.failed(ErrorCode.UNKNOWN_MEMBER_ID)
        gone[member_id] = member
        return left


def _refusals(member: ClassicMember, error: ErrorCode, member_id: str) -> list[AnyReply]:
    """The answers to the requests of a member that wait."""
    replies: list[AnyReply] = []
    if member.join_token is not None:
        replies.append(Reply(member.join_token, Joined(error, member_id)))
    if member.sync_token is not None:
        replies.append(Reply(member.sync_token, Synced(error)))
    return replies
