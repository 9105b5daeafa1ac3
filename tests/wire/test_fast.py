"""The hand-written messages against kio's classes, which are made from Kafka's definitions."""

import datetime
import io
import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from headrace.errors import MalformedRequest
from headrace.wire.fast import Chunk, fetch_response, parse_fetch, parse_produce, produce_response
from headrace.wire.results import FetchResult, ProduceResult

TOPIC_ID = uuid.UUID(int=0x1234567890ABCDEF1234567890ABCDEF)
PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)


def nested(entity: Any, field: str) -> Any:
    """The class of the items in a kio class's array."""
    annotation = entity.__dataclass_fields__[field].type
    return annotation.__args__[0]


def fill(entity: Any, **values: object) -> Any:
    """An instance with those of the values that this version has."""
    known = entity.__dataclass_fields__
    return entity(**{name: value for name, value in values.items() if name in known})


def encode(entity: Any) -> bytearray:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return bytearray(out.getvalue())


def produce_body(version: int, records: bytes) -> bytearray:
    request = load_request_schema(0, version)
    topic = nested(request, "topic_data")
    partition = nested(topic, "partition_data")
    return encode(
        fill(
            request,
            transactional_id=None,
            acks=-1,
            timeout=datetime.timedelta(milliseconds=1500),
            topic_data=(
                fill(
                    topic,
                    name="orders",
                    topic_id=TOPIC_ID,
                    partition_data=(
                        fill(partition, index=7, records=records),
                        fill(partition, index=8, records=None),
                    ),
                ),
            ),
        )
    )


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_a_produce_request_is_read_as_kafka_defines_it(version: int) -> None:
    body = produce_body(version, b"r" * 300)
    request = parse_produce(body, memoryview(body), 0, len(body), version)
    key = TOPIC_ID.bytes if version >= 13 else b"orders"
    assert (request.acks, request.timeout_ms, request.transactional_id) == (-1, 1500, None)
    [(found, [(index, start, end), nothing])] = request.topics
    assert (found, index, bytes(body[start:end])) == (key, 7, b"r" * 300)
    assert nothing == (8, -1, -1)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_a_produce_response_is_what_kafka_defines(version: int) -> None:
    key = TOPIC_ID.bytes if version >= 13 else b"orders"
    two = [(1, "no key"), (70_000, "no key either")]
    results = [
        ProduceResult(3, 0, 42, log_start_offset=5),
        ProduceResult(4, 87, error_message="two records are wrong", record_errors=two),
        ProduceResult(5, 2, error_message="the checksum does not match"),
    ]
    frame = produce_response(version, 99, 321, [(key, results)])
    size, correlation_id = struct.unpack_from(">ii", frame)
    assert (size, correlation_id) == (len(frame) - 4, 99)
    start = 9 if version >= 9 else 8
    response = read_response(0, version, frame, start)
    assert response.throttle_time == datetime.timedelta(milliseconds=321)
    [topic] = response.responses
    first, second, third = topic.partition_responses
    assert (first.index, int(first.error_code), first.base_offset) == (3, 0, 42)
    assert (second.index, int(second.error_code)) == (4, 87)
    if version >= 5:
        assert first.log_start_offset == 5
    if version >= 8:
        assert (first.error_message, second.error_message) == (None, "two records are wrong")
        assert third.error_message == "the checksum does not match"
        assert (first.record_errors, third.record_errors) == ((), ())
        assert [
            (refused.batch_index, refused.batch_index_error_message)
            for refused in second.record_errors
        ] == [(1, "no key"), (70_000, "no key either")]


def fetch_body(version: int) -> bytearray:
    request = load_request_schema(1, version)
    topic = nested(request, "topics")
    partition = nested(topic, "partitions")
    values: dict[str, object] = {
        "replica_id": -1,
        "max_wait": datetime.timedelta(milliseconds=500),
        "min_bytes": 1,
        "max_bytes": 5000,
        "isolation_level": 1,
        "session_id": 77,
        "session_epoch": 3,
        "rack_id": "here",
    }
    wanted = fill(
        partition, partition=5, current_leader_epoch=2, fetch_offset=123, last_fetched_epoch=-1,
        log_start_offset=-1, partition_max_bytes=4096,
    )  # fmt: skip
    values["topics"] = (fill(topic, topic="orders", topic_id=TOPIC_ID, partitions=(wanted,)),)
    if version >= 7:
        forgotten = nested(request, "forgotten_topics_data")
        values["forgotten_topics_data"] = (
            fill(forgotten, topic="orders", topic_id=TOPIC_ID, partitions=(8, 9)),
        )
    return encode(fill(request, **values))


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_request_is_read_as_kafka_defines_it(version: int) -> None:
    body = fetch_body(version)
    request = parse_fetch(body, memoryview(body), 0, len(body), version)
    key = TOPIC_ID.bytes if version >= 13 else b"orders"
    assert (request.replica_id, request.max_wait_ms, request.min_bytes) == (-1, 500, 1)
    assert (request.max_bytes, request.isolation) == (5000, 1)
    epoch = 2 if version >= 9 else -1
    assert request.topics == [(key, [(5, epoch, 123, -1, -1, 4096)])]
    if version >= 7:
        assert (request.session_id, request.session_epoch) == (77, 3)
        assert request.forgotten == [(key, 8), (key, 9)]
    else:
        assert (request.session_id, request.session_epoch) == (0, -1)


class InMemory:
    """Records that are not on a disk."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.length = len(data)
        self.following = -1

    def read(self) -> bytes:
        return self.data


def joined(chunks: Sequence[Chunk]) -> bytes:
    return b"".join(c if isinstance(c, bytes) else c.read() for c in chunks)


def read_response(key: int, version: int, frame: bytes, start: int) -> Any:
    """The response that kio finds in a frame; nothing may be left over."""
    schema: Any = load_response_schema(key, version)
    response, used = entity_reader(schema)(frame, start)
    assert used == len(frame) - start
    return response


@pytest.mark.parametrize("size", [100, 20_000])
@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_response_is_what_kafka_defines(version: int, size: int) -> None:
    key = TOPIC_ID.bytes if version >= 13 else b"orders"
    results = [
        FetchResult(0, 0, 50, 49, 3, InMemory(b"x" * size)),
        FetchResult(1, 1),
        FetchResult(2, 0, 60, 40, 5, InMemory(b"y" * size), [(1000, 7), (2**40, 9)]),
        FetchResult(3, 0, 60, 60, 5, None, []),
        FetchResult(4, 0, 60, 60, 5, preferred_replica=8),
    ]
    frame = joined(fetch_response(version, 12, 321, 0, 77, [(key, results)]))
    assert struct.unpack_from(">ii", frame) == (len(frame) - 4, 12)
    start = 9 if version >= 12 else 8
    response = read_response(1, version, frame, start)
    assert response.throttle_time == datetime.timedelta(milliseconds=321)
    [topic] = response.responses
    first, second, third, fourth, fifth = topic.partitions
    assert (first.high_watermark, first.last_stable_offset) == (50, 49)
    assert bytes(first.records) == b"x" * size
    assert (int(second.error_code), second.high_watermark) == (1, -1)
    assert first.aborted_transactions is None
    assert (third.high_watermark, third.last_stable_offset) == (60, 40)
    assert bytes(third.records) == b"y" * size
    aborted = [(int(a.producer_id), a.first_offset) for a in third.aborted_transactions]
    assert aborted == [(1000, 7), (2**40, 9)]
    assert fourth.aborted_transactions == ()
    if version >= 11:
        preferred = [int(one.preferred_read_replica) for one in topic.partitions]
        assert preferred == [-1, -1, -1, -1, 8]
    assert fifth.aborted_transactions == ()
    if version >= 7:
        assert response.session_id == 77


@pytest.mark.parametrize("parse", [parse_produce, parse_fetch])
@pytest.mark.parametrize("version", [3, 7, 9, 12, 13])
def test_a_request_cut_anywhere_is_refused_and_never_read_past_its_frame(
    parse: Callable[..., object], version: int
) -> None:
    if parse is parse_fetch and version == 3:
        version = 4
    whole = produce_body(version, b"r" * 80) if parse is parse_produce else fetch_body(version)
    for length in range(len(whole)):
        # What follows the frame in the buffer must not be taken for a part of it.
        body = whole[:length] + bytearray(b"\0" * 64)
        with pytest.raises((MalformedRequest, struct.error, IndexError)):
            parse(body, memoryview(body), 0, length, version)
