"""The codec against kio's own serialisation, over every API and version that kio knows."""

import dataclasses
import datetime
import io
import random
import struct
import uuid

import pytest
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer

from headrace.errors import ErrorCode, MalformedRequest
from headrace.wire import codec, codec_fields
from headrace.wire.primitives import milliseconds

# Read by hand elsewhere; their classes are far from the newest shape.
BY_HAND = {0, 1, 3}
CONVERTED_LATER = {8, 9, 10, 11, 13, 24, 54, 56}
NO_TIME, MILLISECOND = datetime.timedelta(0), datetime.timedelta(milliseconds=1)
ALL = [
    (key, version)
    for key, name in api_key_map.items()
    for version in schema_name_map[name]
    if key not in BY_HAND and version <= codec.shape_version(key)
]
SAME_SHAPE = [
    (k, v) for k, v in ALL if k not in CONVERTED_LATER and (k, v) not in {(20, n) for n in range(6)}
]


def _value(field: codec_fields.MessageField, rng: random.Random) -> object:
    if field.nullable and field.tag is None and rng.random() < 0.2:
        return None
    if field.array:
        return tuple(_scalar(field, rng) for _ in range(rng.randrange(3)))
    return _scalar(field, rng)


def _scalar(field: codec_fields.MessageField, rng: random.Random) -> object:
    if field.entity is not None:
        return _message(field.entity, rng)
    match field.kind:
        case "string":
            return rng.choice(["", "t", "größe", "x" * 200])
        case "bytes" | "records":
            return rng.randbytes(rng.randrange(200))
        case "bool":
            return rng.random() < 0.5
        case "uuid":
            return uuid.UUID(bytes=rng.randbytes(16))
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=rng.randrange(100_000))
        case "datetime_i64":
            seconds = rng.randrange(2_000_000_000)
            return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
        case "error_code":
            return ErrorCode(rng.randrange(100))
        case "float64":
            return rng.random()
    return rng.randrange(100)


def _message(of: type, rng: random.Random) -> object:
    return of(**{field.name: _value(field, rng) for field in codec_fields.fields(of)})


def _kio_bytes(message: object) -> bytes:
    out = io.BytesIO()
    entity_writer(type(message))(out, message)  # type: ignore[type-var]
    return out.getvalue()


def _throttle_ms(message: object) -> int:
    """The throttle time of a response, which the codec is told beside the response."""
    throttle: datetime.timedelta = getattr(message, "throttle_time", NO_TIME)
    return throttle // MILLISECOND


def _common(old: object, new: object) -> None:
    """Every field that both have is equal, nested messages included."""
    if isinstance(old, tuple) and isinstance(new, tuple):
        assert len(old) == len(new)
        for one, other in zip(old, new, strict=True):
            _common(one, other)
    elif dataclasses.is_dataclass(old):
        for field in dataclasses.fields(old):
            if hasattr(new, field.name):
                _common(getattr(old, field.name), getattr(new, field.name))
    else:
        assert old == new


@pytest.mark.parametrize(("key", "version"), ALL)
def test_a_response_is_written_as_kio_writes_it(key: int, version: int) -> None:
    rng = random.Random(key * 100 + version)
    for _ in range(5):
        message = _message(codec.response_class(key, version), rng)
        encoded = codec.encode(key, version, message, _throttle_ms(message))
        assert encoded == _kio_bytes(message)


@pytest.mark.parametrize(("key", "version"), SAME_SHAPE)
def test_a_request_of_any_version_arrives_in_the_newest_shape(key: int, version: int) -> None:
    rng = random.Random(key * 100 + version)
    for _ in range(5):
        message = _message(codec.request_class(key, version), rng)
        decoded = codec.decode(key, version, b"xy" + _kio_bytes(message), 2)
        assert type(decoded) is codec.request_class(key)
        _common(message, decoded)


@pytest.mark.parametrize(("key", "version"), SAME_SHAPE)
def test_a_response_in_the_newest_shape_is_readable_in_every_version(
    key: int, version: int
) -> None:
    rng = random.Random(key * 100 + version)
    message = _message(codec.response_class(key), rng)
    old = codec.response_class(key, version)
    body = codec.encode(key, version, message, _throttle_ms(message))
    decoded: object
    decoded, size = entity_reader(old)(body, 0)
    assert size == len(body)
    for field in codec_fields.fields(old):
        value = getattr(message, field.name)
        if value is not None and field.entity is None and field.kind != "error_code":
            assert getattr(decoded, field.name) == value


def test_names_of_old_delete_requests_become_topics() -> None:
    body = struct.pack(">ih3sh2si", 2, 3, b"one", 2, b"to", 5000)
    request = codec.decode(20, 1, body)
    assert [(t.name, t.topic_id) for t in request.topics] == [  # type: ignore[attr-defined]
        ("one", None),
        ("to", None),
    ]
    assert request.timeout == datetime.timedelta(seconds=5)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("allowed", "kind"), [(False, 1), (True, 2)])
def test_an_old_feature_update_has_its_upgrade_type(allowed: bool, kind: int) -> None:
    body = struct.pack(">iB", 10, 2) + b"\x02f" + struct.pack(">h?BB", 7, allowed, 0, 0)
    (update,) = codec.decode(57, 0, body).feature_updates  # type: ignore[attr-defined]
    assert (update.feature, update.max_version_level, update.upgrade_type) == ("f", 7, kind)


def test_a_null_goes_out_as_empty_where_a_version_has_no_null() -> None:
    from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse

    from headrace.wire.primitives import error

    result = DeletableTopicResult(
        name=None, topic_id=None, error_code=error(ErrorCode.UNKNOWN_TOPIC_ID)
    )
    response = DeleteTopicsResponse(throttle_time=milliseconds(0), responses=(result,))
    assert codec.encode(20, 1, response) == struct.pack(">iihh", 0, 1, 0, 100)


def test_unknown_tagged_fields_are_skipped() -> None:
    # DescribeCluster 0: one boolean, then two tags that no version defines.
    body = b"\x01" + b"\x02" + b"\x63\x03abc" + b"\x64\x00"
    request = codec.decode(60, 0, body)
    assert request.include_cluster_authorized_operations is True  # type: ignore[attr-defined]


def test_bytes_after_the_request_are_tolerated() -> None:
    assert codec.decode(60, 0, b"\x00\x00garbage") is not None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00\x00",
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", -2),
        struct.pack(">i", -1),
        struct.pack(">ih", 1, 32767),
        struct.pack(">ih", 1, -1),
        struct.pack(">ih2s", 1, 2, b"\xff\xfe"),
    ],
)
def test_a_malformed_old_request_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        codec.decode(20, 1, body)


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xff\xff\xff\x07",  # 2**31 - 2 topics
        b"\xff\xff\xff\xff\xff\xff",  # a varint of six bytes
        b"\x00",  # a null array
        b"\x02\xff\xff\xff\x7f",  # a name past the end
        b"\x01\x00\x00\x00\x00\x7f",  # 127 tags in no bytes
        b"\x01\x00\x00\x00\x00\x01\x00\x7f",  # a tag past the end
    ],
)
def test_a_malformed_flexible_request_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        codec.decode(20, 6, body)


def test_a_request_of_too_many_elements_is_refused() -> None:
    resources = codec.MAX_ELEMENTS + 1
    with pytest.raises(MalformedRequest, match="elements"):
        codec.decode(32, 1, struct.pack(">i", resources) + bytes(7 * resources + 1))


def test_mutated_requests_are_decoded_or_refused() -> None:
    rng = random.Random(7)
    seeds = [
        (key, version, _kio_bytes(_message(codec.request_class(key, version), rng)))
        for key, version in SAME_SHAPE
    ]
    hostile = [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x80" * 6]
    refused = 0
    for _ in range(20_000):
        key, version, body = rng.choice(seeds)
        mutated = bytearray(body)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(mutated) + 1)
            piece = rng.choice(hostile) if rng.random() < 0.5 else rng.randbytes(1)
            mutated[at : at + rng.randrange(3)] = piece
        try:
            codec.decode(key, version, mutated)
        except MalformedRequest:
            refused += 1
    assert refused > 1000


def test_an_array_that_stands_in_many_places_is_written_in_each() -> None:
    from kio.schema.describe_configs.v4 import response as configs

    from headrace.wire.primitives import NO_ERROR, i8, milliseconds

    shared = tuple(
        configs.DescribeConfigsResourceResult(
            name=name,
            value="v",
            read_only=False,
            is_sensitive=False,
            synonyms=(),
            documentation=None,
        )
        for name in ("a", "b")
    )
    results = tuple(
        configs.DescribeConfigsResult(
            error_code=NO_ERROR,
            error_message=None,
            resource_type=i8(2),
            resource_name=name,
            configs=given,
        )
        for name, given in (("t", shared), ("u", ()), ("v", shared), ("w", shared[:1]))
    )
    response = configs.DescribeConfigsResponse(throttle_time=milliseconds(0), results=results)
    assert codec.encode(32, 4, response) == _kio_bytes(response)
