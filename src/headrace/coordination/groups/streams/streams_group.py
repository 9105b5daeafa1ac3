"""A streams group (KIP-1071): members are threads of a Kafka Streams application.

The first member sends the topology. The broker computes partition counts, has internal topics
created, and assigns tasks; members reconcile as those of consumer groups do (`groups/consumer.py`).
A group whose topics are missing or wrongly partitioned is not ready: its members have no tasks, and
the response to each heartbeat tells why.

The persistent state is in `streams_state.py`, changes to it in `streams_change.py`. As in Kafka
4.3, there are no static members, no warm-up tasks and no changes of the topology.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from headrace.cluster.image import Image
from headrace.coordination.groups import migration
from headrace.coordination.groups.classic import ClassicGroup
from headrace.coordination.groups.classic_limits import ClassicLimits
from headrace.coordination.groups.group import (
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
from headrace.coordination.groups.streams.endpoints import (
    EndpointPartitions,
    partitions_by_endpoint,
)
from headrace.coordination.groups.streams.streams_change import (
    INITIAL,
    REBALANCE,
    SESSION,
    StreamsChange,
)
from headrace.coordination.groups.streams.streams_member import (
    JOINING,
    LEAVING,
    StreamsMember,
    check_epoch,
)
from headrace.coordination.groups.streams.streams_state import StreamsState
from headrace.coordination.groups.streams.tasks import NO_TASKS, TaskId, TaskSets
from headrace.coordination.groups.streams.topic_setup import (
    ASSIGNMENT_DELAYED,
    SHUTDOWN_APPLICATION,
    STALE_TOPOLOGY,
    ConfiguredTopology,
    HeartbeatStatus,
    configure,
)
from headrace.coordination.groups.streams.topology import InternalTopicSpec, StreamsTopology
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
from headrace.coordination.streams_records import (
    StreamsGroupMetadata,
    StreamsGroupMetadataKey,
    StreamsKey,
    StreamsMemberMetadata,
    StreamsValue,
    UserEndpoint,
)
from headrace.coordination.wall_time import WallTime
from headrace.errors import ErrorCode, KafkaError
from headrace.settings import Settings, group_value
from headrace.settings.group_table import (
    STREAMS_ASSIGNMENT_INTERVAL,
    STREAMS_HEARTBEAT_INTERVAL,
    STREAMS_INITIAL_DELAY,
    STREAMS_SESSION_TIMEOUT,
    STREAMS_STANDBYS,
)

FIRST_COMMIT_WITH_EPOCH = 9
"""The first version of OffsetCommit in which the generation may be a member epoch."""


class StreamsShard(Protocol):
    """The parts of its shard that a group uses."""

    groups: dict[str, Group]
    settings: Settings
    limits: ClassicLimits
    image: Image
    wall: WallTime


@dataclass(frozen=True, slots=True)
class StreamsHeartbeat:
    """A StreamsGroupHeartbeat; None for fields that have not changed since the last one."""

    group_id: str
    member_id: str
    epoch: int
    endpoint_epoch: int
    rack_id: str | None
    rebalance_timeout_ms: int  # -1: not changed
    topology: StreamsTopology | None
    owned: TaskSets | None
    process_id: str | None
    endpoint: UserEndpoint | None
    tags: tuple[tuple[str, str], ...] | None
    shutdown: bool
    client_id: str
    client_host: str

    def updated(self, known: StreamsMemberMetadata) -> StreamsMemberMetadata:
        """The metadata of the member after this heartbeat."""
        return StreamsMemberMetadata(
            rack_id=known.rack_id if self.rack_id is None else self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=known.rebalance_timeout_ms
            if self.rebalance_timeout_ms == -1
            else self.rebalance_timeout_ms,
            topology_epoch=known.topology_epoch if self.topology is None else self.topology.epoch,
            process_id=known.process_id if self.process_id is None else self.process_id,
            endpoint=known.endpoint if self.endpoint is None else self.endpoint,
            tags=known.tags if self.tags is None else tuple(sorted(self.tags)),
        )


@dataclass(frozen=True, slots=True)
class StreamsHeartbeatReply:
    """The response to a heartbeat; `tasks` and `endpoints` are None if they have not changed."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    tasks: TaskSets | None = None
    status: tuple[HeartbeatStatus, ...] = ()
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointPartitions, ...] | None = None
    missing: tuple[InternalTopicSpec, ...] = ()
    """Internal topics that the caller creates."""


@dataclass(slots=True)
class _Transient:
    """What a restart may forget."""

    delaying: bool = False
    """Whether a new group waits for more members before its first assignment."""
    shutdown_by: str | None = None
    """The member that has requested the shutdown of the application."""
    endpoint_epoch: int = 0
    stale: bool = True
    """Whether topics may have changed since `configured` was computed."""
    metadata_hash: int = 0
    configured: ConfiguredTopology | None = None

    def request_shutdown(self, member_id: str) -> None:
        """The first request counts."""
        if self.shutdown_by is None:
            self.shutdown_by = member_id


class StreamsGroup:
    """One group."""

    kind = STREAMS
    protocol_type = STREAMS

    def __init__(self, group_id: str, shard: StreamsShard) -> None:
        self.group_id = group_id
        self.shard = shard
        self.persistent = StreamsState(group_id)
        self.transient = _Transient()
        self.classic = _ClassicRequests(self)

    # ------------------------------------------------------------------------------ questions

    @property
    def state(self) -> str:
        """Empty, NotReady, Assigning, Reconciling or Stable."""
        return self.persistent.state()

    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.persistent.members

    def subscribes_to(self, topic: str) -> bool:
        """Whether its tasks read this topic."""
        topology = self.persistent.topology
        if topology is None or self.is_empty():
            return False
        return topology.reader_of(topic) is not None

    def described_topology(self) -> StreamsTopology | None:
        """The topology, with partition counts if the group is ready."""
        topology = self.persistent.topology
        if topology is None:
            return None
        configured = configure(topology, self._existing)
        if not configured.is_ready:
            return topology
        return replace(
            topology, subtopologies=tuple(one.spec for one in configured.subtopologies.values())
        )

    def check_commit(
        self, who: Committer, _now_ms: int, offsets: Sequence[OffsetToCommit] = ()
    ) -> list[Timer]:
        """Raise KafkaError unless `who` may commit these offsets.

        A commit with an older epoch is accepted for tasks that the member has had since then.
        """
        if who.generation < 0 and self.is_empty():
            return []
        member = self.persistent.member(who.member_id)
        if who.version < FIRST_COMMIT_WITH_EPOCH:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"OffsetCommit version {FIRST_COMMIT_WITH_EPOCH} or above must be used by members "
                "using the streams group protocol",
            )
        if who.generation > member.epoch:
            raise _stale(who.generation, member.epoch)
        if who.generation < member.epoch:
            _check_older_commit(self.persistent.topology, member, who.generation, offsets)
        return []

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise KafkaError unless this member may read offsets."""
        if member_id is None and epoch < 0:
            return
        member = self.persistent.member(member_id or "")
        if epoch != member.epoch:
            raise _stale(epoch, member.epoch)

    def tombstones(self) -> list[Record]:
        """The records that delete the group, without its offsets."""
        return [*self.persistent.tombstones()]

    def _existing(self, topic: str) -> int | None:
        found = self.shard.image.topics.get(topic)
        return None if found is None else len(found.partitions)

    def _number(self, name: str) -> int:
        """A config of this group; the broker's setting if the group has none."""
        configs = self.shard.image.group_configs.get(self.group_id, {})
        value = group_value(self.shard.settings, configs, name)
        assert isinstance(value, int), name
        return value

    # ------------------------------------------------------------------------- life of a group

    def loaded(self, now_ms: int) -> Outcome:
        """The log has been read: begin the sessions of members."""
        self.persistent.loaded()
        change = StreamsChange(self.persistent)
        for member in self.persistent.members.values():
            change.outcome.timers.append(self._session_timer(member.id, now_ms))
            if member.is_revoking:
                due = now_ms + member.metadata.rebalance_timeout_ms
                change.timer(due, REBALANCE, member.id)
        return change.outcome

    def withdraw(self, _error: ErrorCode) -> list[AnyReply]:
        """No request waits here."""
        return []

    def expire(self, key: tuple[str, ...], _now_ms: int) -> Outcome:
        """A session or a rebalance has timed out, or the initial delay has passed."""
        if key[2] == INITIAL:
            return self._end_initial_delay()
        member = self.persistent.members.get(key[3])
        if member is None or (key[2] == REBALANCE and not member.is_revoking):
            return Outcome()
        return self._fence(member)

    def topics_changed(self, changed: frozenset[str]) -> None:
        """Topics were created, changed or deleted: the next heartbeat looks at them again."""
        topology = self.persistent.topology
        if topology is not None and not topology.required_topics().isdisjoint(changed):
            self.transient.stale = True

    def _end_initial_delay(self) -> Outcome:
        change = StreamsChange(self.persistent)
        topology = self.persistent.topology
        if not self.is_empty() and topology is not None and change.needs_target():
            configured, _ = self._configured(topology)
            change.retarget(configured, self._number(STREAMS_STANDBYS), self.shard.wall.ms)
        change.outcome.effects.append(partial(setattr, self.transient, "delaying", False))
        return change.outcome

    def _session_timer(self, member_id: str, now_ms: int) -> Timer:
        due = now_ms + self._number(STREAMS_SESSION_TIMEOUT)
        return Timer((STREAMS, self.group_id, SESSION, member_id), due)

    def _fence(self, member: StreamsMember) -> Outcome:
        """Remove a member; the others get its tasks."""
        change = StreamsChange(self.persistent)
        change.remove(member.id)
        if change.is_empty:
            change.outcome.effects.append(partial(setattr, self.transient, "shutdown_by", None))
        return change.outcome

    # ----------------------------------------------------------------------------- heartbeats

    def depart(self, beat: StreamsHeartbeat, token: Token[StreamsHeartbeatReply]) -> Outcome:
        """A heartbeat of a member that leaves."""
        member = self.persistent.member(beat.member_id)
        outcome = self._fence(member)
        if beat.shutdown and len(self.persistent.members) > 1:
            outcome.effects.append(partial(self.transient.request_shutdown, member.id))
        return outcome.merge(answer(token, StreamsHeartbeatReply(member.id, beat.epoch)))

    def beat(
        self, beat: StreamsHeartbeat, token: Token[StreamsHeartbeatReply], now_ms: int
    ) -> Outcome:
        """A heartbeat of a member that joins or stays."""
        change = StreamsChange(self.persistent)
        known = self._find(beat)
        member = replace(known, metadata=beat.updated(known.metadata))
        changed = change.put(member)
        topology = change.take_topology(beat.topology)
        status = _stale_topology(member, topology)
        configured = self._prepare(beat, topology, change, changed)
        delayed = self._retarget(configured, change, now_ms)
        if delayed is not None:
            status.append(HeartbeatStatus(ASSIGNMENT_DELAYED, delayed))
        waits = delayed == _INITIAL_DELAY
        after = change.move(member, beat.owned, NO_TASKS if waits else None)
        self._set_timers(change, member, after, now_ms)
        told = beat.epoch == JOINING or after.current.assigned != known.current.assigned
        endpoint_epoch = self.transient.endpoint_epoch
        if told and after.metadata.endpoint is not None:
            endpoint_epoch += 1
            change.outcome.effects.append(
                partial(setattr, self.transient, "endpoint_epoch", endpoint_epoch)
            )
        if beat.shutdown:
            change.outcome.effects.append(partial(self.transient.request_shutdown, after.id))
        if configured.problem is not None:
            status.append(configured.problem)
        shutdown_by = self.transient.shutdown_by or (after.id if beat.shutdown else None)
        if shutdown_by is not None:
            status.append(_shutdown(shutdown_by))
        reply = StreamsHeartbeatReply(
            after.id,
            after.epoch,
            self._number(STREAMS_HEARTBEAT_INTERVAL),
            after.current.assigned if told else None,
            tuple(status),
            endpoint_epoch,
            self._endpoints(after, configured) if endpoint_epoch != beat.endpoint_epoch else None,
            configured.missing,
        )
        return change.outcome.merge(answer(token, reply))

    def _find(self, beat: StreamsHeartbeat) -> StreamsMember:
        """The member that sent a heartbeat."""
        state = self.persistent
        if beat.epoch != JOINING:
            found = state.member(beat.member_id)
            check_epoch(found, beat.epoch, beat.owned)
            return found
        known = state.members.get(beat.member_id)
        if known is not None:
            return known
        most = self.shard.settings.integer("group.streams.max.size")
        if len(state.members) >= most:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The streams group has reached its maximum capacity of {most} members.",
            )
        return StreamsMember(beat.member_id, StreamsMemberMetadata())

    def _prepare(
        self,
        beat: StreamsHeartbeat,
        topology: StreamsTopology,
        change: StreamsChange,
        changed: bool,
    ) -> ConfiguredTopology:
        """Configure the topology, and increase the group epoch if anything has changed."""
        configured, metadata_hash = self._configured(topology)
        if configured.is_ready and beat.owned is not None:
            for tasks in (beat.owned.active, beat.owned.standby, beat.owned.warmup):
                configured.check_tasks(tasks)
        old = self.persistent.metadata
        new = StreamsGroupMetadata(
            old.epoch,
            metadata_hash,
            topology.epoch if configured.is_ready else -1,
            (("num.standby.replicas", str(self._number(STREAMS_STANDBYS))),),
        )
        if changed or new != old:
            change.bump(replace(new, epoch=old.epoch + 1))
        return configured

    def _configured(self, topology: StreamsTopology) -> tuple[ConfiguredTopology, int]:
        """The topics of the topology as they are now, and a hash of them."""
        cache = self.transient
        if cache.stale or cache.configured is None:
            cache.metadata_hash = _topics_hash(topology.required_topics(), self.shard.image)
            cache.configured = configure(topology, self._existing)
            cache.stale = False
        return cache.configured, cache.metadata_hash

    def _retarget(
        self, configured: ConfiguredTopology, change: StreamsChange, now_ms: int
    ) -> str | None:
        """Make a new target if needed; if it has to wait, the reason."""
        if self.transient.delaying:
            return _INITIAL_DELAY
        delay_ms = self._number(STREAMS_INITIAL_DELAY)
        if self.is_empty() and delay_ms > 0:
            change.timer(now_ms + delay_ms, INITIAL)
            change.outcome.effects.append(partial(setattr, self.transient, "delaying", True))
            return _INITIAL_DELAY
        if not change.needs_target():
            return None
        wall_ms = self.shard.wall.ms
        made_ms = self.persistent.target.timestamp_ms
        passed_ms = wall_ms - made_ms
        if made_ms and 0 <= passed_ms < self._number(STREAMS_ASSIGNMENT_INTERVAL):
            return "Assignment delayed due to the configured assignment interval."
        change.retarget(configured, self._number(STREAMS_STANDBYS), wall_ms)
        return None

    def _set_timers(
        self, change: StreamsChange, before: StreamsMember, after: StreamsMember, now_ms: int
    ) -> None:
        out = change.outcome
        is_new = after.id not in self.persistent.members
        (out.timers if is_new else out.sessions).append(self._session_timer(after.id, now_ms))
        if after.current != before.current:
            due = now_ms + after.metadata.rebalance_timeout_ms
            change.timer(due if after.is_revoking else None, REBALANCE, after.id)

    def _endpoints(
        self, member: StreamsMember, configured: ConfiguredTopology
    ) -> tuple[EndpointPartitions, ...]:
        members = {**self.persistent.members, member.id: member}
        return partitions_by_endpoint(members.values(), configured, self._existing)


_INITIAL_DELAY = "Assignment delayed due to the configured initial rebalance delay."


def _stale_topology(member: StreamsMember, topology: StreamsTopology) -> list[HeartbeatStatus]:
    mine = member.metadata.topology_epoch
    if mine >= topology.epoch:
        return []
    detail = (
        f"The member's topology epoch {mine} is behind the group's topology epoch {topology.epoch}."
    )
    return [HeartbeatStatus(STALE_TOPOLOGY, detail)]


def _shutdown(member_id: str) -> HeartbeatStatus:
    return HeartbeatStatus(
        SHUTDOWN_APPLICATION,
        f"Streams group member {member_id} encountered a fatal error and requested a shutdown for "
        "the entire application.",
    )


def _check_older_commit(
    topology: StreamsTopology | None,
    member: StreamsMember,
    epoch: int,
    offsets: Sequence[OffsetToCommit],
) -> None:
    for one in offsets:
        reader = None if topology is None else topology.reader_of(one.topic)
        since = member.current.epochs.get(TaskId(reader or "", one.partition))
        if reader is None or since is None or epoch < since:
            raise _stale(epoch, member.epoch)


def _stale(received: int, expected: int) -> KafkaError:
    return KafkaError(
        ErrorCode.STALE_MEMBER_EPOCH,
        f"The received member epoch {received} does not match the expected member epoch "
        f"{expected}.",
    )


def _topics_hash(names: Iterable[str], image: Image) -> int:
    """A hash of the existing topics and their partition counts; 0 without topics."""
    found = [image.topics[name] for name in sorted(names) if name in image.topics]
    if not found:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for topic in found:
        digest.update(topic.id.bytes)
        digest.update(len(topic.partitions).to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)


class _ClassicRequests:
    """Requests of the classic protocol: an empty group becomes a classic one."""

    def __init__(self, group: StreamsGroup) -> None:
        self._group = group

    def join(self, join: Join, token: Token[Joined], new_member_id: str, now_ms: int) -> Outcome:
        """JoinGroup."""
        if self._group.is_empty() and not join.member_id:
            return migration.restart_as_classic(self._group, join, token, new_member_id, now_ms)
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


# ------------------------------------------------------------------------ groups of a shard


def heartbeat(
    shard: StreamsShard, beat: StreamsHeartbeat, token: Token[StreamsHeartbeatReply], now_ms: int
) -> Outcome:
    """StreamsGroupHeartbeat; creates the group if needed, also from an empty classic group."""
    found = shard.groups.get(beat.group_id)
    if isinstance(found, StreamsGroup):
        if beat.epoch == LEAVING:
            return found.depart(beat, token)
        return found.beat(beat, token, now_ms)
    replaces = isinstance(found, ClassicGroup) and found.is_empty()
    if found is None and beat.epoch != JOINING:
        name = "Group" if beat.epoch == LEAVING else "Streams group"
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{name} {beat.group_id} not found.")
    if beat.epoch != JOINING or not (found is None or replaces):
        why = f"Group {beat.group_id} is not a {STREAMS} group."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, why)
    group = StreamsGroup(beat.group_id, shard)
    outcome = group.beat(beat, token, now_ms)
    if found is not None:
        outcome.records[:0] = found.tombstones()
    # Replaying the records creates the group that remains.
    outcome.effects.append(partial(_adopt, shard, group))
    return outcome


def _adopt(shard: StreamsShard, group: StreamsGroup) -> None:
    created = shard.groups[group.group_id]
    assert isinstance(created, StreamsGroup), "its records were replayed"
    created.transient = group.transient


def replay(shard: StreamsShard, key: Key, value: Value | None) -> None:
    """Apply a record of a streams group; the group is created and removed by records."""
    assert isinstance(key, StreamsKey), f"{key} belongs to no group"
    assert value is None or isinstance(value, StreamsValue)
    group = shard.groups.get(key.group_id)
    if not isinstance(group, StreamsGroup):
        if value is None:
            return
        group = shard.groups[key.group_id] = StreamsGroup(key.group_id, shard)
    if value is None and isinstance(key, StreamsGroupMetadataKey):
        del shard.groups[key.group_id]
        return
    group.persistent.replay(key, value)


def topics_changed(shard: StreamsShard, changed: frozenset[str]) -> None:
    """Apply created, changed or deleted topics to all groups."""
    for group in shard.groups.values():
        if isinstance(group, StreamsGroup):
            group.topics_changed(changed)
