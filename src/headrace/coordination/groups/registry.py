"""The groups of one shard, of every type, by their ids; dispatches by group type.

A shard is what one partition of `__consumer_offsets` holds. Like the groups, the registry is a
state machine: operations return an `Outcome`, and persistent state changes in `replay` only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace.cluster.image import Image
from headrace.coordination.groups.classic import ClassicGroup
from headrace.coordination.groups.classic_limits import ClassicLimits
from headrace.coordination.groups.generation import CONSUMER_PROTOCOL
from headrace.coordination.groups.group import (
    CLASSIC,
    CONSUMER,
    SHARE,
    STREAMS,
    Committer,
    Group,
    Heartbeat,
    Join,
    Joined,
    Leaver,
    Left,
    Sync,
    Synced,
)
from headrace.coordination.offsets import Offsets, OffsetToCommit
from headrace.coordination.outcome import AnyReply, Key, Outcome, Reply, Timer, Token, Value, answer
from headrace.coordination.records import (
    GroupMetadata,
    GroupMetadataKey,
    OffsetCommit,
    OffsetCommitKey,
)
from headrace.coordination.share_group_records import ShareGroupKey
from headrace.coordination.streams_records import StreamsKey
from headrace.coordination.wall_time import WallTime
from headrace.errors import ErrorCode, KafkaError
from headrace.settings import Settings
from headrace.types import TopicPartition

GROUP_ID_NOT_FOUND_FROM = 9
"""The first version of OffsetCommit with the error GROUP_ID_NOT_FOUND."""


class Listed(NamedTuple):
    """A group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: str
    kind: str


class Groups:
    """The groups and the committed offsets of one shard.

    Consumer groups (`consumer.py`) use `groups` (`consumer.replay` adds and removes groups),
    `settings` and `image`.
    """

    def __init__(self, settings: Settings, image: Image) -> None:
        self.settings = settings
        self.image = image
        self.groups: dict[str, Group] = {}
        self.wall = WallTime()
        """Set by the runtime before each operation."""
        self.offsets = Offsets(settings.integer("offsets.retention.minutes") * 60_000)
        self.limits = ClassicLimits.of(settings)

    # --------------------------------------------------------------------------- life of a shard

    def replay(self, key: Key, value: Value | None) -> None:
        """Apply a record, from the log or from an operation."""
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommit)
            self.offsets.replay(key, value)
            if value is not None:
                self._group_of_offsets(key.group_id)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadata)
            self._replay_classic(key.group_id, value)
        elif isinstance(key, ShareGroupKey):
            from headrace.coordination.groups import share

            share.replay(self, key, value)
        elif isinstance(key, StreamsKey):
            from headrace.coordination.groups.streams import streams_group

            streams_group.replay(self, key, value)
        else:
            from headrace.coordination.groups import consumer

            consumer.replay(self, key, value)

    def replay_pending(self, producer_id: int, key: Key, value: Value | None) -> None:
        """Apply a record of an open transaction."""
        if isinstance(key, OffsetCommitKey) and isinstance(value, OffsetCommit):
            self.offsets.replay_pending(producer_id, key, value)
            self._group_of_offsets(key.group_id)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """The marker of a producer's transaction is in the log."""
        for group_id in {key.group_id for key in self.offsets.end_transaction(producer_id, commit)}:
            self._forget_if_void(group_id)

    def _group_of_offsets(self, group_id: str) -> None:
        if group_id not in self.groups:
            # Offsets of consumers that assign partitions themselves create a group without members.
            self._new_classic(group_id)

    def _replay_classic(self, group_id: str, value: GroupMetadata | None) -> None:
        group = self.groups.get(group_id)
        if value is None:
            if isinstance(group, ClassicGroup):
                del self.groups[group_id]
            return
        if not isinstance(group, ClassicGroup):
            group = self._new_classic(group_id)
        group.replay(value)

    def _new_classic(self, group_id: str) -> ClassicGroup:
        group = self.groups[group_id] = ClassicGroup(group_id, self.limits, self.wall)
        return group

    def loaded(self, now_ms: int) -> Outcome:
        """The log has been read: begin the sessions of members."""
        outcome = Outcome()
        for group in list(self.groups.values()):
            outcome.merge(group.loaded(now_ms))
        return outcome

    def withdraw(self, error: ErrorCode) -> list[AnyReply]:
        """Answer all waiting requests: this broker no longer leads the shard."""
        return [reply for group in self.groups.values() for reply in group.withdraw(error)]

    def expire(self, key: tuple[str, ...], now_ms: int) -> Outcome:
        """A timer of one of the groups is due."""
        group = self.groups.get(key[1])
        if group is None or group.kind != key[0]:
            return Outcome()
        outcome = group.expire(key, now_ms)
        self._forget_if_void(key[1])
        return outcome

    def topics_changed(
        self, image: Image, changed: frozenset[str], gone: frozenset[str], now_ms: int
    ) -> Outcome:
        """These topics were created, changed or deleted: offsets of those in `gone` are deleted."""
        self.image = image
        outcome = Outcome(records=self.offsets.forget_topics(gone))
        if any(group.kind == CONSUMER for group in self.groups.values()):
            from headrace.coordination.groups import consumer

            outcome.merge(consumer.topics_changed(self, changed, now_ms))
        if gone and any(group.kind == SHARE for group in self.groups.values()):
            from headrace.coordination.groups import share

            outcome.merge(share.topics_changed(self))
        if any(group.kind == STREAMS for group in self.groups.values()):
            from headrace.coordination.groups.streams import streams_group

            streams_group.topics_changed(self, changed)
        return outcome

    def expire_offsets(self) -> Outcome:
        """Delete expired offsets, and empty groups without offsets."""
        outcome = Outcome()
        for group_id, group in self.groups.items():
            retained_from = (
                group.retention_from if isinstance(group, ClassicGroup) else _since_the_commit
            )
            expired, remain = self.offsets.expired(
                group_id, group.subscribes_to, retained_from, self.wall.ms
            )
            outcome.records += expired
            if group.is_empty() and not remain and group.kind != SHARE:
                outcome.records += group.tombstones()
        return outcome

    # ----------------------------------------------------------------------- the classic protocol

    def join(self, join: Join, token: Token[Joined], new_member_id: str, now_ms: int) -> Outcome:
        """JoinGroup; replies with Joined when the generation begins."""
        if not join.group_id:
            return answer(token, Joined(ErrorCode.INVALID_GROUP_ID, join.member_id))
        if not self.limits.session_allowed(join.session_timeout_ms):
            return answer(token, Joined(ErrorCode.INVALID_SESSION_TIMEOUT, join.member_id))
        group = self.groups.get(join.group_id)
        if group is None:
            if join.member_id:
                return answer(token, Joined(ErrorCode.UNKNOWN_MEMBER_ID, join.member_id))
            group = self._new_classic(join.group_id)
        outcome = group.classic.join(join, token, new_member_id, now_ms)
        self._forget_if_void(join.group_id)
        return outcome

    def sync(self, sync: Sync, token: Token[Synced], now_ms: int) -> Outcome:
        """SyncGroup; replies with Synced, once the leader has assigned."""
        if not sync.group_id:
            return answer(token, Synced(ErrorCode.INVALID_GROUP_ID))
        group = self.groups.get(sync.group_id)
        if group is None:
            return answer(token, Synced(ErrorCode.UNKNOWN_MEMBER_ID))
        return group.classic.sync(sync, token, now_ms)

    def heartbeat(self, beat: Heartbeat, token: Token[ErrorCode], now_ms: int) -> Outcome:
        """Heartbeat; replies with an ErrorCode."""
        if not beat.group_id:
            return answer(token, ErrorCode.INVALID_GROUP_ID)
        group = self.groups.get(beat.group_id)
        if group is None:
            return answer(token, ErrorCode.UNKNOWN_MEMBER_ID)
        return group.classic.heartbeat(beat, token, now_ms)

    def leave(
        self, group_id: str, leavers: Sequence[Leaver], token: Token[tuple[Left, ...]], now_ms: int
    ) -> Outcome:
        """LeaveGroup; replies with a Left for each."""
        if not group_id:
            return answer(token, KafkaError(ErrorCode.INVALID_GROUP_ID))
        group = self.groups.get(group_id)
        if group is None:
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            left = tuple(Left(one.member_id, one.instance_id, unknown) for one in leavers)
            return answer(token, left)
        outcome = group.classic.leave(leavers, token, now_ms)
        self._forget_if_void(group_id)
        return outcome

    def _forget_if_void(self, group_id: str) -> None:
        """Drop a group that has no members, no offsets and no record."""
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup) and group.is_void() and not self.offsets.has(group_id):
            del self.groups[group_id]

    # ---------------------------------------------------------------------------- administration

    def delete(self, group_id: str, token: Token[ErrorCode]) -> Outcome:
        """DeleteGroups, for one group; replies with an ErrorCode."""
        group = self.groups.get(group_id)
        if group is None:
            return answer(token, ErrorCode.GROUP_ID_NOT_FOUND)
        if not group.is_empty():
            return answer(token, ErrorCode.NON_EMPTY_GROUP)
        outcome = answer(token, ErrorCode.NONE)
        outcome.records = self.offsets.forget_group(group_id) + group.tombstones()
        return outcome

    def classic(self, group_id: str) -> ClassicGroup:
        """The group, for DescribeGroups; GROUP_ID_NOT_FOUND if there is no classic one."""
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            why = "not found" if group is None else f"is not a {CLASSIC} group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {why}.")
        return group

    def listed(self, states: frozenset[str], kinds: frozenset[str]) -> list[Listed]:
        """ListGroups: the groups in these states and of these kinds, all if none are given.

        Both are in lower case.
        """
        return [
            Listed(group_id, group.protocol_type, group.state, group.kind)
            for group_id, group in self.groups.items()
            if (not states or group.state.lower() in states) and (not kinds or group.kind in kinds)
        ]

    # ----------------------------------------------------------------------------------- offsets

    def commit(
        self, group_id: str, who: Committer, offsets: Sequence[OffsetToCommit], now_ms: int
    ) -> Outcome:
        """OffsetCommit, without a reply; raises KafkaError if `who` may not commit."""
        group = self.groups.get(group_id)
        sessions: list[Timer] = []
        if group is not None:
            sessions = group.check_commit(who, now_ms, offsets)
        elif who.generation >= 0:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND
                if who.version >= GROUP_ID_NOT_FOUND_FROM
                else ErrorCode.ILLEGAL_GENERATION
            )
        records = self.offsets.commit(group_id, offsets, self.wall.ms)
        return Outcome(records, sessions=sessions)

    def commit_in_transaction(
        self,
        group_id: str,
        who: Committer,
        offsets: Sequence[OffsetToCommit],
        producer: tuple[int, int],
        now_ms: int,
    ) -> Outcome:
        """TxnOffsetCommit, without a reply; raises KafkaError if `who` may not commit."""
        group = self.groups.get(group_id)
        sessions: list[Timer] = []
        if group is None:
            if who.generation >= 0:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif who.generation >= 0 or who.member_id or who.instance_id is not None:
            # Older versions of the request have no member id.
            sessions = group.check_commit(who, now_ms, offsets)
        records = self.offsets.commit(group_id, offsets, self.wall.ms)
        return Outcome(records, sessions=sessions, producer=producer)

    def fetch(
        self, group_id: str, member_id: str | None, epoch: int
    ) -> Mapping[str, Mapping[int, OffsetCommit]]:
        """OffsetFetch: all offsets of a group by topic and partition; nothing if there is none."""
        group = self.groups.get(group_id)
        if group is None:
            return {}
        group.check_fetch(member_id, epoch)
        return self.offsets.of(group_id)

    def delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition],
        token: Token[tuple[ErrorCode, ...]],
    ) -> Outcome:
        """OffsetDelete; replies with an ErrorCode for each partition."""
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        known = group.kind == STREAMS or group.protocol_type == CONSUMER_PROTOCOL
        if not group.is_empty() and not known:
            # The subscriptions of such members are unknown.
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        outcome = Outcome()
        results: list[ErrorCode] = []
        for partition in partitions:
            if group.subscribes_to(partition.topic):
                results.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            results.append(ErrorCode.NONE)
            outcome.records += self.offsets.forget(group_id, partition)
        outcome.replies.append(Reply(token, tuple(results)))
        return outcome


def _since_the_commit(commit_ms: int) -> int | None:
    return commit_ms
