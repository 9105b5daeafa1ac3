"""The phases of a classic group: members join, the leader assigns, each gets its assignment.

    Empty ─ join ─▶ PreparingRebalance ─ all joined ─▶ CompletingRebalance ─ leader's sync ─▶ Stable
      ▲                 │        ▲                              │                               │
      └── no members ───┘        └──────── join, leave, timeout ┴───────────────────────────────┘

The states Empty and Stable are persistent: they begin when a record is replayed. The others are
lost with the process: the members then join again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from headrace.coordination.groups.classic_limits import ClassicLimits
from headrace.coordination.groups.classic_timers import JOIN, MEMBER, SYNC, ClassicTimers
from headrace.coordination.groups.generation import Generation
from headrace.coordination.groups.group import Joined, Synced
from headrace.coordination.groups.roster import ClassicMember
from headrace.coordination.outcome import AnyReply, Outcome, Reply, Timer
from headrace.errors import ErrorCode

EMPTY = "Empty"
PREPARING = "PreparingRebalance"
COMPLETING = "CompletingRebalance"
STABLE = "Stable"


class Rebalance:
    """The state of one group, and its transitions."""

    __slots__ = (
        "_delay_left_ms", "_generation", "_initial", "_limits", "_roster", "_timers",
        "newcomer", "pending", "state",
    )  # fmt: skip

    def __init__(
        self, generation: Generation, timers: ClassicTimers, limits: ClassicLimits
    ) -> None:
        self._generation = generation
        self._roster = generation.roster
        self._timers = timers
        self._limits = limits
        self.state = EMPTY
        self.pending: set[str] = set()
        """Member ids that were returned with MEMBER_ID_REQUIRED and have not joined yet."""
        self.newcomer = False
        """Whether a member has joined during this step of the initial delay."""
        self._initial = False
        self._delay_left_ms = 0

    def replayed(self) -> None:
        """A record was replayed: its generation has all assignments, or no members."""
        self.state = STABLE if self._roster.members else EMPTY

    # ---------------------------------------------------------------------------------- phases

    def begin_or_go_on(self, now_ms: int, out: Outcome) -> None:
        """After a change: begin a rebalance, or complete the join phase if all have joined."""
        if self.state == PREPARING:
            self.complete_if_all_joined(now_ms, out)
        else:
            self.begin(now_ms, out)

    def begin(self, now_ms: int, out: Outcome) -> None:
        """Begin the join phase: all members have to join again."""
        if self.state == COMPLETING:
            for member in self._roster:
                member.assignment = b""
                self._refuse_sync(member, now_ms, out)
        self._roster.unsynced.clear()
        out.timers.append(self._timers.at(None, SYNC))
        was_empty = self.state == EMPTY
        self._initial = was_empty and self._limits.initial_delay_ms > 0
        self.state = PREPARING
        if self._initial:
            delay_ms = self._limits.initial_delay_ms
            self.newcomer = False
            self._delay_left_ms = max(self._roster.rebalance_timeout_ms() - delay_ms, 0)
            out.timers.append(self._timers.at(now_ms + delay_ms, JOIN))
        elif was_empty or self._all_joined():
            self._complete_join(now_ms, out)
        else:
            out.timers.append(self._join_timer(now_ms))

    def _refuse_sync(self, member: ClassicMember, now_ms: int, out: Outcome) -> None:
        if member.sync_token is not None:
            out.replies.append(Reply(member.sync_token, Synced(ErrorCode.REBALANCE_IN_PROGRESS)))
            out.timers.append(self._timers.session(member, now_ms))
            member.sync_token = None

    def _join_timer(self, now_ms: int) -> Timer:
        return self._timers.at(now_ms + self._roster.rebalance_timeout_ms(), JOIN)

    def _all_joined(self) -> bool:
        return self._roster.joining == len(self._roster) and not self.pending

    def complete_if_all_joined(self, now_ms: int, out: Outcome) -> None:
        """End the join phase early, if all members have joined."""
        if self.state == PREPARING and not self._initial and self._all_joined():
            self._complete_join(now_ms, out)

    def _complete_join(self, now_ms: int, out: Outcome) -> None:
        """End the join phase: the members that have joined form the next generation."""
        absent = [
            member
            for member in self._roster
            if member.join_token is None and member.instance_id is None
        ]
        if len(absent) == len(self._roster):
            self._end(out)
            return
        out.timers.append(self._timers.at(None, JOIN))
        for member in absent:
            self.remove(member, out)
        if self._roster.members and not self._roster.elect():
            # Only static members are left, and none has come back yet.
            out.timers.append(self._join_timer(now_ms))
            return
        self._initial = False
        self._roster.unsynced.clear()
        self._generation.advance()
        self.state = COMPLETING
        for member in self._roster:
            token = self._roster.stop_waiting(member)
            if token is not None:
                out.replies.append(Reply(token, self._generation.joined(member)))
            out.timers.append(self._timers.session(member, now_ms))
            member.is_new = False
            self._roster.unsynced.add(member.member_id)
        out.timers.append(self._timers.at(now_ms + self._roster.rebalance_timeout_ms(), SYNC))

    # -------------------------------------------------------------------------------- timeouts

    def expire_join(self, now_ms: int, out: Outcome) -> None:
        """The join phase has timed out."""
        if self.state != PREPARING:
            return
        if self._initial and self.newcomer and self._delay_left_ms > 0:
            # A member joined during the initial rebalance delay: more may follow.
            delay_ms = min(self._limits.initial_delay_ms, self._delay_left_ms)
            self.newcomer = False
            self._delay_left_ms -= delay_ms
            out.timers.append(self._timers.at(now_ms + delay_ms, JOIN))
        else:
            self._complete_join(now_ms, out)

    def expire_sync(self, now_ms: int, out: Outcome) -> None:
        """The sync phase has timed out: remove members that sent no SyncGroup."""
        if self.state in (COMPLETING, STABLE) and self._roster.unsynced:
            late = [self._roster.members[one] for one in sorted(self._roster.unsynced)]
            self.let_go(late, now_ms, out)

    # --------------------------------------------------------------------- removal of members

    def let_go(self, members: Sequence[ClassicMember], now_ms: int, out: Outcome) -> None:
        """Remove members: the others rebalance, or the group becomes empty."""
        if self._ends_without(len(members), ()):
            self._end(out)
            return
        for member in members:
            self.remove(member, out)
        self.begin_or_go_on(now_ms, out)

    def forget(
        self, pending: Sequence[str], members: Sequence[ClassicMember], now_ms: int, out: Outcome
    ) -> None:
        """Remove pending ids and members; the others rebalance, or the group becomes empty."""
        forget = partial(self.pending.difference_update, pending)
        rebalances = bool(members) or self.state == PREPARING
        if rebalances and self._ends_without(len(members), pending):
            self._end(out)
            out.effects.append(forget)
            return
        forget()
        if members:
            self.let_go(members, now_ms, out)
        else:
            self.complete_if_all_joined(now_ms, out)

    def remove(self, member: ClassicMember, out: Outcome) -> None:
        """Remove a member, and answer its waiting requests."""
        self._dismiss(member, out)
        self._roster.remove(member.member_id)

    def _ends_without(self, members: int, pending: Collection[str]) -> bool:
        """Whether the group becomes empty without these members and pending ids."""
        opening = self.state == PREPARING and self._initial
        return members == len(self._roster) and self.pending <= set(pending) and not opening

    def _end(self, out: Outcome) -> None:
        """The last member has left. The group becomes empty when the record is replayed."""
        for member in self._roster:
            self._dismiss(member, out)
        out.timers += [self._timers.at(None, JOIN), self._timers.at(None, SYNC)]
        out.records.append(self._generation.empty_record())

    def _dismiss(self, member: ClassicMember, out: Outcome) -> None:
        """Answer the waiting requests of a member, and stop its timer."""
        out.replies += refusals(member, ErrorCode.UNKNOWN_MEMBER_ID, "")
        out.timers.append(self._timers.at(None, MEMBER, member.member_id))


def refusals(member: ClassicMember, error: ErrorCode, member_id: str) -> list[AnyReply]:
    """The replies to the waiting requests of a member."""
    replies: list[AnyReply] = []
    if member.join_token is not None:
        replies.append(Reply(member.join_token, Joined(error, member_id)))
    if member.sync_token is not None:
        replies.append(Reply(member.sync_token, Synced(error)))
    return replies
