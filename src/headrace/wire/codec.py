"""Decodes the requests and encodes the responses of all cold APIs, in every version.

The fields come from kio's classes, which are generated from Kafka's own definitions. Handlers use
one class per API, that of the newest version: a request of an older version is read into the newest
class (missing fields get Kafka's default), and a response is written with the fields of the
requested version. `codec_versions.py` converts requests that differ in more than that.

kio's own decoder is not used: it allocates memory for any count in a request, and a hostile count
aborts the process. Here a count is checked against the bytes that follow.

Headers and framing are in `framing.py`, and the hot messages in `fast.py`. Import this module at
the first cold request: importing kio would make every start slower.
"""

import datetime
import struct
import sys
import typing
import uuid
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TypeAlias

from headrace.errors import MalformedRequest
from headrace.wire.codec_fields import (
    EPOCH,
    INT16,
    INT32,
    INT64,
    NUMBERS,
    Class,
    MessageField,
    arrays,
    fields,
)
from headrace.wire.codec_writing import STRIDE, ResponseWriter, entity_write_steps, entity_writer
from headrace.wire.steps import Steps, finish
from headrace.wire.varint import MAX_TAGGED_FIELDS


def _import_kio() -> None:
    """Import kio's types without the test generators that they register with Hypothesis.

    They do so wherever Hypothesis is installed, and it takes half a second and 30 MB to import.
    """
    if "hypothesis" in sys.modules:
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import_module("kio.static.primitive")
    finally:
        del sys.modules["hypothesis"]


_import_kio()

MAX_ELEMENTS = 200_000
"""The most array elements and tagged fields of a request; bounds memory and decoding time."""

MANY_ELEMENTS = 128
"""A response with more array elements than this is written in steps."""

SHAPE_VERSIONS = {22: 5, 57: 1}
"""The version handlers see, where it is not kio's newest: InitProducerId 6 (22) is not stable yet,
and UpdateFeatures 2 (57) has nothing new but lacks the results of 0 and 1."""
OWN_SHAPES = frozenset({8, 9})
"""OffsetCommit and OffsetFetch: handlers see the classes of `offset_messages.py`."""

Bytes: TypeAlias = bytes | bytearray | memoryview
Message: TypeAlias = object
Shape = typing.TypeVar("Shape")


class _Source:
    """The unread part of a request, and how many more elements it may have."""

    __slots__ = ("elements", "end", "position", "view")

    def __init__(self, view: memoryview, position: int) -> None:
        self.view = view
        self.position = position
        self.end = len(view)
        self.elements = MAX_ELEMENTS

    def take(self, count: int) -> memoryview:
        start = self.position
        stop = start + count
        if count < 0 or stop > self.end:
            raise MalformedRequest(f"a field of {count} bytes does not fit into the request")
        self.position = stop
        return self.view[start:stop]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.view[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFF
            shift += 7
            if shift > 28:
                raise MalformedRequest("a variable-length number is longer than 5 bytes")

    def count(self, elements: int) -> int:
        """`elements`, if the rest of the request can hold that many."""
        if elements > self.end - self.position:
            raise MalformedRequest(
                f"an array has {elements} elements, which do not fit into the request"
            )
        self.elements -= elements
        if self.elements < 0:
            raise MalformedRequest(f"the request has more than {MAX_ELEMENTS} elements")
        return elements


Read: TypeAlias = Callable[[_Source], object]
ReadSteps: TypeAlias = Callable[[_Source], Steps[object]]


def decode(api_key: int, version: int, data: Bytes, position: int = 0) -> Message:
    """The request at `position`, in its API's newest shape; `data` ends where the request ends."""
    source, shape, convert = _request_classes(api_key, version)
    with memoryview(data) as view:
        try:
            message = _entity_reader(source, shape)(_Source(view, position))
        except _UNREADABLE as error:
            raise _malformed(api_key, version, error) from error
    return finish(convert(message, request_class(api_key))) if convert else message


def decode_steps(api_key: int, version: int, data: Bytes, position: int = 0) -> Steps[Message]:
    """As `decode`, in steps."""
    source, shape, convert = _request_classes(api_key, version)
    with memoryview(data) as view:
        try:
            message = yield from _entity_read_steps(source, shape)(_Source(view, position))
        except _UNREADABLE as error:
            raise _malformed(api_key, version, error) from error
    if convert is not None:
        message = yield from convert(message, request_class(api_key))
    return message


def read_steps(api_key: int, version: int, data: Bytes, position: int = 0) -> Steps[Message]:
    """The request at `position`, as its own version has it, in steps."""
    source = request_class(api_key, version)
    with memoryview(data) as view:
        try:
            return (yield from _entity_read_steps(source, source)(_Source(view, position)))
        except _UNREADABLE as error:
            raise _malformed(api_key, version, error) from error


_UNREADABLE = (IndexError, ValueError, struct.error, OverflowError)


def _malformed(api_key: int, version: int, error: Exception) -> MalformedRequest:
    if isinstance(error, MalformedRequest):
        return error
    return MalformedRequest(f"api {api_key} version {version}: {error}")


def encode(api_key: int, version: int, response: Message, throttle_ms: int = 0) -> bytes:
    """The body of a response as `version` has it, from one in its API's newest shape.

    The throttle time is the one given here; that of the response is ignored.
    """
    out = ResponseWriter(throttle_ms)
    shape = response_class(api_key, version)
    entity_writer(shape)(out, _restored(api_key, version, response))
    return bytes(out)


def encode_steps(
    api_key: int, version: int, response: Message, throttle_ms: int = 0
) -> Steps[bytearray]:
    """As `encode`, in steps."""
    out = ResponseWriter(throttle_ms)
    shape = response_class(api_key, version)
    yield from entity_write_steps(shape)(out, _restored(api_key, version, response))
    return out


def _restored(api_key: int, version: int, response: Message) -> Message:
    restore = _response_restorer(api_key, version)
    if restore is not None and isinstance(response, response_class(api_key)):
        return restore(response, version)
    return response


def holds_many(response: Message) -> bool:
    """Whether a response has so many array elements that it should be encoded in steps."""
    return _elements_left(response, MANY_ELEMENTS) < 0


def _elements_left(message: object, left: int) -> int:
    """`left` less the elements of all arrays; it stops where that is negative."""
    shape: Class = type(message)
    for name, nested in arrays(shape):
        values = getattr(message, name)
        if not values:
            continue
        left -= len(values)
        if nested:
            for value in values:
                if left < 0:
                    break
                left = _elements_left(value, left)
        if left < 0:
            break
    return left


def encode_request(version: int, request: Message) -> bytes:
    """The body of a request as `version` has it, from one of kio's classes of that API."""
    out = ResponseWriter()
    entity_writer(request_class(request.__api_key__, version))(out, request)  # type: ignore[attr-defined]
    return bytes(out)


def decode_response(version: int, shape: type[Shape], data: Bytes, position: int) -> Shape:
    """The response at `position`, read into `shape`, one of kio's classes of that API."""
    read = _entity_reader(response_class(shape.__api_key__, version), shape)  # type: ignore[attr-defined, arg-type]
    with memoryview(data) as view:
        source = _Source(view, position)
        source.elements = len(view)  # a count is bounded by the bytes that follow
        return typing.cast(Shape, read(source))


def shape_version(api_key: int) -> int:
    """The version whose classes handlers of this API see."""
    from kio.schema.index import api_key_map, schema_name_map

    return SHAPE_VERSIONS.get(api_key) or max(schema_name_map[api_key_map[api_key]])


def request_class(api_key: int, version: int | None = None) -> Class:
    """kio's class of a request; the shape of handlers unless a version is given."""
    return _shape(api_key, 0) if version is None else _payload_class(api_key, version, 0)


def response_class(api_key: int, version: int | None = None) -> Class:
    """kio's class of a response; the shape of handlers unless a version is given."""
    return _shape(api_key, 1) if version is None else _payload_class(api_key, version, 1)


@cache
def _shape(api_key: int, side: int) -> Class:
    if api_key not in OWN_SHAPES:
        return _payload_class(api_key, shape_version(api_key), side)
    from headrace.wire.offset_messages import SHAPES

    return SHAPES[api_key][side]


@cache
def _payload_class(api_key: int, version: int, side: int) -> Class:
    from kio.schema.index import api_key_map

    name = api_key_map[api_key]
    module = import_module(f"kio.schema.{name}.v{version}")
    found: Class = getattr(module, module.__all__[side])
    return found


@cache
def _request_classes(
    api_key: int, version: int
) -> tuple[Class, Class, Callable[[Message, Class], Steps[Message]] | None]:
    """The class to read, the class to build, and the conversion to the newest version."""
    from headrace.wire.codec_versions import REQUESTS

    source = request_class(api_key, version)
    last, convert = REQUESTS.get(api_key, (-1, None))
    if convert is None or version > last:
        return source, request_class(api_key), None
    return source, source, convert


@cache
def _response_restorer(api_key: int, version: int) -> Callable[[Message, int], Message] | None:
    from headrace.wire.codec_versions import RESPONSES

    last, restore = RESPONSES.get(api_key, (-1, None))
    return restore if version <= last else None


# --- Reading --------------------------------------------------------------------------------------


class _Plan(typing.NamedTuple):
    """How to read one class into another."""

    plain: list[tuple[str, Read, ReadSteps | None]]
    tagged: dict[int, tuple[str, Read]]
    absent: dict[str, object]
    """The default of a field that the message does not have."""
    flexible: bool


@cache
def _reading_plan(source: Class, shape: Class) -> _Plan:
    flexible: bool = source.__flexible__  # type: ignore[attr-defined]
    shaped = {field.name: field for field in fields(shape)}
    plain: list[tuple[str, Read, ReadSteps | None]] = []
    tagged: dict[int, tuple[str, Read]] = {}
    present = set()
    for field in fields(source):
        read, steps = _field_reader(field, shaped.get(field.name, field), flexible)
        present.add(field.name)
        # A field that the class lacks is read and dropped.
        name = field.name if field.name in shaped else ""
        if field.tag is None:
            plain.append((name, read, steps))
        else:
            tagged[field.tag] = (name, read)
    absent = {
        name: field.default
        for name, field in shaped.items()
        if name not in present or field.tag is not None
    }
    return _Plan(plain, tagged, absent, flexible)


@cache
def _entity_reader(source: Class, shape: Class) -> Read:
    """Reads what `source` describes and builds a `shape` of it."""
    plan = _reading_plan(source, shape)
    plain = [(name, read) for name, read, _ in plan.plain]
    tagged, absent, flexible = plan.tagged, plan.absent, plan.flexible

    def read_entity(data: _Source) -> object:
        values = absent.copy()
        for name, read in plain:
            values[name] = read(data)
        if flexible:
            _read_tags(data, tagged, values)
        values.pop("", None)
        return shape(**values)

    return read_entity


@cache
def _entity_read_steps(source: Class, shape: Class) -> ReadSteps:
    """As `_entity_reader`, in steps."""
    plain, tagged, absent, flexible = _reading_plan(source, shape)

    def read_entity(data: _Source) -> Steps[object]:
        values = absent.copy()
        for name, read, steps in plain:
            values[name] = read(data) if steps is None else (yield from steps(data))
        if flexible:
            _read_tags(data, tagged, values)
        values.pop("", None)
        return shape(**values)

    return read_entity


def _read_tags(
    data: _Source, known: dict[int, tuple[str, Read]], values: dict[str, object]
) -> None:
    count = data.count(data.varint())
    if count > MAX_TAGGED_FIELDS:
        raise MalformedRequest(f"{count} tagged fields; at most {MAX_TAGGED_FIELDS} are allowed")
    for _ in range(count):
        tag = data.varint()
        size = data.varint()
        body = data.take(size)
        if tag not in known:
            continue
        name, read = known[tag]
        inner = _Source(body, 0)
        inner.elements = data.elements
        values[name] = read(inner)
        data.elements = inner.elements


def _field_reader(
    field: MessageField, shaped: MessageField, flexible: bool
) -> tuple[Read, ReadSteps | None]:
    """How to read a field at once, and in steps if it is an array that may be long."""
    steps: ReadSteps | None = None
    if field.entity is not None:
        assert shaped.entity is not None, field.name
        one = _entity_reader(field.entity, shaped.entity)
        if arrays(field.entity):
            steps = _entity_read_steps(field.entity, shaped.entity)
        if field.nullable and not field.array:
            return lambda data: one(data) if data.take(1)[0] == 1 else None, None
    else:
        one = _scalar_reader(field.kind, flexible, field.nullable and not field.array)
    if not field.array:
        return one, steps
    return _array_reader(field, one, flexible), _array_read_steps(field, one, steps, flexible)


def _length_of_array(field: MessageField, flexible: bool) -> Callable[[_Source], int]:
    """Reads the number of elements that follow; -1 means null."""

    def read_length(data: _Source) -> int:
        length: int = data.varint() - 1 if flexible else INT32.unpack(data.take(4))[0]
        if length >= 0:
            return data.count(length)
        if length == -1 and field.nullable:
            return -1
        raise MalformedRequest(f"{field.name} is null or has a negative length")

    return read_length


def _array_reader(field: MessageField, one: Read, flexible: bool) -> Read:
    number = NUMBERS.get(field.kind)
    code = number.format[1:] if number else ""
    length_of = _length_of_array(field, flexible)

    def read_array(data: _Source) -> object:
        count = length_of(data)
        if count < 0:
            return None
        if number:
            return struct.unpack(f">{count}{code}", data.take(count * number.size))
        return tuple([one(data) for _ in range(count)])

    return read_array


def _array_read_steps(
    field: MessageField, one: Read, steps: ReadSteps | None, flexible: bool
) -> ReadSteps | None:
    """As `_array_reader`, in steps; None for arrays of numbers, which are fast."""
    if field.kind in NUMBERS:
        return None
    length_of = _length_of_array(field, flexible)

    def read_array(data: _Source) -> Steps[object]:
        count = length_of(data)
        if count < 0:
            return None
        values = []
        for number in range(count):
            values.append(one(data) if steps is None else (yield from steps(data)))
            if not number % STRIDE:
                yield
        return tuple(values)

    return read_array


def _scalar_reader(kind: str, flexible: bool, nullable: bool) -> Read:
    number = NUMBERS.get(kind)
    if number is not None:
        unpack, size = number.unpack, number.size
        return lambda data: unpack(data.take(size))[0]
    match kind:
        case "string":
            return _text_reader(_length_reader(flexible, INT16), nullable)
        case "bytes" | "records":
            return _bytes_reader(_length_reader(flexible, INT32), nullable)
        case "uuid":
            return _read_uuid
        case "timedelta_i32":
            return lambda data: datetime.timedelta(
                milliseconds=INT32.unpack(data.take(INT32.size))[0]
            )
        case "timedelta_i64":
            return _read_long_timedelta
        case "datetime_i64":
            return _read_datetime
    raise NotImplementedError(f"no reader for Kafka's type {kind}")


def _length_reader(flexible: bool, width: struct.Struct) -> Callable[[_Source], int]:
    if flexible:
        return lambda data: data.varint() - 1
    unpack, size = width.unpack, width.size

    def read_length(data: _Source) -> int:
        length: int = unpack(data.take(size))[0]
        return length

    return read_length


def _text_reader(length_of: Callable[[_Source], int], nullable: bool) -> Read:
    def read_text(data: _Source) -> object:
        length = length_of(data)
        if length == -1 and nullable:
            return None
        return str(data.take(length), "utf-8")

    return read_text


def _bytes_reader(length_of: Callable[[_Source], int], nullable: bool) -> Read:
    def read_bytes(data: _Source) -> object:
        length = length_of(data)
        if length == -1 and nullable:
            return None
        return bytes(data.take(length))

    return read_bytes


def _read_uuid(data: _Source) -> object:
    raw = bytes(data.take(16))
    return uuid.UUID(bytes=raw) if any(raw) else None


def _read_long_timedelta(data: _Source) -> object:
    """A duration; one beyond Python's range becomes the longest that Python has."""
    value: int = INT64.unpack(data.take(INT64.size))[0]
    return datetime.timedelta(milliseconds=max(-_LONGEST_MS, min(value, _LONGEST_MS)))


_LONGEST_MS = datetime.timedelta.max // datetime.timedelta(milliseconds=1)


def _read_datetime(data: _Source) -> object:
    value: int = INT64.unpack(data.take(8))[0]
    return None if value == -1 else EPOCH + datetime.timedelta(milliseconds=value)
