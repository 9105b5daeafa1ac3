"""Members of a consumer group that use the classic protocol: old clients during an upgrade.

The broker computes their assignments too. A heartbeat tells such a member to rebalance
(REBALANCE_IN_PROGRESS). It revokes partitions, joins, which moves it one step towards its target,
and gets its partitions with SyncGroup. There is no group leader, and no member waits for others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from headrace.coordination.consumer_records import (
    ClassicMembership,
    ClassicProtocol,
    ConsumerGroupMemberMetadata,
)
from headrace.coordination.groups import migration
from headrace.coordination.groups.consumer_member import ConsumerMember, MemberState, difference
from headrace.coordination.groups.embedded import (
    PROTOCOL_TYPE,
    Subscription,
    by_id,
    by_name,
    read_subscription,
    write_assignment,
)
from headrace.coordination.groups.group import (
    CONSUMER,
    Heartbeat,
    Join,
    Joined,
    Leaver,
    Left,
    Sync,
    Synced,
)
from headrace.coordination.groups.group_change import JOIN, NEW_MEMBER, SYNC, GroupChange
from headrace.coordination.outcome import Outcome, Timer, Token, answer
from headrace.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.coordination.groups.consumer import ConsumerGroup


class ClassicMembers:
    """Serves the members of one consumer group that use the classic protocol."""

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group
        self._asked_to_join: set[str] = set()
        """Members that were told to join again."""

    def forget(self, member_id: str) -> None:
        """A member has joined or left."""
        self._asked_to_join.discard(member_id)

    def join(self, request: Join, token: Token[Joined], new_member_id: str, now_ms: int) -> Outcome:
        """JoinGroup; replies with Joined, at once."""
        if not self._group.persistent.members and not request.member_id:
            return migration.restart_as_classic(self._group, request, token, new_member_id, now_ms)
        member_id = request.member_id or new_member_id
        try:
            if member_id not in self._group.persistent.members:
                self._group.check_room()
            self._check_protocols(request)
            if not request.member_id and request.requires_member_id and request.instance_id is None:
                return answer(token, Joined(ErrorCode.MEMBER_ID_REQUIRED, member_id))
            return self._join(request, member_id, token, now_ms)
        except KafkaError as error:
            return answer(token, Joined(error.code, request.member_id))

    def _join(self, request: Join, member_id: str, token: Token[Joined], now_ms: int) -> Outcome:
        subscription = _subscription(request)
        change = self._group.change(now_ms)
        known = self._find(request, member_id, change)
        if change.put(replace(known, metadata=_updated(known.metadata, request, subscription))):
            change.bump(always=True)
        change.retarget()
        owned = by_id(subscription.owned, self._group.shard.image)
        member = change.move(change.members[member_id], owned)
        joined = Joined(
            ErrorCode.NONE, member.id, member.epoch, PROTOCOL_TYPE, request.protocols[0][0]
        )
        change.outcome.effects.append(partial(self.forget, member.id))
        if request.instance_id is not None and migration.can_downgrade(
            self._group, change.members.values()
        ):
            # The epoch of the group becomes the generation of the classic group.
            joined = replace(joined, generation=change.epoch)
            outcome = migration.downgrade(self._group, change, now_ms, rebalance=False)
            return outcome.merge(answer(token, joined))
        change.timer(None, JOIN, member.id)
        change.timer(now_ms + request.rebalance_timeout_ms, SYNC, member.id)
        is_new = member.id not in self._group.persistent.members
        out = change.outcome
        (out.timers if is_new else out.sessions).append(self._group.session_timer(member, now_ms))
        return out.merge(answer(token, joined))

    def _check_protocols(self, request: Join) -> None:
        """INCONSISTENT_GROUP_PROTOCOL unless all classic members share a protocol with it."""
        speakers = Counter[str]()
        count = 0
        for member in self._group.persistent.members.values():
            if member.metadata.classic is not None:
                count += 1
                speakers.update(one.name for one in member.metadata.classic.protocols)
        if request.protocol_type != PROTOCOL_TYPE or not any(
            speakers[name] == count for name, _ in request.protocols
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _find(self, request: Join, member_id: str, change: GroupChange) -> ConsumerMember:
        state = self._group.persistent
        if request.instance_id is None:
            return state.members.get(member_id) or ConsumerMember(member_id, NEW_MEMBER)
        if request.member_id:
            return state.static_member(request.instance_id, request.member_id)
        known = state.instances.get(request.instance_id)
        if known is None:
            return ConsumerMember(member_id, NEW_MEMBER)
        return change.succeed(state.members[known], member_id)

    def sync(self, request: Sync, token: Token[Synced], now_ms: int) -> Outcome:
        """SyncGroup; replies with Synced, at once."""
        try:
            member, classic = self._classic_member(request.member_id, request.instance_id)
            _check_generation(member, request.generation)
            _check_same_protocol(classic, request)
            if self._is_behind(member):
                outcome = answer(token, Synced(ErrorCode.REBALANCE_IN_PROGRESS))
                return outcome.merge(self._ask_to_join(member, now_ms))
        except KafkaError as error:
            return answer(token, Synced(error.code))
        assigned = by_name(member.current.assigned, self._group.shard.image)
        version = read_subscription(classic.protocols[0].metadata).version
        outcome = answer(
            token,
            Synced(
                ErrorCode.NONE,
                request.protocol_type,
                request.protocol_name,
                write_assignment(version, assigned),
            ),
        )
        outcome.timers.append(Timer((CONSUMER, self._group.group_id, SYNC, member.id), None))
        outcome.timers.append(self._group.session_timer(member, now_ms))
        return outcome

    def heartbeat(self, request: Heartbeat, token: Token[ErrorCode], now_ms: int) -> Outcome:
        """Heartbeat; replies with an ErrorCode: whether the member should join again."""
        try:
            member, _ = self._classic_member(request.member_id, request.instance_id)
            _check_generation(member, request.generation)
        except KafkaError as error:
            return answer(token, error.code)
        if self._should_join(member):
            outcome = answer(token, ErrorCode.REBALANCE_IN_PROGRESS)
            outcome.merge(self._ask_to_join(member, now_ms))
        else:
            outcome = answer(token, ErrorCode.NONE)
        outcome.timers.append(self._group.session_timer(member, now_ms))
        return outcome

    def leave(
        self, leavers: Sequence[Leaver], token: Token[tuple[Left, ...]], now_ms: int
    ) -> Outcome:
        """LeaveGroup, for members of both protocols; replies with a Left for each."""
        state = self._group.persistent
        left: list[Left] = []
        gone: dict[str, ConsumerMember] = {}
        for leaver in leavers:
            member_id = leaver.member_id
            if not member_id and leaver.instance_id is not None:
                # An administrator gives the instance id only.
                member_id = state.instances.get(leaver.instance_id, "")
            one = Left(member_id, leaver.instance_id, ErrorCode.NONE)
            try:
                if member_id in gone:
                    raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
                gone[member_id] = state.any_member(member_id, leaver.instance_id)
            except KafkaError as error:
                one = one.failed(error.code)
            left.append(one)
        outcome = self._group.fence(list(gone.values()), now_ms) if gone else Outcome()
        return outcome.merge(answer(token, tuple(left)))

    def _classic_member(
        self, member_id: str, instance_id: str | None
    ) -> tuple[ConsumerMember, ClassicMembership]:
        member = self._group.persistent.any_member(member_id, instance_id)
        if member.metadata.classic is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} does not use the classic protocol.",
            )
        return member, member.metadata.classic

    def _is_behind(self, member: ConsumerMember) -> bool:
        """Whether the member should join again before it gets its assignment."""
        revokes = member.current.state == MemberState.UNREVOKED_PARTITIONS
        return member.epoch < self._group.persistent.epoch and not revokes

    def _should_join(self, member: ConsumerMember) -> bool:
        state = self._group.persistent
        if member.epoch < state.epoch or member.current.state == MemberState.UNREVOKED_PARTITIONS:
            return True
        if member.current.state != MemberState.UNRELEASED_PARTITIONS:
            return False
        wanted = difference(state.target_of(member.id), member.current.assigned)
        return not any(
            state.holder(topic_id, one) is not None
            for topic_id, held in wanted.items()
            for one in held
        )

    def _ask_to_join(self, member: ConsumerMember, now_ms: int) -> Outcome:
        """Begin the rebalance timeout of a member, when it is first told to join again."""
        if member.id in self._asked_to_join:
            return Outcome()
        self._asked_to_join.add(member.id)
        due = now_ms + member.metadata.rebalance_timeout_ms
        return Outcome(timers=[Timer((CONSUMER, self._group.group_id, JOIN, member.id), due)])


def _subscription(request: Join) -> Subscription:
    try:
        return read_subscription(request.protocols[0][1])
    except ValueError as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error


def _updated(
    known: ConsumerGroupMemberMetadata, request: Join, subscription: Subscription
) -> ConsumerGroupMemberMetadata:
    protocols = tuple(ClassicProtocol(name, data) for name, data in request.protocols)
    return ConsumerGroupMemberMetadata(
        instance_id=request.instance_id,
        rack_id=subscription.rack_id or known.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        expression=None,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        assignor=known.assignor,
        classic=ClassicMembership(request.session_timeout_ms, protocols),
    )


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if member.epoch != generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)


def _check_same_protocol(classic: ClassicMembership, request: Sync) -> None:
    if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (
        None,
        classic.protocols[0].name,
    ):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
