"""Records of streams groups (KIP-1071) in `__consumer_offsets`, in Kafka's own format.

A key is its type as an int16 and then its strings, each with an int16 length:

    17  group metadata        group id
    19  member metadata       group id, member id
    20  target metadata       group id
    21  target of a member    group id, member id
    22  current assignment    group id, member id
    23  topology              group id

A value is its version (0) as an int16 and then its fields in the flexible encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

from headrace.coordination.flexible_fields import FieldReader, FieldWriter
from headrace.coordination.groups.streams.tasks import (
    NO_TASKS,
    TaskId,
    TaskSets,
    by_subtopology,
    tasks_of,
)
from headrace.coordination.groups.streams.topology import (
    CopartitionGroup,
    InternalTopicSpec,
    StreamsTopology,
    Subtopology,
)
from headrace.coordination.records import UnknownRecord

# ------------------------------------------------------------------------------------- keys


@dataclass(frozen=True, slots=True)
class StreamsGroupMetadataKey:
    """Type 17: the group's epoch."""

    group_id: str

    def encode(self) -> bytes:
        return _key(17, self.group_id)


@dataclass(frozen=True, slots=True)
class StreamsMemberKey:
    """Type 19: a member."""

    group_id: str
    member_id: str

    def encode(self) -> bytes:
        return _key(19, self.group_id, self.member_id)


@dataclass(frozen=True, slots=True)
class StreamsTargetMetadataKey:
    """Type 20: the epoch of the target assignment."""

    group_id: str

    def encode(self) -> bytes:
        return _key(20, self.group_id)


@dataclass(frozen=True, slots=True)
class StreamsTargetKey:
    """Type 21: the target assignment of a member."""

    group_id: str
    member_id: str

    def encode(self) -> bytes:
        return _key(21, self.group_id, self.member_id)


@dataclass(frozen=True, slots=True)
class StreamsCurrentKey:
    """Type 22: the current assignment of a member."""

    group_id: str
    member_id: str

    def encode(self) -> bytes:
        return _key(22, self.group_id, self.member_id)


@dataclass(frozen=True, slots=True)
class StreamsTopologyKey:
    """Type 23: the topology."""

    group_id: str

    def encode(self) -> bytes:
        return _key(23, self.group_id)


StreamsKey: TypeAlias = (
    StreamsGroupMetadataKey
    | StreamsMemberKey
    | StreamsTargetMetadataKey
    | StreamsTargetKey
    | StreamsCurrentKey
    | StreamsTopologyKey
)


def _key(kind: int, *strings: str) -> bytes:
    out = FieldWriter().int16(kind)
    for text in strings:
        raw = text.encode()
        out.int16(len(raw))
        out += raw
    return bytes(out)


# ----------------------------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class StreamsGroupMetadata:
    """The group's epoch, and what it depends on.

    `metadata_hash` is a hash of the topics of the topology, `validated_epoch` is the epoch of the
    topology if all its topics exist, `configs` are the configs of the last assignment.
    """

    epoch: int
    metadata_hash: int = 0
    validated_epoch: int = -1
    configs: tuple[tuple[str, str], ...] = ()

    def encode(self) -> bytes:
        out = _value().int32(self.epoch).int64(self.metadata_hash)
        tags: dict[int, bytes] = {}
        if self.validated_epoch != -1:
            tags[0] = bytes(FieldWriter().int32(self.validated_epoch))
        if self.configs:
            tags[1] = bytes(FieldWriter().each(self.configs, _put_pair))
        return bytes(out.tags(tags))

    @classmethod
    def read(cls, source: FieldReader) -> StreamsGroupMetadata:
        epoch, metadata_hash, tags = source.int32(), source.int64(), source.tags()
        validated = FieldReader(tags[0]).int32() if 0 in tags else -1
        configs = FieldReader(tags[1]).each(_pair) if 1 in tags else ()
        return cls(epoch, metadata_hash, validated, configs)


class UserEndpoint(NamedTuple):
    """Where other instances of the application reach a member, for interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StreamsMemberMetadata:
    """A member. Kafka 4.3 has no static members: `instance_id` is None."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: UserEndpoint | None = None
    tags: tuple[tuple[str, str], ...] = ()

    def encode(self) -> bytes:
        out = _value().text(self.instance_id).text(self.rack_id)
        out.text(self.client_id).text(self.client_host)
        out.int32(self.rebalance_timeout_ms).int32(self.topology_epoch).text(self.process_id)
        if self.endpoint is None:
            out.int8(-1)
        else:
            out.int8(1).text(self.endpoint.host).uint16(self.endpoint.port).tags()
        return bytes(out.each(self.tags, _put_pair).tags())

    @classmethod
    def read(cls, source: FieldReader) -> StreamsMemberMetadata:
        return cls(
            source.nullable_text(),
            source.nullable_text(),
            source.text(),
            source.text(),
            source.int32(),
            source.int32(),
            source.text(),
            _endpoint(source),
            source.each(_pair),
        )


@dataclass(frozen=True, slots=True)
class StreamsTargetMetadata:
    """The group epoch that the target was made for, and when it was made."""

    epoch: int
    timestamp_ms: int = 0

    def encode(self) -> bytes:
        tags = {0: bytes(FieldWriter().int64(self.timestamp_ms))} if self.timestamp_ms else {}
        return bytes(_value().int32(self.epoch).tags(tags))

    @classmethod
    def read(cls, source: FieldReader) -> StreamsTargetMetadata:
        epoch, tags = source.int32(), source.tags()
        return cls(epoch, FieldReader(tags[0]).int64() if 0 in tags else 0)


@dataclass(frozen=True, slots=True)
class StreamsTarget:
    """The target assignment of a member."""

    tasks: TaskSets

    def encode(self) -> bytes:
        return bytes(_put_tasks(_value(), self.tasks).tags())

    @classmethod
    def read(cls, source: FieldReader) -> StreamsTarget:
        return cls(_tasks(source, {}, 0))


@dataclass(frozen=True, slots=True)
class StreamsCurrentAssignment:
    """The tasks of a member, those that it must revoke, and the state of its reconciliation."""

    member_epoch: int
    previous_epoch: int
    state: int
    assigned: TaskSets = NO_TASKS
    revoking: TaskSets = NO_TASKS
    epochs: Mapping[TaskId, int] = field(default_factory=dict)
    """The epoch at which each active task was assigned: older commits are refused."""

    def encode(self) -> bytes:
        out = _value().int32(self.member_epoch).int32(self.previous_epoch).int8(self.state)
        _put_tasks(out, self.assigned, self.epochs)
        return bytes(_put_tasks(out, self.revoking, self.epochs).tags())

    @classmethod
    def read(cls, source: FieldReader) -> StreamsCurrentAssignment:
        epochs: dict[TaskId, int] = {}
        member_epoch, previous, state = source.int32(), source.int32(), source.int8()
        assigned = _tasks(source, epochs, member_epoch)
        revoking = _tasks(source, epochs, member_epoch)
        return cls(member_epoch, previous, state, assigned, revoking, epochs)


@dataclass(frozen=True, slots=True)
class StreamsTopologyRecord:
    """The topology."""

    topology: StreamsTopology

    def encode(self) -> bytes:
        out = _value().int32(self.topology.epoch)
        return bytes(out.each(self.topology.subtopologies, _put_subtopology).tags())

    @classmethod
    def read(cls, source: FieldReader) -> StreamsTopologyRecord:
        return cls(StreamsTopology(source.int32(), source.each(_subtopology)))


StreamsValue: TypeAlias = (
    StreamsGroupMetadata
    | StreamsMemberMetadata
    | StreamsTargetMetadata
    | StreamsTarget
    | StreamsCurrentAssignment
    | StreamsTopologyRecord
)
StreamsRecord: TypeAlias = tuple[StreamsKey, StreamsValue | None]

_TYPES: dict[int, tuple[type[StreamsKey], int, Callable[[FieldReader], StreamsValue]]] = {
    17: (StreamsGroupMetadataKey, 1, StreamsGroupMetadata.read),
    19: (StreamsMemberKey, 2, StreamsMemberMetadata.read),
    20: (StreamsTargetMetadataKey, 1, StreamsTargetMetadata.read),
    21: (StreamsTargetKey, 2, StreamsTarget.read),
    22: (StreamsCurrentKey, 2, StreamsCurrentAssignment.read),
    23: (StreamsTopologyKey, 1, StreamsTopologyRecord.read),
}
STREAMS_KEY_TYPES = frozenset(_TYPES)
"""The int16 at the start of a key that belongs to this module."""


def decode(key: bytes, value: bytes | None) -> StreamsRecord:
    """A record of the log; UnknownRecord if its type or its value's version is unknown."""
    try:
        source = FieldReader(key)
        kind = source.int16()
        if kind not in _TYPES:
            raise UnknownRecord(f"a record of type {kind}")
        of, count, read = _TYPES[kind]
        found: StreamsKey = of(*_key_strings(key, count))
        if value is None:
            return found, None
        fields = FieldReader(value)
        version = fields.int16()
        if version != 0:
            raise UnknownRecord(f"a record of type {kind} in version {version}")
        return found, read(fields)
    except (struct.error, IndexError, ValueError) as error:
        raise UnknownRecord(f"a record of a streams group: {error}") from error


def _key_strings(key: bytes, count: int) -> list[str]:
    strings, at = [], 2
    for _ in range(count):
        size = int.from_bytes(key[at : at + 2], "big")
        strings.append(key[at + 2 : at + 2 + size].decode())
        at += 2 + size
    return strings


# ------------------------------------------------------------------------------- structures


def _value() -> FieldWriter:
    return FieldWriter().int16(0)


def _put_pair(out: FieldWriter, pair: tuple[str, str]) -> None:
    out.text(pair[0]).text(pair[1]).tags()


def _pair(source: FieldReader) -> tuple[str, str]:
    pair = source.text(), source.text()
    source.skip_tags()
    return pair


def _endpoint(source: FieldReader) -> UserEndpoint | None:
    if source.int8() != 1:
        return None
    endpoint = UserEndpoint(source.text(), source.uint16())
    source.skip_tags()
    return endpoint


def _put_tasks(
    out: FieldWriter, tasks: TaskSets, epochs: Mapping[TaskId, int] | None = None
) -> FieldWriter:
    out.each(by_subtopology(tasks.active).items(), partial(_put_task_ids, epochs=epochs))
    out.each(by_subtopology(tasks.standby).items(), _put_task_ids)
    return out.each(by_subtopology(tasks.warmup).items(), _put_task_ids)


def _put_task_ids(
    out: FieldWriter, one: tuple[str, list[int]], epochs: Mapping[TaskId, int] | None = None
) -> None:
    subtopology, partitions = one
    out.text(subtopology).each(partitions, FieldWriter.int32)
    tags: dict[int, bytes] = {}
    if epochs is not None:
        values = [epochs[task] for task in tasks_of(subtopology, partitions)]
        tags[0] = bytes(FieldWriter().each(values, FieldWriter.int32))
    out.tags(tags)


def _tasks(source: FieldReader, epochs: dict[TaskId, int], default_epoch: int) -> TaskSets:
    """Read active, standby and warm-up tasks; adds the epochs of active tasks to `epochs`."""
    roles: list[frozenset[TaskId]] = []
    for active in (True, False, False):
        found: list[TaskId] = []
        for tasks, values in source.each(_task_ids):
            found += tasks
            if active:
                # Older versions of Kafka wrote no epochs.
                known = values if len(values) == len(tasks) else (default_epoch,) * len(tasks)
                epochs.update(zip(tasks, known, strict=True))
        roles.append(frozenset(found))
    return TaskSets(*roles)


def _task_ids(source: FieldReader) -> tuple[list[TaskId], tuple[int, ...]]:
    tasks = list(tasks_of(source.text(), source.each(FieldReader.int32)))
    tags = source.tags()
    return tasks, FieldReader(tags[0]).each(FieldReader.int32) if 0 in tags else ()


def _put_internal_topic(out: FieldWriter, topic: InternalTopicSpec) -> None:
    out.text(topic.name).int32(topic.partitions).int16(topic.replication_factor)
    out.each(topic.configs, _put_pair).tags()


def _internal_topic(source: FieldReader) -> InternalTopicSpec:
    topic = InternalTopicSpec(source.text(), source.int32(), source.int16(), source.each(_pair))
    source.skip_tags()
    return topic


def _put_copartition_group(out: FieldWriter, group: CopartitionGroup) -> None:
    out.each(group.source_topics, FieldWriter.int16)
    out.each(group.source_expressions, FieldWriter.int16)
    out.each(group.repartition_source_topics, FieldWriter.int16).tags()


def _copartition_group(source: FieldReader) -> CopartitionGroup:
    group = CopartitionGroup(*(source.each(FieldReader.int16) for _ in range(3)))
    source.skip_tags()
    return group


def _put_subtopology(out: FieldWriter, one: Subtopology) -> None:
    out.text(one.id).each(one.source_topics, FieldWriter.text)
    out.each(one.source_expressions, FieldWriter.text)
    out.each(one.changelog_topics, _put_internal_topic)
    out.each(one.repartition_sink_topics, FieldWriter.text)
    out.each(one.repartition_source_topics, _put_internal_topic)
    out.each(one.copartition_groups, _put_copartition_group).tags()


def _subtopology(source: FieldReader) -> Subtopology:
    one = Subtopology(
        source.text(),
        source.each(FieldReader.text),
        source.each(FieldReader.text),
        source.each(_internal_topic),
        source.each(FieldReader.text),
        source.each(_internal_topic),
        source.each(_copartition_group),
    )
    source.skip_tags()
    return one


def streams_member_tombstones(group_id: str, member_id: str) -> list[StreamsRecord]:
    """Records that remove a member: its current and target assignments, and then itself."""
    return [
        (StreamsCurrentKey(group_id, member_id), None),
        (StreamsTargetKey(group_id, member_id), None),
        (StreamsMemberKey(group_id, member_id), None),
    ]


def streams_group_tombstones(group_id: str, member_ids: Iterable[str]) -> list[StreamsRecord]:
    """Records that remove a whole group, members first."""
    records: list[StreamsRecord] = []
    for member_id in member_ids:
        records += streams_member_tombstones(group_id, member_id)
    records.append((StreamsTargetMetadataKey(group_id), None))
    records.append((StreamsTopologyKey(group_id), None))
    records.append((StreamsGroupMetadataKey(group_id), None))
    return records
