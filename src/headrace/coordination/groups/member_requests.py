"""The requests of a classic group's members: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Each checks its member and may begin or complete a rebalance (`rebalance.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.coordination.groups.classic_limits import ClassicLimits
from headrace.coordination.groups.classic_timers import MEMBER, SYNC, ClassicTimers
from headrace.coordination.groups.generation import Generation
from headrace.coordination.groups.group import (
    Heartbeat,
    Join,
    Joined,
    Leaver,
    Left,
    Sync,
    Synced,
)
from headrace.coordination.groups.rebalance import COMPLETING, EMPTY, PREPARING, STABLE, Rebalance
from headrace.coordination.groups.roster import ClassicMember
from headrace.coordination.outcome import Outcome, Reply, Token, answer
from headrace.errors import ErrorCode, KafkaError

NEW_MEMBER_TIMEOUT_MS = 300_000
"""How long a new member may wait for its first generation: its client may have stopped."""


class MemberRequests:
    """Serves the members of one classic group."""

    __slots__ = ("_generation", "_limits", "_rebalance", "_roster", "_timers")

    def __init__(
        self,
        generation: Generation,
        rebalance: Rebalance,
        timers: ClassicTimers,
        limits: ClassicLimits,
    ) -> None:
        self._generation = generation
        self._roster = generation.roster
        self._rebalance = rebalance
        self._timers = timers
        self._limits = limits

    # ------------------------------------------------------------------------------------- join

    def join(self, join: Join, token: Token[Joined], new_member_id: str, now_ms: int) -> Outcome:
        """JoinGroup: a member wants to be in the next generation."""
        if not self._has_room_for(join.member_id):
            out = answer(token, Joined(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
            if join.member_id in self._roster.members:
                # Other members wait to join, so the group does not become empty.
                self._rebalance.remove(self._roster.members[join.member_id], out)
                self._rebalance.complete_if_all_joined(now_ms, out)
            return out
        if not self._supports_protocols(join):
            return answer(token, Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, join.member_id))
        out = Outcome()
        if not join.member_id:
            self._join_unknown(join, token, new_member_id, now_ms, out)
        elif join.member_id in self._rebalance.pending and join.instance_id is None:
            self._add(join, token, join.member_id, now_ms, out)
        else:
            try:
                member = self._roster.check(join.member_id, join.instance_id)
            except KafkaError as error:
                return answer(token, Joined(error.code, join.member_id))
            self._rejoin(member, join, token, now_ms, out)
        return out

    def _has_room_for(self, member_id: str) -> bool:
        if self._rebalance.state == EMPTY:
            return True
        member = self._roster.members.get(member_id)
        if self._rebalance.state == PREPARING:
            # Waiting members are counted, so that too large a group refuses the last ones.
            waits = member is not None and member.join_token is not None
            return waits or self._roster.joining < self._limits.max_size
        return member is not None or len(self._roster) < self._limits.max_size

    def _supports_protocols(self, join: Join) -> bool:
        if not join.protocol_type or not join.protocols:
            return False
        if self._rebalance.state == EMPTY or not self._roster.members:
            return True
        return join.protocol_type == self._generation.protocol_type and self._roster.support_any(
            join.protocols
        )

    def _join_unknown(
        self, join: Join, token: Token[Joined], new_member_id: str, now_ms: int, out: Outcome
    ) -> None:
        if join.instance_id is not None:
            known = self._roster.static.get(join.instance_id)
            if known is None:
                self._add(join, token, new_member_id, now_ms, out)
            else:
                member = self._roster.members[known]
                self._replace_static(member, join, token, new_member_id, now_ms, out)
        elif join.requires_member_id:
            self._rebalance.pending.add(new_member_id)
            at_ms = now_ms + join.session_timeout_ms
            out.timers.append(self._timers.at(at_ms, MEMBER, new_member_id))
            refusal = Joined(ErrorCode.MEMBER_ID_REQUIRED, new_member_id)
            out.replies.append(Reply(token, refusal))
        else:
            self._add(join, token, new_member_id, now_ms, out)

    def _add(
        self, join: Join, token: Token[Joined], member_id: str, now_ms: int, out: Outcome
    ) -> None:
        self._rebalance.pending.discard(member_id)
        if not self._roster.members:
            self._generation.protocol_type = join.protocol_type
        member = ClassicMember.joining(join, member_id)
        self._roster.add(member)
        self._roster.wait_to_join(member, token)
        self._rebalance.newcomer = True
        out.timers.append(self._timers.at(now_ms + NEW_MEMBER_TIMEOUT_MS, MEMBER, member_id))
        self._rebalance.begin_or_go_on(now_ms, out)

    def _rejoin(
        self, member: ClassicMember, join: Join, token: Token[Joined], now_ms: int, out: Outcome
    ) -> None:
        leads = member.member_id == self._roster.leader
        unchanged = member.protocols == join.protocols
        if unchanged and (
            self._rebalance.state == COMPLETING or (self._rebalance.state == STABLE and not leads)
        ):
            # Its response was lost, or nothing changed: no rebalance.
            out.replies.append(Reply(token, self._generation.joined(member)))
            return
        self._update(member, join, token, out)
        self._rebalance.begin_or_go_on(now_ms, out)

    def _update(
        self, member: ClassicMember, join: Join, token: Token[Joined], out: Outcome
    ) -> None:
        self._roster.update(member, join)
        earlier = self._roster.wait_to_join(member, token)
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
        """A static member restarted.

        In a stable group it takes over its assignment without a rebalance.
        """
        at_ms = now_ms + join.session_timeout_ms
        out.timers.append(self._timers.at(at_ms, MEMBER, new_id))
        old_id = member.member_id
        changed = {old_id: join.protocols}
        if (
            self._rebalance.state == STABLE
            and self._roster.select_protocol(changed) == self._generation.protocol
        ):
            self._replace_silently(member, join, token, new_id, out)
            return
        fenced = ErrorCode.FENCED_INSTANCE_ID
        waiting = self._roster.stop_waiting(member)
        if waiting is not None:
            out.replies.append(Reply(waiting, Joined(fenced, old_id)))
        if member.sync_token is not None:
            out.replies.append(Reply(member.sync_token, Synced(fenced)))
            member.sync_token = None
        self._roster.rename(member, new_id)
        self._update(member, join, token, out)
        self._rebalance.begin_or_go_on(now_ms, out)

    def _replace_silently(
        self, member: ClassicMember, join: Join, token: Token[Joined], new_id: str, out: Outcome
    ) -> None:
        generation = self._generation
        out.records.append(generation.record_of_return(member, join, new_id))
        out.replies.append(Reply(token, generation.returned(member, join, new_id)))

        def updated() -> None:
            self._roster.update(member, join)
            generation.learn_topics()

        out.effects.append(updated)

    # ------------------------------------------------------------------- sync, heartbeat, leave

    def sync(self, sync: Sync, token: Token[Synced], now_ms: int) -> Outcome:
        """SyncGroup: a member asks for its assignment; the leader sends all of them."""
        try:
            member = self._generation.check_sync(sync)
            if self._rebalance.state == PREPARING:
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        except KafkaError as error:
            return answer(token, Synced(error.code))
        out = Outcome()
        if self._roster.unsynced <= {member.member_id}:
            out.timers.append(self._timers.at(None, SYNC))
        if self._rebalance.state != STABLE and member.sync_token is not None:
            superseded = Synced(ErrorCode.REBALANCE_IN_PROGRESS)
            out.replies.append(Reply(member.sync_token, superseded))
        if self._rebalance.state != STABLE and member.member_id == self._roster.leader:
            self._assign(member, dict(sync.assignments), token, now_ms, out)
            return out
        self._roster.unsynced.discard(member.member_id)
        if self._rebalance.state == STABLE:
            out.replies.append(Reply(token, self._generation.synced(member.assignment)))
            out.timers.append(self._timers.session(member, now_ms))
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
        out.records.append(self._generation.record(assignments))
        waiting = [(leader, token)]
        waiting += [
            (one, one.sync_token)
            for one in self._roster
            if one is not leader and one.sync_token is not None
        ]
        for one, asked in waiting:
            synced = self._generation.synced(assignments.get(one.member_id, b""))
            out.replies.append(Reply(asked, synced))
            out.timers.append(self._timers.session(one, now_ms))

        def answered() -> None:
            self._roster.unsynced.discard(leader.member_id)
            for one, _ in waiting:
                one.sync_token = None

        out.effects.append(answered)

    def heartbeat(self, beat: Heartbeat, token: Token[ErrorCode], now_ms: int) -> Outcome:
        """Heartbeat; replies with REBALANCE_IN_PROGRESS if the member has to join again."""
        try:
            member = self._roster.check(beat.member_id, beat.instance_id)
        except KafkaError as error:
            return answer(token, error.code)
        if beat.generation != self._generation.number:
            return answer(token, ErrorCode.ILLEGAL_GENERATION)
        rebalances = self._rebalance.state == PREPARING
        out = answer(token, ErrorCode.REBALANCE_IN_PROGRESS if rebalances else ErrorCode.NONE)
        out.timers.append(self._timers.session(member, now_ms))
        return out

    def leave(
        self, leavers: Sequence[Leaver], token: Token[tuple[Left, ...]], now_ms: int
    ) -> Outcome:
        """LeaveGroup: members leave, or an administrator removes them."""
        out = Outcome()
        pending: list[str] = []
        gone: dict[str, ClassicMember] = {}
        left = tuple(self._leave(leaver, pending, gone) for leaver in leavers)
        out.timers += [self._timers.at(None, MEMBER, member_id) for member_id in pending]
        self._rebalance.forget(pending, list(gone.values()), now_ms, out)
        out.replies.append(Reply(token, left))
        return out

    def _leave(self, leaver: Leaver, pending: list[str], gone: dict[str, ClassicMember]) -> Left:
        """Put a leaver into `pending` or `gone`, if it is in the group."""
        left = Left(leaver.member_id, leaver.instance_id, ErrorCode.NONE)
        if leaver.member_id in self._rebalance.pending and leaver.member_id not in pending:
            pending.append(leaver.member_id)
            return left
        member_id = leaver.member_id
        if not member_id and leaver.instance_id is not None:
            member_id = self._roster.static.get(leaver.instance_id, "")
        try:
            member = self._roster.check(member_id, leaver.instance_id)
        except KafkaError as error:
            return left.failed(error.code)
        if member_id in gone:
            return left.failed(ErrorCode.UNKNOWN_MEMBER_ID)
        gone[member_id] = member
        return left
