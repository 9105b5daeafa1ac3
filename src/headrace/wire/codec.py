"""Bodies of the cold messages: bytes to requests and responses to bytes, for every API and version.

The shapes come from kio's classes, which are generated from Kafka's own definitions. Handlers see
one shape per API, the newest version's: a request of an older version is read straight into the
newest class (what that version lacks takes Kafka's default), and a response is written with the
fields that the asked version has. Where an older request says something in a way that the newest
one lacks, `codec_versions.py` converts.

kio's own decoder is not used: it reserves memory for whatever count a request claims, and a
hostile count aborts the process. Here a count is checked against the bytes that follow.

Not here: headers and framing (`framing.py`), and the hot messages (`fast.py`). Import this module
when the first cold request comes: kio would make every start slower.
"""

import dataclasses
import datetime
import struct
import sys
import types
import typing
import uuid
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from typing import TypeAlias

from headrace.errors import MalformedRequest


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
"""Array elements and tagged fields that one request may hold: bounds memory and decoding time."""

SHAPE_VERSIONS = {2: 10, 8: 9, 9: 9, 22: 5, 35: 4, 57: 1}
"""The version handlers see, where it is not kio's newest: kio knows versions that Kafka 4.1 does
not speak, and UpdateFeatures 2 (57) has nothing new but lacks the results of 0 and 1."""

Bytes: TypeAlias = bytes | bytearray | memoryview
Message: TypeAlias = object
Class: TypeAlias = type
Write: TypeAlias = Callable[["_Sink", object], None]
Shape = typing.TypeVar("Shape")


class _Source:
    """What is left of a request, and how many more elements it may hold."""

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
            raise MalformedRequest(f"{elements} elements are claimed, more than bytes follow")
        self.elements -= elements
        if self.elements < 0:
            raise MalformedRequest(f"a request may hold {MAX_ELEMENTS} elements, this has more")
        return elements


Read: TypeAlias = Callable[[_Source], object]


def decode(api_key: int, version: int, data: Bytes, position: int = 0) -> Message:
    """The request at `position`, in its API's newest shape; `data` ends where the request ends."""
    read, convert = _request_reader(api_key, version)
    with memoryview(data) as view:
        try:
            message = read(_Source(view, position))
        except (IndexError, ValueError, struct.error, OverflowError) as error:
            if isinstance(error, MalformedRequest):
                raise
            raise MalformedRequest(f"api {api_key} version {version}: {error}") from error
    return convert(message) if convert else message


def encode(api_key: int, version: int, response: Message) -> bytes:
    """The body of a response as `version` has it, from one in its API's newest shape."""
    restore = _response_restorer(api_key, version)
    if restore is not None and isinstance(response, response_class(api_key)):
        response = restore(response, version)
    out = _Sink()
    _entity_writer(response_class(api_key, version))(out, response)
    return bytes(out)


def encode_request(version: int, request: Message) -> bytes:
    """The body of a request as `version` has it, from one of kio's classes of that API."""
    out = _Sink()
    _entity_writer(request_class(request.__api_key__, version))(out, request)  # type: ignore[attr-defined]
    return bytes(out)


def decode_response(version: int, shape: type[Shape], data: Bytes, position: int) -> Shape:
    """The response at `position`, read into `shape`, one of kio's classes of that API."""
    read = _entity_reader(response_class(shape.__api_key__, version), shape)  # type: ignore[attr-defined, arg-type]
    with memoryview(data) as view:
        source = _Source(view, position)
        source.elements = len(view)  # a count is bounded by the bytes that follow, and that will do
        return typing.cast(Shape, read(source))


def shape_version(api_key: int) -> int:
    """The version whose classes handlers of this API see."""
    from kio.schema.index import api_key_map, schema_name_map

    return SHAPE_VERSIONS.get(api_key) or max(schema_name_map[api_key_map[api_key]])


def request_class(api_key: int, version: int | None = None) -> Class:
    """kio's class of a request; the newest shape unless a version is given."""
    return _payload_class(api_key, shape_version(api_key) if version is None else version, 0)


def response_class(api_key: int, version: int | None = None) -> Class:
    """kio's class of a response; the newest shape unless a version is given."""
    return _payload_class(api_key, shape_version(api_key) if version is None else version, 1)


@cache
def _payload_class(api_key: int, version: int, side: int) -> Class:
    from kio.schema.index import api_key_map

    name = api_key_map[api_key]
    module = import_module(f"kio.schema.{name}.v{version}")
    found: Class = getattr(module, module.__all__[side])
    return found


@cache
def _request_reader(api_key: int, version: int) -> tuple[Read, Callable[[Message], Message] | None]:
    from headrace.wire.codec_versions import REQUESTS

    source, shape = request_class(api_key, version), request_class(api_key)
    last, convert = REQUESTS.get(api_key, (-1, None))
    if convert is None or version > last:
        return _entity_reader(source, shape), None
    up = convert
    return _entity_reader(source, source), lambda message: up(message, shape)


@cache
def _response_restorer(api_key: int, version: int) -> Callable[[Message, int], Message] | None:
    from headrace.wire.codec_versions import RESPONSES

    last, restore = RESPONSES.get(api_key, (-1, None))
    return restore if version <= last else None


# --- What a class says about its fields ---------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One field of a message, as kio's class declares it."""

    name: str
    kind: str  # Kafka's type; "entity" for a nested message
    entity: Class | None
    array: bool
    nullable: bool
    tag: int | None
    default: object  # what stands where the wire has nothing


def fields(message: Class) -> list[Field]:
    """The fields of one of kio's classes, in their order on the wire."""
    assert dataclasses.is_dataclass(message), message
    return [_describe(field) for field in dataclasses.fields(message)]


def _describe(field: "dataclasses.Field[object]") -> Field:
    declared = field.type
    nullable = array = False
    if isinstance(declared, types.UnionType):
        nullable = True
        declared = next(a for a in typing.get_args(declared) if a is not types.NoneType)
    if typing.get_origin(declared) is tuple:
        array = True
        declared = typing.get_args(declared)[0]
    entity = declared if dataclasses.is_dataclass(declared) else None
    assert entity is None or isinstance(entity, type)
    kind = "entity" if entity is not None else str(field.metadata["kafka_type"])
    if field.default is not dataclasses.MISSING:
        default: object = field.default
    elif nullable:
        default = None
    elif array:
        default = ()
    elif entity is not None:
        default = entity(**{nested.name: nested.default for nested in fields(entity)})
    else:
        default = _ABSENT[kind]
    return Field(field.name, kind, entity, array, nullable, field.metadata.get("tag"), default)


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_ABSENT: dict[str, object] = {
    "bool": False,
    "bytes": b"",
    "datetime_i64": _EPOCH,
    "error_code": 0,
    "float64": 0.0,
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "records": b"",
    "string": "",
    "timedelta_i32": datetime.timedelta(0),
    "timedelta_i64": datetime.timedelta(0),
    "uint16": 0,
    "uint32": 0,
    "uuid": None,
}
_NUMBERS = {
    "bool": struct.Struct(">?"),
    "error_code": struct.Struct(">h"),
    "float64": struct.Struct(">d"),
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "uint16": struct.Struct(">H"),
    "uint32": struct.Struct(">I"),
}
_INT16, _INT32, _INT64 = _NUMBERS["int16"], _NUMBERS["int32"], _NUMBERS["int64"]


# --- Reading --------------------------------------------------------------------------------------


@cache
def _entity_reader(source: Class, shape: Class) -> Read:
    """Reads what `source` describes and builds a `shape` of it."""
    flexible: bool = source.__flexible__  # type: ignore[attr-defined]
    shaped = {field.name: field for field in fields(shape)}
    plain: list[tuple[str, Read]] = []
    tagged: dict[int, tuple[str, Read]] = {}
    present = set()
    for field in fields(source):
        read = _field_reader(field, shaped.get(field.name, field), flexible)
        present.add(field.name)
        # A field that the shape lacks is read and dropped.
        name = field.name if field.name in shaped else ""
        if field.tag is None:
            plain.append((name, read))
        else:
            tagged[field.tag] = (name, read)
    absent = {
        name: field.default
        for name, field in shaped.items()
        if name not in present or field.tag is not None
    }

    def read_entity(data: _Source) -> object:
        values = absent.copy()
        for name, read in plain:
            values[name] = read(data)
        if flexible:
            _read_tags(data, tagged, values)
        values.pop("", None)
        return shape(**values)

    return read_entity


def _read_tags(
    data: _Source, known: dict[int, tuple[str, Read]], values: dict[str, object]
) -> None:
    for _ in range(data.count(data.varint())):
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


def _field_reader(field: Field, shaped: Field, flexible: bool) -> Read:
    if field.entity is not None:
        assert shaped.entity is not None, field.name
        one = _entity_reader(field.entity, shaped.entity)
        if field.nullable and not field.array:
            return lambda data: one(data) if data.take(1)[0] == 1 else None
    else:
        one = _scalar_reader(field.kind, flexible, field.nullable and not field.array)
    if not field.array:
        return one
    number = _NUMBERS.get(field.kind)
    code = number.format[1:] if number else ""

    def read_array(data: _Source) -> object:
        length = data.varint() - 1 if flexible else _INT32.unpack(data.take(4))[0]
        if length < 0:
            if length == -1 and field.nullable:
                return None
            raise MalformedRequest(f"{field.name} is null or has a negative length")
        count = data.count(length)
        if number:
            return struct.unpack(f">{count}{code}", data.take(count * number.size))
        return tuple([one(data) for _ in range(count)])

    return read_array


def _scalar_reader(kind: str, flexible: bool, nullable: bool) -> Read:
    number = _NUMBERS.get(kind)
    if number is not None:
        unpack, size = number.unpack, number.size
        return lambda data: unpack(data.take(size))[0]
    match kind:
        case "string":
            return _text_reader(_length_reader(flexible, _INT16), nullable)
        case "bytes" | "records":
            return _bytes_reader(_length_reader(flexible, _INT32), nullable)
        case "uuid":
            return _read_uuid
        case "timedelta_i32" | "timedelta_i64":
            width = _INT32 if kind.endswith("32") else _INT64
            return lambda data: datetime.timedelta(
                milliseconds=width.unpack(data.take(width.size))[0]
            )
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


def _read_datetime(data: _Source) -> object:
    value: int = _INT64.unpack(data.take(8))[0]
    return None if value == -1 else _EPOCH + datetime.timedelta(milliseconds=value)


# --- Writing --------------------------------------------------------------------------------------


class _Sink(bytearray):
    """A response in the making, and where in it each array of messages stands.

    Handlers put one and the same tuple into many places (the configs of a thousand topics that
    were given none): from the second time on its bytes are copied.
    """

    __slots__ = ("arrays",)

    def __init__(self) -> None:
        super().__init__()
        self.arrays: dict[tuple[int, Write], slice] = {}


@cache
def _entity_writer(target: Class) -> Write:
    """Writes the fields of `target` from any object that has attributes of their names."""
    flexible: bool = target.__flexible__  # type: ignore[attr-defined]
    plain: list[tuple[str, Write]] = []
    tagged: list[tuple[int, str, object, Write]] = []
    for field in fields(target):
        write = _field_writer(field, flexible)
        if field.tag is None:
            plain.append((field.name, write))
        else:
            tagged.append((field.tag, field.name, field.default, write))
    tagged.sort(key=lambda row: row[0])

    def write_entity(out: _Sink, entity: object) -> None:
        for name, write in plain:
            write(out, getattr(entity, name))
        if not flexible:
            return
        set_tags = [row for row in tagged if getattr(entity, row[1]) != row[2]]
        _write_varint(out, len(set_tags))
        for tag, name, _, write in set_tags:
            body = _Sink()
            write(body, getattr(entity, name))
            _write_varint(out, tag)
            _write_varint(out, len(body))
            out += body

    return write_entity


def _field_writer(field: Field, flexible: bool) -> Write:
    one = (
        _entity_writer(field.entity)
        if field.entity is not None
        else _scalar_writer(field.kind, flexible, field.nullable and not field.array)
    )
    if field.array:
        return _array_writer(field, one, flexible)
    if field.entity is None or not field.nullable or field.tag is not None:
        return one

    def write_nullable(out: _Sink, entity: object) -> None:
        out += b"\xff" if entity is None else b"\x01"
        if entity is not None:
            one(out, entity)

    return write_nullable


def _array_writer(field: Field, one: Write, flexible: bool) -> Write:
    number = _NUMBERS.get(field.kind)
    code = number.format[1:] if number else ""
    nullable = field.nullable

    def write_array(out: _Sink, values: object) -> None:
        if values is None and not nullable:
            values = ()
        if values is None:
            out += b"\x00" if flexible else b"\xff\xff\xff\xff"
            return
        assert isinstance(values, tuple | list), field.name
        if flexible:
            _write_varint(out, len(values) + 1)
        else:
            out += _INT32.pack(len(values))
        if number:
            out += struct.pack(f">{len(values)}{code}", *values)
            return
        place = (id(values), one)
        known = out.arrays.get(place)
        if known is not None:
            out += out[known]
            return
        start = len(out)
        for value in values:
            one(out, value)
        if values:
            out.arrays[place] = slice(start, len(out))

    return write_array


def _scalar_writer(kind: str, flexible: bool, nullable: bool) -> Write:
    number = _NUMBERS.get(kind)
    if number is not None:
        pack = number.pack

        def write_number(out: _Sink, value: object) -> None:
            out += pack(value)

        return write_number
    match kind:
        case "string" | "bytes" | "records":
            width = _INT16 if kind == "string" else _INT32
            return _compact_writer(nullable) if flexible else _sized_writer(width, nullable)
        case "uuid":
            return _write_uuid
        case "timedelta_i32" | "timedelta_i64":
            return _timedelta_writer(_INT32 if kind.endswith("32") else _INT64)
        case "datetime_i64":
            return _write_datetime
    raise NotImplementedError(f"no writer for Kafka's type {kind}")


def _write_varint(out: _Sink, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _raw(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    # A version that has no null here gets the empty value, as Kafka's own messages default to.
    return b"" if value is None else bytes(typing.cast(Iterable[int], value))


def _compact_writer(nullable: bool) -> Write:
    def write_compact(out: _Sink, value: object) -> None:
        if value is None and nullable:
            out.append(0)
            return
        raw = _raw(value)
        _write_varint(out, len(raw) + 1)
        out += raw

    return write_compact


def _sized_writer(width: struct.Struct, nullable: bool) -> Write:
    def write_sized(out: _Sink, value: object) -> None:
        if value is None and nullable:
            out += width.pack(-1)
            return
        raw = _raw(value)
        out += width.pack(len(raw))
        out += raw

    return write_sized


def _write_uuid(out: _Sink, value: object) -> None:
    out += value.bytes if isinstance(value, uuid.UUID) else bytes(16)


def _timedelta_writer(width: struct.Struct) -> Write:
    def write_timedelta(out: _Sink, value: object) -> None:
        assert isinstance(value, datetime.timedelta)
        out += width.pack(value // datetime.timedelta(milliseconds=1))

    return write_timedelta


def _write_datetime(out: _Sink, value: object) -> None:
    if value is None:
        out += _INT64.pack(-1)
        return
    assert isinstance(value, datetime.datetime)
    out += _INT64.pack((value - _EPOCH) // datetime.timedelta(milliseconds=1))
