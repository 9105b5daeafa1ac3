"""Conversion of groups between the protocols (`group.consumer.migration.policy`).

A classic group of consumers becomes a consumer group when the first member with the new protocol
joins; it becomes a classic group again when the last such member leaves. A group without members
gets the protocol of its next member.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING

from headrace.cluster.image import Image
from headrace.coordination import records as classic_records
from headrace.coordination.consumer_records import (
    ClassicMembership,
    ClassicProtocol,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadata,
    ConsumerGroupMetadataKey,
    ConsumerRecord,
    CurrentAssignment,
    CurrentAssignmentKey,
    TargetMember,
    TargetMemberKey,
    TargetMetadata,
    TargetMetadataKey,
)
from headrace.coordination.groups.classic import ClassicGroup
from headrace.coordination.groups.classic_timers import MEMBER, REBALANCE
from headrace.coordination.groups.consumer_member import ConsumerMember, MemberState
from headrace.coordination.groups.embedded import (
    PROTOCOL_TYPE,
    by_id,
    by_name,
    read_assignment,
    read_subscription,
    write_assignment,
)
from headrace.coordination.groups.group import CLASSIC, Join, Joined
from headrace.coordination.groups.group_change import GroupChange
from headrace.coordination.groups.roster import ClassicMember
from headrace.coordination.outcome import Outcome, Timer, Token
from headrace.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.coordination.groups.consumer import ConsumerGroup
    from headrace.coordination.groups.streams.streams_group import StreamsGroup

# -------------------------------------------------------------------- classic to consumer


def upgrade(old: ClassicGroup, group: ConsumerGroup, now_ms: int) -> Outcome:
    """Convert a classic group to `group`, which is new; GROUP_ID_NOT_FOUND if that is not possible.

    Members keep their assignments. The caller tells members with waiting requests to join again.
    """
    if old.is_empty():
        return Outcome(records=old.tombstones())
    _check_upgrade(old, group)
    image = group.shard.image
    try:
        members = old.roster.members.values()
        converted = [record for one in members for record in _member_records(old, one, image)]
    except ValueError as error:
        raise _not_upgradable(old, "its members' embedded protocol is malformed") from error
    converted += [
        (ConsumerGroupMetadataKey(old.group_id), ConsumerGroupMetadata(old.generation.number)),
        (TargetMetadataKey(old.group_id), TargetMetadata(old.generation.number)),
    ]
    for key, value in converted:
        group.persistent.replay(key, value)
    sessions = [group.session_timer(one, now_ms) for one in group.persistent.members.values()]
    return Outcome(records=[*old.tombstones(), *converted], timers=sessions)


def _check_upgrade(old: ClassicGroup, group: ConsumerGroup) -> None:
    if not group.limits.upgrades:
        raise _not_upgradable(old, "group.consumer.migration.policy does not allow it")
    if old.protocol_type != PROTOCOL_TYPE:
        raise _not_upgradable(old, "its members are not consumers")
    if len(old.roster) > group.limits.max_size:
        raise _not_upgradable(old, "it has more members than group.consumer.max.size allows")


def _not_upgradable(old: ClassicGroup, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {old.group_id} is not a consumer group, and cannot become one: {why}.",
    )


def _member_records(
    old: ClassicGroup, member: ClassicMember, image: Image
) -> Iterator[ConsumerRecord]:
    """A classic member with what the leader last assigned to it."""
    epoch = old.generation.number
    spoken = sorted(member.protocols, key=lambda one: one[0] != old.generation.protocol)
    subscription = read_subscription(spoken[0][1])
    assigned = by_id(read_assignment(member.assignment), image)
    metadata = ConsumerGroupMemberMetadata(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        expression=None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        assignor=None,
        classic=ClassicMembership(
            member.session_timeout_ms, tuple(ClassicProtocol(*one) for one in spoken)
        ),
    )
    current = CurrentAssignment(epoch, epoch, MemberState.STABLE, assigned)
    yield ConsumerGroupMemberMetadataKey(old.group_id, member.member_id), metadata
    yield TargetMemberKey(old.group_id, member.member_id), TargetMember(assigned)
    yield CurrentAssignmentKey(old.group_id, member.member_id), current


# ------------------------------------------------------------------------ consumer to classic


def restart_as_classic(
    group: ConsumerGroup | StreamsGroup,
    join: Join,
    token: Token[Joined],
    new_member_id: str,
    now_ms: int,
) -> Outcome:
    """The first member of an empty group uses the classic protocol."""
    shard = group.shard
    successor = ClassicGroup(group.group_id, shard.limits, shard.wall)
    outcome = successor.classic.join(join, token, new_member_id, now_ms)
    if successor.is_void():
        return outcome  # the join was refused
    outcome.records[:0] = group.tombstones()
    outcome.effects.append(partial(shard.groups.__setitem__, group.group_id, successor))
    return outcome


def can_downgrade(group: ConsumerGroup, remaining: Collection[ConsumerMember]) -> bool:
    """Whether these members can continue as a classic group."""
    return (
        group.limits.downgrades
        and 0 < len(remaining) <= group.limits.max_classic_size
        and all(member.uses_classic for member in remaining)
    )


def downgrade(
    group: ConsumerGroup, change: GroupChange, now_ms: int, *, rebalance: bool
) -> Outcome:
    """Convert to a classic group with the members that remain after `change`.

    Each keeps its target as its assignment; with `rebalance` a new rebalance begins immediately.
    """
    members = change.members.values()
    protocol = _common_protocol(members)
    stored = tuple(_stored(group, change, member, protocol) for member in members)
    value = classic_records.GroupMetadata(
        PROTOCOL_TYPE, change.epoch, protocol, stored[0].member_id, group.shard.wall.ms, stored
    )
    outcome = Outcome(records=group.tombstones())
    outcome.records.append((classic_records.GroupMetadataKey(group.group_id), value))
    outcome.timers = [
        Timer((CLASSIC, group.group_id, MEMBER, one.member_id), now_ms + one.session_timeout_ms)
        for one in stored
    ]
    if rebalance:
        outcome.timers.append(Timer((CLASSIC, group.group_id, REBALANCE), now_ms))
    return outcome


def _common_protocol(members: Collection[ConsumerMember]) -> str:
    """The first protocol that all of them support; each had to share one to join."""
    spoken = [[one.name for one in _classic(member).protocols] for member in members]
    return next(name for name in spoken[0] if all(name in names for names in spoken))


def _stored(
    group: ConsumerGroup, change: GroupChange, member: ConsumerMember, protocol: str
) -> classic_records.MemberMetadata:
    classic = _classic(member)
    subscription = next(one.metadata for one in classic.protocols if one.name == protocol)
    assigned = by_name(change.target_of(member.id), group.shard.image)
    return classic_records.MemberMetadata(
        member.id,
        member.instance_id,
        member.metadata.client_id,
        member.metadata.client_host,
        member.metadata.rebalance_timeout_ms,
        classic.session_timeout_ms,
        subscription,
        write_assignment(read_subscription(subscription).version, assigned),
    )


def _classic(member: ConsumerMember) -> ClassicMembership:
    assert member.metadata.classic is not None, "only classic members make up a classic group"
    return member.metadata.classic
