"""A change to a consumer group before it is written: the new state, and the records.

The steps of most operations, in order: `put` or `remove` members, `bump` the group epoch,
`retarget`, and `move` the member of the request one step towards its target. Nothing here changes
the group: its records do, when they are replayed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeAlias

from headrace.cluster.image import Image
from headrace.coordination.consumer_records import (
    Assignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadata,
    ConsumerGroupMetadataKey,
    CurrentAssignmentKey,
    RegularExpression,
    RegularExpressionKey,
    TargetMember,
    TargetMemberKey,
    TargetMetadata,
    TargetMetadataKey,
    member_tombstones,
)
from headrace.coordination.groups.assignors import ASSIGNORS, Reader
from headrace.coordination.groups.consumer_limits import ConsumerLimits
from headrace.coordination.groups.consumer_member import JOINING, ConsumerMember, reconcile
from headrace.coordination.groups.consumer_state import ConsumerState
from headrace.coordination.groups.expression_search import SEARCH_STEPS
from headrace.coordination.groups.group import CONSUMER
from headrace.coordination.groups.subscriptions import subscription_of
from headrace.coordination.outcome import Outcome, Record, Timer
from headrace.expressions.expression import Expression, Search

SESSION, REBALANCE, JOIN, SYNC = "session", "rebalance", "join", "sync"
"""Third part of the key of a member's timer; the fourth is the member's id."""
SEARCH, ASSIGN = "search", "assign"
"""The same for timers of the group."""

NEW_MEMBER = ConsumerGroupMemberMetadata(None, None, "", "", (), None, -1, None)
"""The metadata of a new member before its first heartbeat is applied."""


MayDescribe: TypeAlias = Callable[[str], bool]
"""Whether a client may describe a topic."""


def visible(names: Iterable[str], may_describe: MayDescribe | None) -> list[str]:
    """The topics that an expression may match; all of them without an authorizer."""
    return list(names if may_describe is None else filter(may_describe, names))


class GroupChange:
    """The changes of one operation to a group."""

    def __init__(
        self,
        state: ConsumerState,
        image: Image,
        limits: ConsumerLimits,
        now_ms: int,
        wall_ms: int,
        may_describe: MayDescribe | None = None,
    ) -> None:
        self._may_describe = may_describe
        self.outcome = Outcome()
        self.epoch = state.epoch
        self.members = dict(state.members)
        """The members after the change."""
        self._state = state
        self._image = image
        self._limits = limits
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._subscriptions = state.subscriptions
        self._targets = dict(state.targets)
        self._target_epoch = state.target_epoch
        self._succeeded: dict[str, str] = {}
        """Old ids of static members that came back, by their new ones."""

    # -------------------------------------------------------------------------------- members

    def put(self, member: ConsumerMember) -> bool:
        """Write a new or changed member; returns whether its subscription changed."""
        old = self.members.get(member.id)
        self.members[member.id] = member
        if old is not None and old.metadata == member.metadata:
            return False
        self._write(
            (ConsumerGroupMemberMetadataKey(self._state.group_id, member.id), member.metadata)
        )
        if old is not None and subscription_of(old.metadata) == subscription_of(member.metadata):
            return False
        expression = member.metadata.expression
        if expression and expression not in self._subscriptions.resolved:
            # As in Kafka, a member that also subscribes to names gets these topics first. A member
            # with an expression only would wait a heartbeat interval for its first partitions.
            self._resolve(Expression(expression), at_once=not member.metadata.topics)
        self._own_subscriptions()
        self._subscriptions.replace(old.metadata if old else None, member.metadata)
        self._drop_unused_expressions()
        return True

    def remove(self, member_id: str) -> None:
        """Remove a member, with its assignments."""
        old = self.members.pop(member_id)
        self._own_subscriptions()
        self._subscriptions.replace(old.metadata, None)
        self._drop_unused_expressions()
        self._targets.pop(member_id, None)
        self._write(*member_tombstones(self._state.group_id, member_id))
        self.stop_timers(member_id)

    def succeed(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """A static member came back, maybe with another id: it takes over its assignments."""
        current = replace(old.current, member_epoch=JOINING, previous_epoch=JOINING)
        group_id = self._state.group_id
        if old.id != member_id:
            del self.members[old.id]
            target = self._targets.pop(old.id, {})
            self._targets[member_id] = target
            self._write(
                *member_tombstones(group_id, old.id),
                (ConsumerGroupMemberMetadataKey(group_id, member_id), old.metadata),
                (TargetMemberKey(group_id, member_id), TargetMember(target)),
            )
            self.stop_timers(old.id)
            self._succeeded[member_id] = old.id
        self._write((CurrentAssignmentKey(group_id, member_id), current))
        found = ConsumerMember(member_id, old.metadata, current)
        self.members[member_id] = found
        return found

    # ---------------------------------------------------------------------------- expressions

    def _resolve(self, expression: Expression, *, at_once: bool) -> None:
        """Find the topics of a new expression, `at_once` if that is fast, or with a timer."""
        search = Search([expression], visible(self._image.topics, self._may_describe))
        if at_once and search.go_on(SEARCH_STEPS):
            self.resolved(expression.text, search.found[expression.text])
        else:
            self.timer(self._now_ms + 1, SEARCH)

    def resolved(self, expression: str, topics: Iterable[str]) -> None:
        """Set the topics that an expression matches."""
        value = RegularExpression(tuple(sorted(topics)), self._image.version, self._wall_ms)
        if self._subscriptions.resolved.get(expression) == value.topics:
            return
        self._own_subscriptions()
        self._subscriptions.resolved[expression] = value.topics
        self._write((RegularExpressionKey(self._state.group_id, expression), value))

    def _drop_unused_expressions(self) -> None:
        used = self._subscriptions.expressions()
        for expression in [one for one in self._subscriptions.resolved if one not in used]:
            del self._subscriptions.resolved[expression]
            self._write((RegularExpressionKey(self._state.group_id, expression), None))

    def _own_subscriptions(self) -> None:
        if self._subscriptions is self._state.subscriptions:
            self._subscriptions = self._subscriptions.copy()

    # --------------------------------------------------------------------- epochs and targets

    def target_of(self, member_id: str) -> Assignment:
        """The target assignment of a member after the change."""
        return self._targets.get(member_id, {})

    def bump(self, always: bool) -> None:
        """Increase the group epoch, `always` or if the subscribed topics have changed."""
        metadata_hash = self._subscriptions.metadata_hash(self._image)
        if always or metadata_hash != self._state.metadata_hash:
            self.epoch = self._state.epoch + 1
            key = ConsumerGroupMetadataKey(self._state.group_id)
            self._write((key, ConsumerGroupMetadata(self.epoch, metadata_hash)))

    def needs_target(self) -> bool:
        """Whether the group epoch is ahead of the target."""
        return self.epoch > self._target_epoch

    def retarget(self) -> None:
        """Make a target for the group epoch, if there is none, and write its changes."""
        if not self.needs_target():
            return
        topic_ids = {
            one: self._subscriptions.topic_ids(one, self._image)
            for one in {subscription_of(member.metadata) for member in self.members.values()}
        }
        readers = [
            Reader(
                member.id,
                member.instance_id,
                topic_ids[subscription_of(member.metadata)],
                self.target_of(member.id),
            )
            for member in self.members.values()
        ]
        assign = ASSIGNORS[preferred_assignor(self.members.values(), self._limits)]
        targets = assign(readers, self._subscriptions.partition_counts(self._image))
        for member_id, target in targets.items():
            if self._targets.get(member_id) != target:
                key = TargetMemberKey(self._state.group_id, member_id)
                self._write((key, TargetMember(target)))
        self._targets.update(targets)
        self._target_epoch = self.epoch
        self._write((TargetMetadataKey(self._state.group_id), TargetMetadata(self.epoch)))

    def move(self, member: ConsumerMember, owned: Assignment | None) -> ConsumerMember:
        """Move a member one step towards its target; returns the member after that."""
        if member.is_reconciled_to(self._target_epoch):
            return member
        own = (None, member.id, self._succeeded.get(member.id))
        current = reconcile(
            member.current,
            self._target_epoch,
            self.target_of(member.id),
            lambda topic, one: self._state.holder(topic, one) not in own,
            owned,
        )
        if current == member.current:
            return member
        self._write((CurrentAssignmentKey(self._state.group_id, member.id), current))
        moved = ConsumerMember(member.id, member.metadata, current)
        self.members[member.id] = moved
        return moved

    # --------------------------------------------------------------------------------- timers

    def timer(self, at_ms: int | None, *key: str) -> None:
        """Set or stop a timer of the group."""
        self.outcome.timers.append(Timer((CONSUMER, self._state.group_id, *key), at_ms))

    def stop_timers(self, member_id: str) -> None:
        """Stop the timers of a member."""
        for kind in (SESSION, REBALANCE, JOIN, SYNC):
            self.timer(None, kind, member_id)

    def _write(self, *records: Record) -> None:
        self.outcome.records += records


def preferred_assignor(members: Iterable[ConsumerMember], limits: ConsumerLimits) -> str:
    """The assignor that most members request; the first configured one if none does."""
    wanted = Counter(
        member.metadata.assignor for member in members if member.metadata.assignor is not None
    )
    known = [(count, name) for name, count in wanted.items() if name in limits.assignors]
    return max(known)[1] if known else limits.assignors[0]
