"""Metadata (3), versions 0-13.

Brokers, the controller, and topics with their partitions: all of them, or those named. A missing
topic that is named is created if the client and `auto.create.topics.enable` permit it. Addresses
are those of the client's listener; a leader without that listener is LISTENER_NOT_FOUND (72),
before v6 LEADER_NOT_AVAILABLE (5). The encoding is written by hand, and each topic's part is cached
per version: clients send the request often, and topics change rarely.

v0 an empty list means all topics, from v1 on null does; v1 controller and racks; v2 cluster id; v4
the client may forbid creation; v7 leader epochs; v8 authorised operations; v9 flexible; v10 topic
ids; v12 topics by id alone; v13 an error code for the whole response.
"""

import struct
from collections.abc import Coroutine, Iterable
from typing import NamedTuple, TypeAlias
from uuid import UUID

from headrace.apis import operations
from headrace.apis.context import Caller, Services
from headrace.apis.hot import Answer, LongRequest
from headrace.apis.operations import NOT_ASKED
from headrace.apis.routes import METADATA
from headrace.apis.slices import Slices
from headrace.cluster.image import INTERNAL_TOPICS, NO_LEADER, Image, PartitionState, Topic
from headrace.errors import ErrorCode, KafkaError, MalformedRequest
from headrace.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from headrace.types import BrokerId
from headrace.wire.framing import frame_large_response, frame_response
from headrace.wire.steps import Steps, finish
from headrace.wire.varint import read_uvarint, uvarint

FLEXIBLE_FROM = 9
_ZERO_ID = bytes(16)
_NO_LEADER_CODE = ErrorCode.LEADER_NOT_AVAILABLE
_SMALL_BYTES = 512
_STRIDE = 64
"""Topics or partitions between two yields."""
_CREATED_AT_ONCE = 4
"""Topics that are created in one step."""
_JOINED = 2048
"""Topics in one piece of a response."""

_i16 = struct.Struct(">h")
_i32 = struct.Struct(">i")


class MetadataRequest(NamedTuple):
    """The request; `topics` is None if all are requested.

    A topic is a name, or the 16 bytes of an id; None stands for a topic without either. Duplicates
    are removed, as in Kafka.
    """

    topics: dict[str | bytes | None, None] | None
    may_create: bool
    cluster_operations: bool
    topic_operations: bool


def parse_metadata(
    buf: bytearray, view: memoryview, pos: int, end: int, version: int
) -> MetadataRequest:
    """The request body in [pos, end)."""
    return finish(_parse(buf, view, pos, end, version))


def _parse(
    buf: bytearray, view: memoryview, pos: int, end: int, version: int
) -> Steps[MetadataRequest]:
    topics: dict[str | bytes | None, None] | None = {}
    if version >= FLEXIBLE_FROM:
        count, pos = read_uvarint(buf, pos)
        count -= 1
    else:
        count = _i32.unpack_from(buf, pos)[0]
        pos += 4
    if count < 0 or (count == 0 and version == 0):
        topics = None
    for number in range(count):
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
        topics[name if topic_id == _ZERO_ID else topic_id] = None
        if number % _STRIDE == _STRIDE - 1:
            yield
    flags = bytes(view[pos : min(pos + 3, end)])
    may_create = flags[0] != 0 if version >= 4 else True
    cluster_operations = 8 <= version <= 10 and flags[1] != 0
    topic_operations = version >= 8 and flags[2 if version <= 10 else 1] != 0
    return MetadataRequest(topics, may_create, cluster_operations, topic_operations)


_Absent: TypeAlias = frozenset[BrokerId]
"""The brokers that do not have the listener of the client."""


class _Head(NamedTuple):
    image: Image
    encoded: bytes
    absent: _Absent


class MetadataHandler:
    """Answers Metadata requests from the cluster's image."""

    versions = range(14)

    def __init__(self, services: Services) -> None:
        self._services = services
        self._parts: dict[tuple[str, int, _Absent], tuple[Topic, bytes]] = {}
        self._all: tuple[Image, int, _Absent, bytes] | None = None
        self._without_this_broker: tuple[Image, Image] | None = None
        self._heads: dict[tuple[str, int], _Head] = {}

    def __call__(
        self,
        caller: Caller,
        buf: bytearray,
        view: memoryview,
        pos: int,
        end: int,
        version: int,
        correlation_id: int,
    ) -> bytes:
        """The response to a small request for topics whose parts are cached."""
        body = self._at_once(caller, buf, view, pos, end, version)
        if body is None:
            raise LongRequest(self._in_slices)
        return frame_response(correlation_id, version >= FLEXIBLE_FROM, body)

    def _in_slices(
        self, slices: Slices, caller: Caller, buf: bytearray, version: int, correlation_id: int
    ) -> Answer | Coroutine[None, None, Answer]:
        """The response to any request; a coroutine if one slice is not enough."""
        body = slices.begin(self._steps(caller, buf, version))
        if isinstance(body, list):
            return frame_response(correlation_id, version >= FLEXIBLE_FROM, b"".join(body))
        return _frame_later(body, version, correlation_id)

    def _at_once(
        self, caller: Caller, buf: bytearray, view: memoryview, pos: int, end: int, version: int
    ) -> bytes | None:
        """The response body to a small request for topics whose parts are cached, else None."""
        if end - pos > _SMALL_BYTES or caller.permissions is not None:
            return None
        request = parse_metadata(buf, view, pos, end, version)
        if request.topics is None:
            return None
        head = self._head(self._image(), version, caller.listener)
        parts = [_throttle(caller, version), head.encoded, _count(len(request.topics), version)]
        for name in request.topics:
            topic = self._find(name)
            part = None
            if topic is not None:
                part = self._kept(topic, version, _asked(caller, request, topic), head.absent)
            if part is None:
                return None
            parts.append(part)
        parts.append(_tail(caller, request, version))
        return b"".join(parts)

    def _steps(self, caller: Caller, buf: bytearray, version: int) -> Steps[list[bytes]]:
        """The pieces of the response body, in steps."""
        request = yield from _parse(buf, memoryview(buf), 0, len(buf), version)
        listener = caller.listener
        if request.topics is None:
            image = self._image()
            head = self._head(image, version, listener)
            topics = [(yield from self._all_topics(caller, image, request, version, head.absent))]
        else:
            topics = yield from self._named(caller, request.topics, request, version)
            head = self._head(self._image(), version, listener)
        return [_throttle(caller, version), head.encoded, *topics, _tail(caller, request, version)]

    def _named(
        self,
        caller: Caller,
        names: Iterable[str | bytes | None],
        request: MetadataRequest,
        version: int,
    ) -> Steps[list[bytes]]:
        """The requested topics, as an array in a few pieces."""
        absent = self._head(self._image(), version, caller.listener).absent
        forbidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        pieces: list[bytes] = []
        parts: list[bytes] = []
        missing: list[str] = []
        count = 0
        for count, name in enumerate(names, 1):
            topic = self._find(name)
            found = topic.name if topic is not None else name
            if isinstance(found, str) and not _may_describe(caller, found):
                if isinstance(name, bytes):
                    parts.append(self._missing(None, name, forbidden, version))
                else:
                    parts.append(self._missing(found, _ZERO_ID, forbidden, version))
            elif topic is not None:
                bits = _asked(caller, request, topic)
                parts.append((yield from self._known(topic, version, bits, absent)))
            elif isinstance(name, str):
                missing.append(name)
            elif name is None:
                parts.append(self._missing(None, _ZERO_ID, ErrorCode.INVALID_REQUEST, version))
            else:
                parts.append(self._missing(None, name, ErrorCode.UNKNOWN_TOPIC_ID, version))
            if len(missing) == _CREATED_AT_ONCE:
                parts += yield from self._create(caller, missing, request, version, absent)
                missing.clear()
                yield
            elif not count % _STRIDE:
                yield
            if len(parts) > _JOINED:
                pieces.append(b"".join(parts))
                parts.clear()
        parts += yield from self._create(caller, missing, request, version, absent)
        return [_count(count, version), *pieces, b"".join(parts)]

    def _missing(self, name: str | None, topic_id: bytes, error: ErrorCode, version: int) -> bytes:
        """A topic that is not described."""
        self._services.errors.add(METADATA.key, error)
        return _missing(name, topic_id, error, version)

    def _find(self, name: str | bytes | None) -> Topic | None:
        image = self._image()
        if isinstance(name, bytes):
            name = image.names.get(UUID(bytes=name))
        return image.topics.get(name) if name is not None else None

    def _image(self) -> Image:
        """The image; after this broker has stepped down, the image without this broker.

        This broker does not know the new leaders. If it returned itself as the leader, clients
        would never send the request to another broker.
        """
        image = self._services.metadata.image
        if not self._services.replicas.stepped_down:
            return image
        if self._without_this_broker is None or self._without_this_broker[0] is not image:
            self._without_this_broker = (image, image.without_broker(self._services.node_id))
        return self._without_this_broker[1]

    def _head(self, image: Image, version: int, listener: str) -> _Head:
        """The fields before the topics, after the throttle time; cached per image."""
        kept = self._heads.get((listener, version))
        if kept is not None and kept.image is image:
            return kept
        found = ((broker, broker.endpoint(listener)) for broker in image.brokers.values())
        present = [(broker, at) for broker, at in found if at is not None]
        head = _count(len(present), version)
        for broker, at in present:
            head += _i32.pack(broker.id) + _string(at.host, version) + _i32.pack(at.port)
            if version >= 1:
                head += _nullable(broker.rack, version)
            if version >= FLEXIBLE_FROM:
                head += b"\0"
        if version >= 2:
            head += _nullable(image.cluster_id, version)
        if version >= 1:
            head += _i32.pack(image.controller_id)
        absent = image.without_listener(listener)
        if absent and kept is not None and absent != kept.absent:
            self._parts.clear()  # the set of absent brokers has changed
        new = self._heads[listener, version] = _Head(image, head, absent)
        return new

    def _all_topics(
        self, caller: Caller, image: Image, request: MetadataRequest, version: int, absent: _Absent
    ) -> Steps[bytes]:
        """All topics that the client may describe."""
        same_for_all = not request.topic_operations and caller.permissions is None
        kept = self._all
        if same_for_all and kept and kept[0] is image and kept[1:3] == (version, absent):
            return kept[3]
        parts = []
        for number, topic in enumerate(image.topics.values()):
            if _may_describe(caller, topic.name, silent=True):
                bits = _asked(caller, request, topic)
                parts.append((yield from self._known(topic, version, bits, absent)))
            if number % _STRIDE == _STRIDE - 1:
                yield
        body = b"".join([_count(len(parts), version), *parts])
        if same_for_all:
            self._all = (image, version, absent, body)
        return body

    def _create(
        self,
        caller: Caller,
        names: list[str],
        request: MetadataRequest,
        version: int,
        absent: _Absent,
    ) -> Steps[list[bytes]]:
        """The parts of topics that are missing, created if that is allowed."""
        results: list[Topic | KafkaError]
        settings = self._services.settings
        parts = []
        if not request.may_create or not settings.boolean("auto.create.topics.enable"):
            results = [_unknown(name) for name in names]
        else:
            forbidden = [name for name in names if not _may_create(caller, name)]
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            parts += [self._missing(name, _ZERO_ID, code, version) for name in forbidden]
            names = [name for name in names if name not in forbidden] if forbidden else names
            from headrace.cluster.controller import Defaults, NewTopic  # for a faster start

            defaults = Defaults(
                settings.integer("num.partitions"), settings.integer("default.replication.factor")
            )
            if (quota := caller.quota) is not None:
                refused = {name for name in names if not quota.may_create(defaults.partitions)}
                later = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # clients ask again
                parts += [_missing(name, _ZERO_ID, later, version) for name in refused]
                names = [name for name in names if name not in refused]
            try:
                wanted = [NewTopic(name) for name in names]
                results = self._services.metadata.create_topics(wanted, defaults) if names else []
            except KafkaError as error:
                results = [error for _ in names]
        for name, result in zip(names, results, strict=True):
            if isinstance(result, KafkaError):
                parts.append(self._missing(name, _ZERO_ID, result.code, version))
            else:
                bits = _asked(caller, request, result)
                parts.append((yield from self._known(result, version, bits, absent)))
        return parts

    def _known(self, topic: Topic, version: int, bits: int, absent: _Absent) -> Steps[bytes]:
        kept = self._kept(topic, version, bits, absent)
        if kept is None:
            part = yield from _topic(topic, version, absent)
            self._parts[topic.name, version, absent] = (topic, part)
            kept = self._kept(topic, version, bits, absent)
            assert kept is not None, "the part of a topic is cached"
        return kept

    def _kept(self, topic: Topic, version: int, bits: int, absent: _Absent) -> bytes | None:
        """The cached part of a topic, with the client's authorized operations."""
        kept = self._parts.get((topic.name, version, absent))
        if kept is None or kept[0] is not topic:
            return None
        part = kept[1]
        if version < 8:
            return part
        part += _i32.pack(bits)
        return part + b"\0" if version >= FLEXIBLE_FROM else part


async def _frame_later(
    work: Coroutine[None, None, list[bytes]], version: int, correlation_id: int
) -> Answer:
    return frame_large_response(correlation_id, version >= FLEXIBLE_FROM, await work)


def _throttle(caller: Caller, version: int) -> bytes:
    return _i32.pack(caller.throttle_ms) if version >= 3 else b""


def _may_describe(caller: Caller, name: str, *, silent: bool = False) -> bool:
    return caller.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name, silent=silent)


def _may_create(caller: Caller, name: str) -> bool:
    create = AclOperation.CREATE
    on_cluster = caller.may(create, ResourceType.CLUSTER, CLUSTER_NAME, silent=True)
    return on_cluster or caller.may(create, ResourceType.TOPIC, name)


def _asked(caller: Caller, request: MetadataRequest, topic: Topic) -> int:
    """The client's authorized operations on a topic, if the request asks for them."""
    return operations.on_topic(caller, topic.name) if request.topic_operations else NOT_ASKED


def _tail(caller: Caller, request: MetadataRequest, version: int) -> bytes:
    """The fields after the topics."""
    tail = b""
    if 8 <= version <= 10:
        asked = request.cluster_operations
        tail += _i32.pack(operations.on_cluster(caller) if asked else NOT_ASKED)
    if version >= 13:
        tail += b"\0\0"
    return tail + b"\0" if version >= FLEXIBLE_FROM else tail


def _unknown(name: str) -> KafkaError:
    """The error for a missing topic."""
    try:
        from headrace.cluster.controller import check_topic_name

        check_topic_name(name)
    except KafkaError as error:
        return error
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _topic(topic: Topic, version: int, absent: _Absent) -> Steps[bytes]:
    """A topic and its partitions, all but the authorised operations at its end."""
    parts = [b"\0\0", _string(topic.name, version)]
    if version >= 10:
        parts.append(topic.id.bytes)
    if version >= 1:
        parts.append(b"\x01" if topic.name in INTERNAL_TOPICS else b"\0")
    parts.append(_count(len(topic.partitions), version))
    same: dict[PartitionState, tuple[bytes, bytes]] = {}
    for index, state in enumerate(topic.partitions):
        known = same.get(state)
        if known is None:
            code, leader = ErrorCode.NONE, state.leader
            if leader in absent:
                code = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else _NO_LEADER_CODE
                leader = NO_LEADER
            elif leader < 0:
                code = _NO_LEADER_CODE
            known = same[state] = (_i16.pack(code), _partition_tail(state, leader, version))
        parts += (known[0], _i32.pack(index), known[1])
        if index % _STRIDE == _STRIDE - 1:
            yield
    return b"".join(parts)


def _partition_tail(state: PartitionState, leader: BrokerId, version: int) -> bytes:
    tail = _i32.pack(leader)
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
        part += _i32.pack(NOT_ASKED)
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
    """A response without brokers, in which every topic has the same error."""
    wanted = request.topics or {}
    body = b"\0\0\0\0" if version >= 3 else b""
    body += _count(0, version)
    if version >= 2:
        body += _nullable(None, version)
    if version >= 1:
        body += _i32.pack(-1)
    body += _count(len(wanted), version)
    for topic in wanted:
        name, topic_id = (None, topic) if isinstance(topic, bytes) else (topic, _ZERO_ID)
        body += _missing(name, topic_id, error, version)
    if 8 <= version <= 10:
        body += _i32.pack(NOT_ASKED)
    if version >= 13:
        body += b"\0\0"
    return body + b"\0" if version >= FLEXIBLE_FROM else body
