"""A consumer group (KIP-848): the broker assigns, members reconcile.

A member sends only heartbeats. There are three epochs: the group epoch grows with every change of
members, subscriptions or topics; the target assignment has the group epoch that it was made for;
and each member has the epoch of the target that it has reached. A heartbeat makes a new target if
the group epoch is ahead of it, and moves its member one step (`consumer_member.reconcile`).

The persistent state is in `consumer_state.py`, changes to it in `group_change.py`. Members with the
classic protocol are in `classic_members.py`, changes of a whole group from one protocol to the
other in `migration.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from headrace.cluster.image import Image
from headrace.coordination.consumer_records import (
    Assignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadataKey,
    ConsumerKey,
    ConsumerValue,
    CurrentAssignmentKey,
    PartitionMetadataKey,
)
from headrace.coordination.groups import migration
from headrace.coordination.groups.classic import ClassicGroup
from headrace.coordination.groups.classic_limits import ClassicLimits
from headrace.coordination.groups.classic_members import ClassicMembers
from headrace.coordination.groups.consumer_limits import ConsumerLimits
from headrace.coordination.groups.consumer_member import (
    JOINING,
    LEAVING,
    LEAVING_FOR_NOW,
    ConsumerMember,
    MemberState,
    check_epoch,
)
from headrace.coordination.groups.consumer_state import ConsumerState
from headrace.coordination.groups.expression_search import ExpressionSearch
from headrace.coordination.groups.group import (
    CONSUMER,
    Committer,
    Group,
)
from headrace.coordination.groups.group_change import (
    ASSIGN,
    NEW_MEMBER,
    REBALANCE,
    SEARCH,
    SESSION,
    GroupChange,
    MayDescribe,
    preferred_assignor,
    visible,
)
from headrace.coordination.offsets import OffsetToCommit
from headrace.coordination.outcome import (
    AnyReply,
    Key,
    Outcome,
    Record,
    Timer,
    Token,
    Value,
    answer,
)
from headrace.coordination.wall_time import WallTime
from headrace.errors import ErrorCode, KafkaError
from headrace.settings import Settings, group_value
from headrace.settings.group_table import HEARTBEAT_INTERVAL, SESSION_TIMEOUT

FIRST_COMMIT_WITH_EPOCH = 9
"""The first version of OffsetCommit in which the generation may be a member epoch."""

PACED_FROM, MEMBERS_PER_MS = 50, 4
"""Beyond this number of members, targets are made one millisecond apart for each four members.

The time to make a target grows with the number of members: a thousand members that join one after
the other would keep the broker busy for seconds. Most of them get their partitions one heartbeat
later instead.
"""


class GroupShard(Protocol):
    """The parts of its shard that a group uses."""

    groups: dict[str, Group]
    settings: Settings
    limits: ClassicLimits
    image: Image
    wall: WallTime


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """A ConsumerGroupHeartbeat; None for fields that have not changed since the last one."""

    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int  # -1: not changed
    topics: tuple[str, ...] | None
    expression: str | None  # "": no longer any
    assignor: str | None
    owned: Assignment | None
    client_id: str
    client_host: str
    may_describe: MayDescribe | None = None
    """Whether the client may describe a topic; None without an authorizer."""

    @property
    def is_full(self) -> bool:
        """Whether it has all fields; then the response has the assignment too."""
        if self.epoch == JOINING:
            return True
        subscribes = self.topics is not None or self.expression is not None
        return self.rebalance_timeout_ms != -1 and subscribes and self.owned is not None

    def updated(self, known: ConsumerGroupMemberMetadata) -> ConsumerGroupMemberMetadata:
        """The metadata of the member after this heartbeat."""
        return ConsumerGroupMemberMetadata(
            instance_id=known.instance_id if self.instance_id is None else self.instance_id,
            rack_id=known.rack_id if self.rack_id is None else self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            topics=known.topics if self.topics is None else tuple(sorted(set(self.topics))),
            expression=known.expression if self.expression is None else self.expression or None,
            rebalance_timeout_ms=known.rebalance_timeout_ms
            if self.rebalance_timeout_ms == -1
            else self.rebalance_timeout_ms,
            assignor=known.assignor if self.assignor is None else self.assignor,
        )


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatReply:
    """The response to a heartbeat; `assigned` is None if it has not changed."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assigned: Assignment | None = None


class ConsumerGroup:
    """One group."""

    kind = CONSUMER
    protocol_type = CONSUMER

    def __init__(self, group_id: str, shard: GroupShard) -> None:
        self.group_id = group_id
        self.persistent = ConsumerState(group_id)
        self.limits = ConsumerLimits.of(shard.settings)
        self.shard = shard
        self.classic = ClassicMembers(self)
        self._search = ExpressionSearch(self.persistent.subscriptions)
        self._targeted_ms = -(1 << 31)
        """When the last target was made."""
        self.may_describe: MayDescribe | None = None
        """Rights of the client of the last heartbeat: expressions match no other topics."""

    # ------------------------------------------------------------------------------ questions

    @property
    def state(self) -> str:
        """Empty, Assigning, Reconciling or Stable."""
        return self.persistent.state()

    @property
    def assignor(self) -> str:
        """The assignor that the next target will be made with."""
        return preferred_assignor(self.persistent.members.values(), self.limits)

    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.persistent.members

    def subscribes_to(self, topic: str) -> bool:
        """Whether a member reads this topic."""
        return topic in self.persistent.subscriptions.names()

    def retention_from(self, commit_ms: int) -> int | None:
        """When the retention of an offset began, given its commit time."""
        return commit_ms

    def check_commit(
        self, who: Committer, _now_ms: int, _offsets: Sequence[OffsetToCommit] = ()
    ) -> list[Timer]:
        """Raise KafkaError unless `who` may commit offsets; only heartbeats renew sessions."""
        if who.generation < 0 and self.is_empty():
            return []
        member = self.persistent.any_member(who.member_id, who.instance_id)
        if not member.uses_classic and who.version < FIRST_COMMIT_WITH_EPOCH:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"OffsetCommit version {who.version} is not supported for members of consumer "
                f"groups; versions {FIRST_COMMIT_WITH_EPOCH} and later are.",
            )
        _check_generation(member, who.generation)
        return []

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise KafkaError unless this member may read offsets."""
        if not member_id and epoch < 0:
            return
        _check_generation(self.persistent.member(member_id or ""), epoch)

    def tombstones(self) -> list[Record]:
        """The records that delete the group, without its offsets."""
        return [*self.persistent.tombstones()]

    # ------------------------------------------------------------------------- life of a group

    def loaded(self, now_ms: int) -> Outcome:
        """The log has been read: begin the sessions of members, and look for changed topics."""
        self.persistent.loaded()
        change = self.change(now_ms)
        for member in self.persistent.members.values():
            change.outcome.timers.append(self.session_timer(member, now_ms))
            if member.current.state == MemberState.UNREVOKED_PARTITIONS:
                due = now_ms + member.metadata.rebalance_timeout_ms
                change.timer(due, REBALANCE, member.id)
        if self.persistent.members:
            change.timer(now_ms + 1, SEARCH)
        return change.outcome

    def withdraw(self, _error: ErrorCode) -> list[AnyReply]:
        """No request waits here."""
        return []

    def expire(self, key: tuple[str, ...], now_ms: int) -> Outcome:
        """A session or a rebalance has timed out, or the next step of other work is due."""
        if key[2] == SEARCH:
            return self._continue_search(now_ms)
        if key[2] == ASSIGN:
            change = self.change(now_ms)
            self._retarget(change, now_ms)
            return change.outcome
        member = self.persistent.members.get(key[3])
        if member is None:
            return Outcome()
        if key[2] == REBALANCE and member.current.state != MemberState.UNREVOKED_PARTITIONS:
            return Outcome()
        return self.fence([member], now_ms)

    def change(self, now_ms: int) -> GroupChange:
        """A new change, for an operation that writes records."""
        wall_ms = self.shard.wall.ms
        return GroupChange(
            self.persistent, self.shard.image, self.limits, now_ms, wall_ms, self.may_describe
        )

    def session_timer(self, member: ConsumerMember, now_ms: int) -> Timer:
        """The timer of the member's session, which begins now."""
        classic = member.metadata.classic
        session_ms = self._configured_ms(SESSION_TIMEOUT)
        due = now_ms + (session_ms if classic is None else classic.session_timeout_ms)
        return Timer((CONSUMER, self.group_id, SESSION, member.id), due)

    def _configured_ms(self, name: str) -> int:
        """A config of this group; the broker's setting if the group has none."""
        configs = self.shard.image.group_configs.get(self.group_id, {})
        value = group_value(self.shard.settings, configs, name)
        assert isinstance(value, int), name
        return value

    # ----------------------------------------------------------------------------- heartbeats

    def beat(
        self, beat: ConsumerHeartbeat, token: Token[ConsumerHeartbeatReply], now_ms: int
    ) -> Outcome:
        """A heartbeat of a member that joins or stays."""
        state = self.persistent
        known = state.members.get(beat.member_id)
        if known is not None and self._changes_nothing(known, beat):
            interval = self._configured_ms(HEARTBEAT_INTERVAL)
            outcome = answer(token, ConsumerHeartbeatReply(known.id, known.epoch, interval))
            outcome.timers.append(self.session_timer(known, now_ms))
            return outcome
        change = self.change(now_ms)
        member = self._find(beat, change)
        if change.put(replace(member, metadata=beat.updated(member.metadata))):
            change.bump(always=True)
        self._retarget(change, now_ms)
        before = change.members[member.id]
        after = change.move(before, beat.owned)
        out = change.outcome
        (out.timers if known is None else out.sessions).append(self.session_timer(after, now_ms))
        if after.current != before.current:
            revoking = after.current.state == MemberState.UNREVOKED_PARTITIONS
            due = now_ms + after.metadata.rebalance_timeout_ms
            change.timer(due if revoking else None, REBALANCE, after.id)
        told = beat.is_full or after.current.assigned != before.current.assigned
        assigned = after.current.assigned if told else None
        interval = self._configured_ms(HEARTBEAT_INTERVAL)
        response = ConsumerHeartbeatReply(after.id, after.epoch, interval, assigned)
        return change.outcome.merge(answer(token, response))

    def _retarget(self, change: GroupChange, now_ms: int) -> None:
        """Make a new target if needed, now or, in a large group, a little later."""
        if not change.needs_target():
            return
        pause_ms = max(len(change.members) - PACED_FROM, 0) // MEMBERS_PER_MS
        due = self._targeted_ms + pause_ms
        if now_ms >= due:
            change.outcome.effects.append(partial(setattr, self, "_targeted_ms", now_ms))
            change.retarget()
        else:
            change.timer(due, ASSIGN)

    def _changes_nothing(self, member: ConsumerMember, beat: ConsumerHeartbeat) -> bool:
        """Whether a heartbeat changes nothing and its response has no assignment; most are."""
        return (
            beat.epoch == member.epoch == self.persistent.epoch == self.persistent.target_epoch
            and member.current.state == MemberState.STABLE
            and not beat.is_full
            and (beat.instance_id is None or beat.instance_id == member.instance_id)
            and beat.updated(member.metadata) == member.metadata
        )

    def _find(self, beat: ConsumerHeartbeat, change: GroupChange) -> ConsumerMember:
        """The member that sent a heartbeat; a returning static member is replaced in `change`."""
        state = self.persistent
        if beat.epoch != JOINING:
            found = state.any_member(beat.member_id, beat.instance_id)
            check_epoch(found, beat.epoch, beat.owned)
            return found
        if beat.instance_id is not None and beat.instance_id in state.instances:
            old = state.members[state.instances[beat.instance_id]]
            if not old.uses_classic and old.epoch != LEAVING_FOR_NOW:
                raise KafkaError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {beat.member_id} with instance id {beat.instance_id} cannot "
                    f"join the group because the instance id is owned by {old.id} member.",
                )
            return change.succeed(old, beat.member_id)
        known = state.members.get(beat.member_id)
        if known is not None:
            check_epoch(known, beat.epoch, beat.owned)
            return known
        self.check_room()
        return ConsumerMember(beat.member_id, NEW_MEMBER)

    def check_room(self) -> None:
        """GROUP_MAX_SIZE_REACHED if the group is full."""
        most = self.limits.max_size
        if len(self.persistent.members) >= most:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {most} members.",
            )

    def depart(
        self, beat: ConsumerHeartbeat, token: Token[ConsumerHeartbeatReply], now_ms: int
    ) -> Outcome:
        """A heartbeat of a member that leaves, or of a static member that leaves temporarily."""
        member = self.persistent.any_member(beat.member_id, beat.instance_id)
        response = answer(token, ConsumerHeartbeatReply(member.id, beat.epoch))
        if beat.epoch == LEAVING:
            return self.fence([member], now_ms).merge(response)
        away = replace(member.current, member_epoch=LEAVING_FOR_NOW, revoking={})
        key = CurrentAssignmentKey(self.group_id, member.id)
        return Outcome(records=[(key, away)]).merge(response)

    def fence(self, members: Sequence[ConsumerMember], now_ms: int) -> Outcome:
        """Remove members; the others get their partitions."""
        change = self.change(now_ms)
        for member in members:
            change.remove(member.id)
            change.outcome.effects.append(partial(self.classic.forget, member.id))
        if migration.can_downgrade(self, change.members.values()):
            return migration.downgrade(self, change, now_ms, rebalance=True)
        change.bump(always=True)
        return change.outcome

    # --------------------------------------------------------------------------------- topics

    def topics_changed(self, changed: frozenset[str], now_ms: int) -> Outcome:
        """Topics were created, changed or deleted: update expressions and the group epoch."""
        state = self.persistent
        resolved = state.subscriptions.resolved
        unconcerned = state.subscriptions.names().isdisjoint(changed)
        if unconcerned and not resolved and not self._search.is_running:
            return Outcome()
        change = self.change(now_ms)
        if self._search.is_running:
            change.outcome.effects.append(self._search.end)
            change.timer(now_ms + 1, SEARCH)
        there = visible(
            (name for name in changed if name in self.shard.image.topics), self.may_describe
        )
        gone = {name for name in changed if name not in self.shard.image.topics}
        for text, topics in resolved.items():
            found = self._search.matching(text, there)
            change.resolved(text, (found | set(topics)) - gone)
        if state.members:
            change.bump(always=False)
        return change.outcome

    def _continue_search(self, now_ms: int) -> Outcome:
        """Continue the search for the topics of all expressions; apply the result at its end."""
        change = self.change(now_ms)
        found = self._search.advance(lambda: visible(self.shard.image.topics, self.may_describe))
        if found is None:
            change.timer(now_ms + 1, SEARCH)
            return change.outcome
        change.outcome.effects.append(self._search.end)
        used = self.persistent.subscriptions.expressions()
        for text, topics in found.items():
            if text in used:
                change.resolved(text, topics)
        if used - found.keys():
            change.timer(now_ms + 1, SEARCH)
        if self.persistent.members:
            change.bump(always=False)
        return change.outcome


def _check_generation(member: ConsumerMember, epoch: int) -> None:
    if member.epoch == epoch:
        return
    if member.uses_classic:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The received generation id {epoch} does not match the expected member epoch "
            f"{member.epoch}.",
        )
    raise KafkaError(
        ErrorCode.STALE_MEMBER_EPOCH,
        f"The received member epoch {epoch} does not match the expected member epoch "
        f"{member.epoch}.",
    )


# ------------------------------------------------------------------------ groups of a shard


def heartbeat(
    shard: GroupShard, beat: ConsumerHeartbeat, token: Token[ConsumerHeartbeatReply], now_ms: int
) -> Outcome:
    """ConsumerGroupHeartbeat; creates or converts the group if needed."""
    outcome = _heartbeat(shard, beat, token, now_ms)
    if beat.may_describe is not None:
        outcome.effects.append(partial(_remember_rights, shard, beat.group_id, beat.may_describe))
    return outcome


def _remember_rights(shard: GroupShard, group_id: str, may_describe: MayDescribe) -> None:
    """Set the rights after the first heartbeat has created the group."""
    group = shard.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        group.may_describe = may_describe


def _heartbeat(
    shard: GroupShard, beat: ConsumerHeartbeat, token: Token[ConsumerHeartbeatReply], now_ms: int
) -> Outcome:
    found = shard.groups.get(beat.group_id)
    if isinstance(found, ConsumerGroup):
        found.may_describe = beat.may_describe
        if beat.epoch in (LEAVING, LEAVING_FOR_NOW):
            return found.depart(beat, token, now_ms)
        return found.beat(beat, token, now_ms)
    if beat.epoch != JOINING or not (found is None or isinstance(found, ClassicGroup)):
        why = "not found" if found is None else f"is not a {CONSUMER} group"
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {beat.group_id} {why}.")
    group = ConsumerGroup(beat.group_id, shard)
    group.may_describe = beat.may_describe
    if not isinstance(found, ClassicGroup):
        return group.beat(beat, token, now_ms)
    outcome = migration.upgrade(found, group, now_ms)
    outcome.merge(group.beat(beat, token, now_ms))
    outcome.replies += found.withdraw(ErrorCode.REBALANCE_IN_PROGRESS)
    return outcome


def replay(shard: GroupShard, key: Key, value: Value | None) -> None:
    """Apply a record of a consumer group; the group is created and removed by records."""
    assert isinstance(key, ConsumerKey), f"{key} belongs to no group"
    assert value is None or isinstance(value, ConsumerValue)
    group = shard.groups.get(key.group_id)
    if not isinstance(group, ConsumerGroup):
        if value is None or isinstance(key, PartitionMetadataKey):
            return
        group = shard.groups[key.group_id] = ConsumerGroup(key.group_id, shard)
    if value is None and isinstance(key, ConsumerGroupMetadataKey):
        del shard.groups[key.group_id]
        return
    group.persistent.replay(key, value)


def topics_changed(shard: GroupShard, changed: frozenset[str], now_ms: int) -> Outcome:
    """Apply created, changed or deleted topics to all groups."""
    outcome = Outcome()
    for group in list(shard.groups.values()):
        if isinstance(group, ConsumerGroup):
            outcome.merge(group.topics_changed(changed, now_ms))
    return outcome
