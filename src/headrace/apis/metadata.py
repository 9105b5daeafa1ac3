"""Metadata (3), versions 0-13.

Brokers, the controller, and topics with their partitions: all of them, or those named. A topic
that is named and missing is created where the client and `auto.create.topics.enable` allow it.
Written by hand, and each topic's part is kept per version: clients ask often, topics change rarely.

v0 an empty list means all, later null does; v1 controller and racks; v2 cluster id; v4 the client
may forbid creation; v7 leader epochs; v8 authorised operations; v9 flexible; v10 topic ids; v12
topics may be asked for by id alone; v13 an error code for the whole answer.
"""

import struct
from typing import NamedTuple
from uuid import UUID

from headrace.apis.context import Services
from headrace.cluster.controller import Defaults, NewTopic, check_topic_name
from headrace.cluster.image import INTERNAL_TOPICS, Image, PartitionState, Topic
from headrace.errors import ErrorCode, KafkaError, MalformedRequest
from headrace.wire.varint import read_uvarint, uvarint

FLEXIBLE_FROM = 9
_NOT_ASKED = -(1 << 31)
_ALL_TOPIC_OPERATIONS = 0b1101_1111_1000
"""READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS."""
_ALL_CLUSTER_OPERATIONS = 0b1_1111_1010_0000
"""CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE."""
_ZERO_ID = bytes(16)

_i16 = struct.Struct(">h")
_i32 = struct.Struct(">i")


class Wanted(NamedTuple):
    """A topic that a client asks for: by name, by id, or by both."""

    name: str | None
    id: bytes


class MetadataRequest(NamedTuple):
    """The request; `topics` is None where all are meant."""

    topics: list[Wanted] | None
    may_create: bool
    cluster_operations: bool
    topic_operations: bool


def parse_metadata(
    buf: bytearray, view: memoryview, pos: int, end: int, version: int
) -> MetadataRequest:
    """The request body in [pos, end)."""
    topics: list[Wanted] | None = []
    if version >= FLEXIBLE_FROM:
        count, pos = read_uvarint(buf, pos)
        count -= 1
    else:
        count = _i32.unpack_from(buf, pos)[0]
        pos += 4
    if count < 0 or (count == 0 and version == 0):
        topics = None
    for _ in range(count):
        topic_id = _ZERO_ID
        if version >= 10:
            topic_id = bytes(view[pos : pos + 16])
            pos += 16
        if version >= FLEXIBLE_FROM:
            size, pos = read_uvarint(buf, pos)
            size -= 1
        else:
            size = _i16.unpack_from(buf, pos)[0]
            pos += 2
        if pos + max(size, 0) > end:
            raise MalformedRequest("a topic name reaches past the end of the request")
        name = None
        if size >= 0:
            name = str(view[pos : pos + size], "utf-8")
            pos += size
        if version >= FLEXIBLE_FROM:
            pos += 1
        assert topics is not None
        topics.append(Wanted(name, topic_id))
    flags = bytes(view[pos : min(pos + 3, end)])
    may_create = flags[0] != 0 if version >= 4 else True
    cluster_operations = 8 <= version <= 10 and flags[1] != 0
    topic_operations = version >= 8 and flags[2 if version <= 10 else 1] != 0
    return MetadataRequest(topics, may_create, cluster_operations, topic_operations)


class Metadata:
    """Answers Metadata requests from the cluster's image."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._parts: dict[tuple[str, int], tuple[Topic, bytes]] = {}
        self._all: tuple[Image, int, bytes] | None = None
        self._hearsay: tuple[Image, Image] | None = None

    def __call__(self, request: MetadataRequest, version: int) -> bytes:
        """The response body."""
        if request.topics is None:
            image = self._image()
            topics = self._all_topics(image, version, request.topic_operations)
        else:
            parts = [self._wanted(wanted, request, version) for wanted in request.topics]
            image = self._image()
            topics = _count(len(parts), version) + b"".join(parts)
        body = self._head(image, version) + topics
        if 8 <= version <= 10:
            asked = request.cluster_operations
            body += _i32.pack(_ALL_CLUSTER_OPERATIONS if asked else _NOT_ASKED)
        if version >= 13:
            body += b"\0\0"
        return body + b"\0" if version >= FLEXIBLE_FROM else body

    def _image(self) -> Image:
        """The image; from a broker that has stepped down, what others may have by now.

        It does not know who leads in its place. A client that it sent to itself again and again
        would never ask anybody else.
        """
        image = self._services.metadata.image
        if not self._services.replicas.stepped_down:
            return image
        if self._hearsay is None or self._hearsay[0] is not image:
            self._hearsay = (image, image.without_broker(self._services.node_id))
        return self._hearsay[1]

    def _head(self, image: Image, version: int) -> bytes:
        head = b"\0\0\0\0" if version >= 3 else b""
        head += _count(len(image.brokers), version)
        for broker in image.brokers.values():
            head += _i32.pack(broker.id) + _string(broker.host, version) + _i32.pack(broker.port)
            if version >= 1:
                head += _nullable(broker.rack, version)
            if version >= FLEXIBLE_FROM:
                head += b"\0"
        if version >= 2:
            head += _nullable(image.cluster_id, version)
        if version >= 1:
            head += _i32.pack(image.controller_id)
        return head

    def _all_topics(self, image: Image, version: int, operations: bool) -> bytes:
        kept = self._all
        if kept is not None and kept[0] is image and kept[1] == version and not operations:
            return kept[2]
        body = _count(len(image.topics), version) + b"".join(
            self._known(topic, version, operations) for topic in image.topics.values()
        )
        if not operations:
            self._all = (image, version, body)
        return body

    def _wanted(self, wanted: Wanted, request: MetadataRequest, version: int) -> bytes:
        name = wanted.name
        if wanted.id != _ZERO_ID:
            name = self._image().names.get(UUID(bytes=wanted.id))
            if name is None:
                return _missing(None, wanted.id, ErrorCode.UNKNOWN_TOPIC_ID, version)
        elif name is None:
            return _missing(None, wanted.id, ErrorCode.INVALID_REQUEST, version)
        topic = self._image().topics.get(name)
        if topic is None:
            try:
                topic = self._create(name, request.may_create)
            except KafkaError as error:
                return _missing(name, _ZERO_ID, error.code, version)
        return self._known(topic, version, request.topic_operations)

    def _create(self, name: str, may_create: bool) -> Topic:
        metadata = self._services.metadata
        if not may_create or not self._services.settings.boolean("auto.create.topics.enable"):
            check_topic_name(name)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        settings = self._services.settings
        defaults = Defaults(
            settings.integer("num.partitions"), settings.integer("default.replication.factor")
        )
        return metadata.create_topic(NewTopic(name), defaults)

    def _known(self, topic: Topic, version: int, operations: bool) -> bytes:
        kept = self._parts.get((topic.name, version))
        if kept is not None and kept[0] is topic:
            part = kept[1]
        else:
            part = _topic(topic, version)
            self._parts[topic.name, version] = (topic, part)
        if version < 8:
            return part
        part += _i32.pack(_ALL_TOPIC_OPERATIONS if operations else _NOT_ASKED)
        return part + b"\0" if version >= FLEXIBLE_FROM else part


def _topic(topic: Topic, version: int) -> bytes:
    """A topic and its partitions, all but the authorised operations at its end."""
    parts = [b"\0\0", _string(topic.name, version)]
    if version >= 10:
        parts.append(topic.id.bytes)
    if version >= 1:
        parts.append(b"\x01" if topic.name in INTERNAL_TOPICS else b"\0")
    parts.append(_count(len(topic.partitions), version))
    same: dict[PartitionState, bytes] = {}
    for index, state in enumerate(topic.partitions):
        tail = same.get(state)
        if tail is None:
            tail = same[state] = _partition_tail(state, version)
        parts += (b"\0\0" if state.leader >= 0 else b"\0\x05", _i32.pack(index), tail)
    return b"".join(parts)


def _partition_tail(state: PartitionState, version: int) -> bytes:
    tail = _i32.pack(state.leader)
    if version >= 7:
        tail += _i32.pack(state.leader_epoch)
    for brokers in (state.replicas, state.isr):
        tail += _count(len(brokers), version) + b"".join(map(_i32.pack, brokers))
    if version >= 5:
        tail += _count(0, version)
    return tail + b"\0" if version >= FLEXIBLE_FROM else tail


def _missing(name: str | None, topic_id: bytes, error: ErrorCode, version: int) -> bytes:
    part = _i16.pack(error)
    part += _nullable(name, version) if version >= 12 else _string(name or "", version)
    if version >= 10:
        part += topic_id
    if version >= 1:
        part += b"\0"
    part += _count(0, version)
    if version >= 8:
        part += _i32.pack(_NOT_ASKED)
    return part + b"\0" if version >= FLEXIBLE_FROM else part


def _count(count: int, version: int) -> bytes:
    return uvarint(count + 1) if version >= FLEXIBLE_FROM else _i32.pack(count)


def _string(text: str, version: int) -> bytes:
    raw = text.encode()
    return (uvarint(len(raw) + 1) if version >= FLEXIBLE_FROM else _i16.pack(len(raw))) + raw


def _nullable(text: str | None, version: int) -> bytes:
    if text is None:
        return b"\0" if version >= FLEXIBLE_FROM else b"\xff\xff"
    return _string(text, version)


def refuse_metadata(request: MetadataRequest, error: ErrorCode, version: int) -> bytes:
    """An answer without brokers, in which every topic has the same error."""
    wanted = request.topics or []
    body = b"\0\0\0\0" if version >= 3 else b""
    body += _count(0, version)
    if version >= 2:
        body += _nullable(None, version)
    if version >= 1:
        body += _i32.pack(-1)
    body += _count(len(wanted), version)
    body += b"".join(_missing(topic.name, topic.id, error, version) for topic in wanted)
    if 8 <= version <= 10:
        body += _i32.pack(_NOT_ASKED)
    if version >= 13:
        body += b"\0\0"
    return body + b"\0" if version >= FLEXIBLE_FROM else body
