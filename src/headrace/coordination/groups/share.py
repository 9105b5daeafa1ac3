"""A share group (KIP-932): members share the records of partitions.

A member sends heartbeats as in a consumer group, but there is nothing to reconcile: it gets its
target at once, because a partition may have several members. A partition is assigned when its state
is initialized in the share coordinator, which the handler of the heartbeat does
(`apis/shares/share_group_heartbeat.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from headrace.cluster.image import Image
from headrace.coordination.consumer_records import NOTHING, Assignment
from headrace.coordination.groups.group import (
    SHARE,
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
from headrace.coordination.groups.simple_assignor import simple
from headrace.coordination.offsets import OffsetToCommit
from headrace.coordination.outcome import (
    AnyReply,
    Outcome,
    Record,
    Reply,
    Timer,
    Token,
    Value,
    answer,
)
from headrace.coordination.share_group_records import (
    InitializedTopic,
    ShareCurrent,
    ShareCurrentKey,
    ShareGroupKey,
    ShareGroupMetadata,
    ShareGroupMetadataKey,
    ShareInitialized,
    ShareInitializedKey,
    ShareMemberKey,
    ShareMemberMetadata,
    ShareTarget,
    ShareTargetKey,
    ShareTargetMetadata,
    ShareTargetMetadataKey,
    group_tombstones,
    member_tombstones,
)
from headrace.errors import ErrorCode, KafkaError
from headrace.settings import Settings, group_value

JOINING, LEAVING = 0, -1
ASSIGNOR = "simple"
_SESSION = "session"
_INITIALIZE_AGAIN_MS = 10_000
"""How long after the last attempt a partition is initialized again."""


class ShareShard(Protocol):
    """The parts of its shard that a group uses."""

    groups: dict[str, Group]
    settings: Settings
    image: Image


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """A ShareGroupHeartbeat; None for fields that have not changed since the last one."""

    group_id: str
    member_id: str
    epoch: int
    rack_id: str | None
    topics: tuple[str, ...] | None
    client_id: str
    client_host: str

    def updated(self, known: ShareMemberMetadata | None) -> ShareMemberMetadata:
        """The metadata of the member after this heartbeat."""
        topics = None if self.topics is None else tuple(sorted(set(self.topics)))
        if known is None:
            return ShareMemberMetadata(self.rack_id, self.client_id, self.client_host, topics or ())
        return ShareMemberMetadata(
            known.rack_id if self.rack_id is None else self.rack_id,
            self.client_id,
            self.client_host,
            known.topics if topics is None else topics,
        )


@dataclass(frozen=True, slots=True)
class ShareHeartbeatReply:
    """The response to a heartbeat; `assigned` is None if it has not changed."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assigned: Assignment | None = None
    uninitialized: Assignment = field(default_factory=dict)
    """Partitions whose state has to be initialized before they are assigned."""
    group_epoch: int = 0


_NEW = ShareCurrent(JOINING, -1)
"""The epoch of a new member."""


class ShareGroup:
    """One group."""

    kind = SHARE
    protocol_type = SHARE

    def __init__(self, group_id: str, shard: ShareShard) -> None:
        self.group_id = group_id
        self.shard = shard
        self.classic = NoClassicMembers()
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.members: dict[str, ShareMemberMetadata] = {}
        self.targets: dict[str, Assignment] = {}
        self.currents: dict[str, ShareCurrent] = {}
        """Targets and current assignments may be read from the log before their members."""
        self.ready = InitializedPartitions()

    # ------------------------------------------------------------------------------ questions

    @property
    def state(self) -> str:
        """Empty or Stable."""
        return "Stable" if self.members else "Empty"

    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.members

    def subscribes_to(self, topic: str) -> bool:
        """Whether a member reads this topic."""
        return topic in _topic_names(self.members)

    def check_commit(
        self, _who: Committer, _now_ms: int, _offsets: Sequence[OffsetToCommit] = ()
    ) -> list[Timer]:
        """Share groups have no committed offsets."""
        raise _not_a("consumer", self.group_id)

    def check_fetch(self, _member_id: str | None, _epoch: int) -> None:
        """Share groups have no committed offsets."""
        raise _not_a("consumer", self.group_id)

    def tombstones(self) -> list[Record]:
        """The records that delete the group."""
        return [*group_tombstones(self.group_id, self.members)]

    def current(self, member_id: str) -> ShareCurrent:
        """The epoch and the assignment of a member."""
        return self.currents.get(member_id, _NEW)

    # ------------------------------------------------------------------------- life of a group

    def loaded(self, now_ms: int) -> Outcome:
        """The log has been read: begin the sessions of members."""
        return Outcome(timers=[self._session(member, now_ms) for member in self.members])

    def withdraw(self, _error: ErrorCode) -> list[AnyReply]:
        """No request waits here."""
        return []

    def expire(self, key: tuple[str, ...], now_ms: int) -> Outcome:
        """The session of a member has timed out."""
        return self._without(key[3]) if key[3] in self.members else Outcome()

    def _session(self, member_id: str, now_ms: int) -> Timer:
        due = now_ms + self._configured_ms("share.session.timeout.ms")
        return Timer((SHARE, self.group_id, _SESSION, member_id), due)

    def _configured_ms(self, name: str) -> int:
        configs = self.shard.image.group_configs.get(self.group_id, {})
        value = group_value(self.shard.settings, configs, name)
        assert isinstance(value, int), name
        return value

    # ----------------------------------------------------------------------------- heartbeats

    def beat(self, beat: ShareHeartbeat, token: Token[ShareHeartbeatReply], now_ms: int) -> Outcome:
        """A heartbeat of a member that joins or stays."""
        member_id = beat.member_id
        known = self.members.get(member_id)
        self._check_epoch(known, beat)
        metadata = beat.updated(known)
        members = {**self.members, member_id: metadata}
        outcome = Outcome()
        if known != metadata:
            outcome.records.append((ShareMemberKey(self.group_id, member_id), metadata))
        epoch = self._bump(
            members, outcome, always=known is None or known.topics != metadata.topics
        )
        targets = self._retarget(members, epoch, outcome)
        before = current = self.current(member_id)
        if current.epoch != epoch:
            current = ShareCurrent(epoch, before.epoch, targets.get(member_id, NOTHING))
            outcome.records.append((ShareCurrentKey(self.group_id, member_id), current))
        told = (
            beat.epoch == JOINING or beat.topics is not None or current.assigned != before.assigned
        )
        sessions = outcome.timers if known is None else outcome.sessions
        sessions.append(self._session(member_id, now_ms))
        reply = ShareHeartbeatReply(
            member_id,
            current.epoch,
            self._configured_ms("share.heartbeat.interval.ms"),
            current.assigned if told else None,
            self.ready.begin(_topic_names(members), self.shard.image, now_ms),
            epoch,
        )
        outcome.replies.append(Reply(token, reply))
        return outcome

    def _check_epoch(self, known: ShareMemberMetadata | None, beat: ShareHeartbeat) -> None:
        if beat.epoch == JOINING:
            most = self.shard.settings.integer("group.share.max.size")
            if known is None and len(self.members) >= most:
                raise KafkaError(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The share group has reached its maximum capacity of {most} members.",
                )
            return
        if known is None:
            raise _unknown_member(beat.member_id, self.group_id)
        current = self.current(beat.member_id)
        if beat.epoch not in (current.epoch, current.previous_epoch):
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The share group member has epoch {beat.epoch}, but {current.epoch} is "
                "known by the group coordinator. The member must rejoin.",
            )

    def leave(self, beat: ShareHeartbeat, token: Token[ShareHeartbeatReply]) -> Outcome:
        """A heartbeat of a member that leaves."""
        if beat.member_id not in self.members:
            raise _unknown_member(beat.member_id, self.group_id)
        left = ShareHeartbeatReply(beat.member_id, LEAVING)
        return self._without(beat.member_id).merge(answer(token, left))

    def _without(self, member_id: str) -> Outcome:
        """Remove a member."""
        outcome = Outcome(records=[*member_tombstones(self.group_id, member_id)])
        outcome.timers.append(Timer((SHARE, self.group_id, _SESSION, member_id), None))
        members = {key: one for key, one in self.members.items() if key != member_id}
        self._bump(members, outcome, always=True)
        return outcome

    def _bump(
        self, members: Mapping[str, ShareMemberMetadata], outcome: Outcome, *, always: bool
    ) -> int:
        """The group epoch, which grows if members or their topics have changed."""
        metadata_hash = self._hash(members)
        if not always and metadata_hash == self.metadata_hash:
            return self.epoch
        value = ShareGroupMetadata(self.epoch + 1, metadata_hash)
        outcome.records.append((ShareGroupMetadataKey(self.group_id), value))
        return value.epoch

    def _hash(self, members: Mapping[str, ShareMemberMetadata]) -> int:
        digest = hashlib.blake2b(digest_size=8)
        for name in sorted(_topic_names(members)):
            topic = self.shard.image.topics.get(name)
            if topic is not None:
                digest.update(topic.id.bytes + repr(sorted(self.ready.of(topic.id))).encode())
        return int.from_bytes(digest.digest(), "big", signed=True)

    def _retarget(
        self, members: Mapping[str, ShareMemberMetadata], epoch: int, outcome: Outcome
    ) -> Mapping[str, Assignment]:
        """The target of every member; a new one if the group epoch has grown."""
        if epoch == self.target_epoch:
            return self.targets
        topics = self.shard.image.topics
        targets = simple(
            {
                key: frozenset(topics[name].id for name in one.topics if name in topics)
                for key, one in members.items()
            },
            {topic_id: topic.partitions for topic_id, topic in self.ready.topics.items()},
            self.targets,
        )
        for key, target in targets.items():
            if target != self.targets.get(key):
                outcome.records.append((ShareTargetKey(self.group_id, key), ShareTarget(target)))
        key_of_epoch = ShareTargetMetadataKey(self.group_id)
        outcome.records.append((key_of_epoch, ShareTargetMetadata(epoch)))
        return targets

    # ------------------------------------------------------------------- state of partitions

    def set_initialized(self, partitions: Assignment) -> Outcome:
        """The state of these partitions is initialized: they can be assigned."""
        return self._store_initialized(self.ready.with_partitions(partitions, self.shard.image))

    def set_deleted(self, topic_ids: Sequence[UUID]) -> Outcome:
        """The state of these topics is deleted."""
        gone = set(topic_ids)
        return self._store_initialized(
            {key: one for key, one in self.ready.topics.items() if key not in gone}
        )

    def _store_initialized(self, topics: Mapping[UUID, InitializedTopic]) -> Outcome:
        if topics == self.ready.topics:
            return Outcome()
        return Outcome(records=[(ShareInitializedKey(self.group_id), ShareInitialized(topics))])

    def topics_changed(self) -> Outcome:
        """Topics were created, changed or deleted: forget the state of those that are gone."""
        there = self.shard.image.names
        return self.set_deleted([key for key in self.ready.topics if key not in there])

    # ---------------------------------------------------------------------------------- replay

    def replay(self, key: ShareGroupKey, value: Value | None) -> None:
        """Apply a record of this group."""
        match key, value:
            case ShareGroupMetadataKey(), ShareGroupMetadata():
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case ShareTargetMetadataKey(), ShareTargetMetadata():
                self.target_epoch = value.epoch
            case ShareMemberKey(), ShareMemberMetadata():
                self.members[key.member_id] = value
            case ShareMemberKey(), None:
                self.members.pop(key.member_id, None)
            case ShareTargetKey(), ShareTarget():
                self.targets[key.member_id] = value.partitions
            case ShareTargetKey(), None:
                self.targets.pop(key.member_id, None)
            case ShareCurrentKey(), ShareCurrent():
                self.currents[key.member_id] = value
            case ShareCurrentKey(), None:
                self.currents.pop(key.member_id, None)
            case ShareInitializedKey(), ShareInitialized():
                self.ready.topics = value.topics
            case ShareInitializedKey(), None:
                self.ready.topics = {}


def _topic_names(members: Mapping[str, ShareMemberMetadata]) -> set[str]:
    return {name for metadata in members.values() for name in metadata.topics}


class InitializedPartitions:
    """The partitions of a group whose state is initialized in the share coordinator."""

    __slots__ = ("_begun_ms", "topics")

    def __init__(self) -> None:
        self.topics: Mapping[UUID, InitializedTopic] = {}
        self._begun_ms: dict[tuple[UUID, int], int] = {}
        """Partitions that are being initialized, and since when."""

    def of(self, topic_id: UUID) -> frozenset[int]:
        """The partitions of a topic."""
        return self.topics.get(topic_id, _NO_TOPIC).partitions

    def begin(self, names: Iterable[str], image: Image, now_ms: int) -> Assignment:
        """Partitions of these topics without state, except those that are being initialized."""
        found: dict[UUID, frozenset[int]] = {}
        for name in names:
            topic = image.topics.get(name)
            if topic is None or len(self.of(topic.id)) == len(topic.partitions):
                continue
            lacking = frozenset(
                index
                for index in range(len(topic.partitions))
                if index not in self.of(topic.id) and self._is_due(topic.id, index, now_ms)
            )
            for index in lacking:
                self._begun_ms[topic.id, index] = now_ms
            if lacking:
                found[topic.id] = lacking
        return found

    def _is_due(self, topic_id: UUID, index: int, now_ms: int) -> bool:
        begun_ms = self._begun_ms.get((topic_id, index))
        return begun_ms is None or begun_ms + _INITIALIZE_AGAIN_MS <= now_ms

    def failed(self, partitions: Assignment) -> None:
        """These could not be initialized: the next heartbeat tries again."""
        for topic_id, indexes in partitions.items():
            for index in indexes:
                self._begun_ms.pop((topic_id, index), None)

    def with_partitions(
        self, partitions: Assignment, image: Image
    ) -> Mapping[UUID, InitializedTopic]:
        """The topics with more partitions that are initialized."""
        topics = dict(self.topics)
        for topic_id, indexes in partitions.items():
            if topic_id in image.names:
                known = self.of(topic_id)
                topics[topic_id] = InitializedTopic(image.names[topic_id], known | indexes)
        return topics


_NO_TOPIC = InitializedTopic("", frozenset())


class NoClassicMembers:
    """Refuses the requests of the classic protocol: its members cannot join a share group."""

    def join(self, join: Join, token: Token[Joined], _new_member_id: str, _now_ms: int) -> Outcome:
        """JoinGroup."""
        return answer(token, Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, join.member_id))

    def sync(self, _sync: Sync, token: Token[Synced], _now_ms: int) -> Outcome:
        """SyncGroup."""
        return answer(token, Synced(ErrorCode.UNKNOWN_MEMBER_ID))

    def heartbeat(self, _beat: Heartbeat, token: Token[ErrorCode], _now_ms: int) -> Outcome:
        """Heartbeat."""
        return answer(token, ErrorCode.UNKNOWN_MEMBER_ID)

    def leave(
        self, leavers: Sequence[Leaver], token: Token[tuple[Left, ...]], _now_ms: int
    ) -> Outcome:
        """LeaveGroup."""
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        return answer(token, tuple(Left(a.member_id, a.instance_id, unknown) for a in leavers))


def _unknown_member(member_id: str, group_id: str) -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}."
    )


def _not_a(kind: str, group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {kind} group.")


# ------------------------------------------------------------------------ groups of a shard


def heartbeat(
    shard: ShareShard, beat: ShareHeartbeat, token: Token[ShareHeartbeatReply], now_ms: int
) -> Outcome:
    """ShareGroupHeartbeat; creates the group if needed."""
    found = shard.groups.get(beat.group_id)
    if found is not None and not isinstance(found, ShareGroup):
        raise _not_a(SHARE, beat.group_id)
    if found is None and beat.epoch != JOINING:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {beat.group_id} not found.")
    group = found or ShareGroup(beat.group_id, shard)
    if beat.epoch == LEAVING:
        return group.leave(beat, token)
    return group.beat(beat, token, now_ms)


def find(shard: ShareShard, group_id: str) -> ShareGroup:
    """The share group; GROUP_ID_NOT_FOUND if there is none."""
    found = shard.groups.get(group_id)
    if isinstance(found, ShareGroup):
        return found
    if found is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    raise _not_a(SHARE, group_id)


def replay(shard: ShareShard, key: ShareGroupKey, value: Value | None) -> None:
    """Apply a record of a share group; the group is created and removed by records."""
    group = shard.groups.get(key.group_id)
    if not isinstance(group, ShareGroup):
        if value is None:
            return
        group = shard.groups[key.group_id] = ShareGroup(key.group_id, shard)
    if value is None and isinstance(key, ShareGroupMetadataKey):
        del shard.groups[key.group_id]
        return
    group.replay(key, value)


def topics_changed(shard: ShareShard) -> Outcome:
    """Apply created, changed or deleted topics to all groups."""
    outcome = Outcome()
    for group in list(shard.groups.values()):
        if isinstance(group, ShareGroup):
            outcome.merge(group.topics_changed())
    return outcome
