"""A classic group, as the registry and the administration see it.

Its parts: the generation that the log holds (`generation.py`), the phases of a rebalance
(`rebalance.py`) and the requests of members (`member_requests.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.coordination.groups.classic_limits import ClassicLimits
from headrace.coordination.groups.classic_timers import MEMBER, REBALANCE, SYNC, ClassicTimers
from headrace.coordination.groups.generation import CONSUMER_PROTOCOL, Generation
from headrace.coordination.groups.group import CLASSIC, Committer
from headrace.coordination.groups.member_requests import MemberRequests
from headrace.coordination.groups.rebalance import COMPLETING, EMPTY, STABLE, Rebalance, refusals
from headrace.coordination.offsets import OffsetToCommit
from headrace.coordination.outcome import AnyReply, Outcome, Record, Timer
from headrace.coordination.records import GroupMetadata, GroupMetadataKey, MemberMetadata
from headrace.coordination.wall_time import WallTime
from headrace.errors import ErrorCode, KafkaError


@dataclass(slots=True)
class ClassicGroupDescription:
    """A group as DescribeGroups shows it; metadata and assignments only while it is stable."""

    state: str
    protocol_type: str
    protocol: str
    members: tuple[MemberMetadata, ...]


class ClassicGroup:
    """One group."""

    __slots__ = ("_limits", "_timers", "classic", "generation", "group_id", "rebalance", "roster")

    kind = CLASSIC

    def __init__(self, group_id: str, limits: ClassicLimits, wall: WallTime) -> None:
        self.group_id = group_id
        self._limits = limits
        self._timers = ClassicTimers(group_id)
        self.generation = Generation(group_id, wall)
        self.roster = self.generation.roster
        self.rebalance = Rebalance(self.generation, self._timers, limits)
        self.classic = MemberRequests(self.generation, self.rebalance, self._timers, limits)

    # -------------------------------------------------------------------------------- questions

    @property
    def protocol_type(self) -> str:
        """The protocol type of the members, such as "consumer"; "" if none has ever joined."""
        return self.generation.protocol_type

    @property
    def state(self) -> str:
        """Empty, PreparingRebalance, CompletingRebalance or Stable."""
        return self.rebalance.state

    def is_empty(self) -> bool:
        """Whether the group may be deleted."""
        return self.state == EMPTY

    def is_void(self) -> bool:
        """Whether nothing would be lost with the group."""
        persisted, pending = self.generation.persisted, self.rebalance.pending
        return self.state == EMPTY and not persisted and not pending

    def subscribes_to(self, topic: str) -> bool:
        """Whether offsets of this topic are in use; all are if the subscriptions are unknown."""
        topics = self.generation.topics
        return self.protocol_type == CONSUMER_PROTOCOL if topics is None else topic in topics

    def retention_from(self, commit_ms: int) -> int | None:
        """When the retention of an offset began, given its commit time; None if it is in use."""
        if not self.protocol_type:
            return commit_ms
        if self.state == EMPTY:
            return commit_ms if self.generation.state_ms < 0 else self.generation.state_ms
        consumes = self.protocol_type == CONSUMER_PROTOCOL and self.generation.topics is not None
        return commit_ms if consumes and self.state == STABLE else None

    def describe(self) -> ClassicGroupDescription:
        """The group as DescribeGroups shows it."""
        stable = self.state == STABLE
        protocol = self.generation.protocol if stable else None
        members = tuple(
            one.to_store(one.assignment if stable else b"", protocol) for one in self.roster
        )
        return ClassicGroupDescription(self.state, self.protocol_type, protocol or "", members)

    def check_commit(
        self, who: Committer, now_ms: int, _offsets: Sequence[OffsetToCommit] = ()
    ) -> list[Timer]:
        """Raise KafkaError unless `who` may commit offsets; a commit renews the session."""
        if who.generation < 0 and self.state == EMPTY:
            return []
        if who.generation < 0 and not who.member_id and who.instance_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self.roster.check(who.member_id, who.instance_id)
        if who.generation != self.generation.number:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if self.state == COMPLETING:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return [self._timers.session(member, now_ms)]

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Any client may read the offsets of a classic group."""

    def tombstones(self) -> list[Record]:
        """The record that deletes the group."""
        return [(GroupMetadataKey(self.group_id), None)]

    # ------------------------------------------------------------------------- life of a group

    def replay(self, value: GroupMetadata) -> None:
        """Apply a record: a generation with its assignments, or the empty one."""
        self.generation.replay(value)
        self.rebalance.replayed()

    def loaded(self, now_ms: int) -> Outcome:
        """The log has been read: each member has its session timeout to send a heartbeat."""
        out = Outcome(timers=[self._timers.session(member, now_ms) for member in self.roster])
        if len(self.roster) > self._limits.max_size:
            self.rebalance.begin(now_ms, out)
        return out

    def expire(self, key: tuple[str, ...], now_ms: int) -> Outcome:
        """A session or a phase of the rebalance has timed out."""
        out = Outcome()
        if key[2] == MEMBER:
            self._expire_member(key[3], now_ms, out)
        elif key[2] == SYNC:
            self.rebalance.expire_sync(now_ms, out)
        elif key[2] == REBALANCE:
            if self.roster.members:
                self.rebalance.begin_or_go_on(now_ms, out)
        else:
            self.rebalance.expire_join(now_ms, out)
        return out

    def _expire_member(self, member_id: str, now_ms: int, out: Outcome) -> None:
        if member_id in self.rebalance.pending:
            self.rebalance.forget([member_id], [], now_ms, out)
            return
        member = self.roster.members.get(member_id)
        if member is None:
            return
        # A member that waits for a response sends no heartbeats; new members have another timeout.
        waits = member.join_token is not None or member.sync_token is not None
        if member.is_new or not waits:
            self.rebalance.let_go([member], now_ms, out)

    def withdraw(self, error: ErrorCode) -> list[AnyReply]:
        """Answer all waiting requests: the group is about to be dropped."""
        return [
            reply for member in self.roster for reply in refusals(member, error, member.member_id)
        ]
