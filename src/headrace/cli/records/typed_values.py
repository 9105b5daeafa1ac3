"""Values with a schema: JSON lines into bytes that begin with a schema's id, and back.

0x00 | id, 4 bytes | Avro's binary form, or JSON, or message indexes and Protobuf's form
"""

import base64
import datetime
import decimal
import io
import json
import struct
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from headrace.cli.failures import Failure, bad_usage
from headrace.cli.records.record_text import BadLine
from headrace.cli.schemas.registry_client import SchemaRegistry, as_dict, as_list

if TYPE_CHECKING:
    from confluent_kafka import Message

WELL_KNOWN_PROTOS = (
    "any", "descriptor", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers",
)  # fmt: skip
HEADER = struct.Struct(">bI")
# An empty list of indexes is short for the file's first message.
FIRST_MESSAGE = b"\x00"

Encode = Callable[[object], bytes]
Decode = Callable[[bytes], object]


class Schema:
    """A registered schema with the functions of its type."""

    def __init__(self, registry: SchemaRegistry, schema_id: int) -> None:
        self.id = schema_id
        found = as_dict(registry.get("schemas", "ids", str(schema_id)))
        kind = str(found.get("schemaType", "AVRO"))
        try:
            maker = {"AVRO": _avro, "JSON": _json, "PROTOBUF": _protobuf}[kind]
            self.encode, self.decode = maker(registry, schema_id, found)
        except KeyError:
            raise Failure(f"schema {schema_id} has the unknown type {kind}") from None
        except ModuleNotFoundError as error:
            raise Failure(
                f"schemas of type {kind} need the package {error.name}",
                hint="pip install 'headrace[services]'",
            ) from None


def _references(registry: SchemaRegistry, found: dict[str, object]) -> list[dict[str, object]]:
    """What a schema refers to, each after what it refers to itself."""
    made: dict[str, dict[str, object]] = {}
    for each in map(as_dict, as_list(found.get("references") or [])):
        form = {"format": "serialized"} if found.get("schemaType") == "PROTOBUF" else {}
        path = ("subjects", str(each["subject"]), "versions", str(each["version"]))
        target = as_dict(registry.get(*path, **form))
        for inner in _references(registry, target):
            made.setdefault(str(inner["name"]), inner)
        made[str(each["name"])] = {**target, "name": each["name"]}
    return list(made.values())


def _avro(
    registry: SchemaRegistry, schema_id: int, found: dict[str, object]
) -> tuple[Encode, Decode]:
    import fastavro
    from fastavro.validation import ValidationError, validate

    named: dict[str, Any] = {}
    for each in _references(registry, found):
        fastavro.parse_schema(json.loads(str(each["schema"])), named_schemas=named)
    parsed = fastavro.parse_schema(json.loads(str(found["schema"])), named_schemas=named)

    def encode(value: object) -> bytes:
        try:
            validate(value, parsed, raise_errors=True)
            out = io.BytesIO()
            fastavro.schemaless_writer(out, parsed, cast(Any, value))
        except ValidationError as error:
            raise BadLine(f"not of schema {schema_id}: {_first(error)}") from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadLine(f"not of schema {schema_id}: {error}") from None
        return out.getvalue()

    def decode(data: bytes) -> object:
        return fastavro.schemaless_reader(io.BytesIO(data), parsed, None)

    return encode, decode


def _first(error: Exception) -> str:
    """The first line of a list of reasons."""
    return " ".join(str(error).split())[:300]


def _json(
    registry: SchemaRegistry, schema_id: int, found: dict[str, object]
) -> tuple[Encode, Decode]:
    from jsonschema.validators import Draft7Validator, validator_for
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT7

    schema = json.loads(str(found["schema"]))
    known = [
        (str(each["name"]), Resource(json.loads(str(each["schema"])), DRAFT7))
        for each in _references(registry, found)
    ]
    checker = validator_for(schema, default=Draft7Validator)(
        schema, registry=Registry().with_resources(known)
    )

    def encode(value: object) -> bytes:
        for problem in checker.iter_errors(value):
            place = ".".join(map(str, problem.absolute_path))
            where = f"field '{place}': " if place else ""
            raise BadLine(f"not of schema {schema_id}: {where}{problem.message[:300]}")
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()

    return encode, json.loads


def _protobuf(
    registry: SchemaRegistry, schema_id: int, _: dict[str, object]
) -> tuple[Encode, Decode]:
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

    from headrace.registry.formats.proto_known import known_imports

    whole = as_dict(registry.get("schemas", "ids", str(schema_id), format="serialized"))
    pool = descriptor_pool.DescriptorPool()
    for name in WELL_KNOWN_PROTOS:
        module = __import__(f"google.protobuf.{name}_pb2", fromlist=["DESCRIPTOR"])
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    files = []
    for each in (*_references(registry, whole), {**whole, "name": f"schema-{schema_id}.proto"}):
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(str(each["schema"])))
        file.name = str(each["name"])
        files.append(file)
    given = {file.name for file in files}
    imports = {path for file in files for path in file.dependency} - given
    for file in (*known_imports(sorted(imports)), *files):
        pool.Add(file)
    top = pool.FindFileByName(f"schema-{schema_id}.proto")

    def encode(value: object) -> bytes:
        kind = message_factory.GetMessageClass(next(iter(top.message_types_by_name.values())))
        try:
            message = json_format.ParseDict(value, kind())
        except (json_format.ParseError, TypeError, AttributeError) as error:
            raise BadLine(f"not of schema {schema_id}: {error}") from None
        return FIRST_MESSAGE + bytes(message.SerializeToString())

    def decode(data: bytes) -> object:
        indexes, data = _message_indexes(data)
        found = list(top.message_types_by_name.values())[indexes[0]]
        for index in indexes[1:]:
            found = found.nested_types[index]
        message = message_factory.GetMessageClass(found).FromString(data)
        return json_format.MessageToDict(message, preserving_proto_field_name=True)

    return encode, decode


def _message_indexes(data: bytes) -> tuple[list[int], bytes]:
    """Which message of the file a value is, and what follows: zig-zag numbers."""
    numbers: list[int] = []
    position = 0

    def number() -> int:
        nonlocal position
        shift = found = 0
        while True:
            byte = data[position]
            position += 1
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)

    for _ in range(number()):
        numbers.append(number())  # noqa: PERF401
    return numbers or [0], data[position:]


def chosen(registry: SchemaRegistry, topic: str, choice: str) -> Schema:
    """The schema that --schema means: `latest`, an id, or a file that is registered first."""
    subject = f"{topic}-value"
    if choice.isdecimal():
        return Schema(registry, int(choice))
    if choice == "latest":
        latest = as_dict(registry.get("subjects", subject, "versions", "latest"))
        return Schema(registry, int(str(latest["id"])))
    if not Path(choice).exists():
        raise bad_usage(f"--schema {choice!r} is neither latest nor an id nor a file")
    from headrace.cli.schemas.schemas import submission

    made = registry.post("subjects", subject, "versions", body=submission(choice, None, None))
    return Schema(registry, int(str(as_dict(made)["id"])))


def encoded(schema: Schema, value: bytes | None) -> bytes | None:
    """A JSON text in the schema's form; a tombstone stays one."""
    if value is None:
        return None
    try:
        found = json.loads(value)
    except ValueError as error:
        raise BadLine(f"not JSON: {error}") from None
    return HEADER.pack(0, schema.id) + schema.encode(found)


class Decoder:
    """Turns values with an id into JSON text, each schema fetched once."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._schemas: dict[int, Schema] = {}

    def text(self, value: bytes | None) -> bytes | None:
        """JSON text; a value without an id stays as it is."""
        if value is None or len(value) < HEADER.size or value[0] != 0:
            return value
        schema_id = HEADER.unpack_from(value)[1]
        schema = self._schemas.get(schema_id)
        if schema is None:
            schema = self._schemas[schema_id] = Schema(self._registry, schema_id)
        try:
            found = schema.decode(value[HEADER.size :])
        except Exception as error:
            raise Failure(
                f"a value is not of its schema {schema_id}: {error}", code="BAD_VALUE"
            ) from None
        return json.dumps(found, ensure_ascii=False, default=_plain).encode()


def _plain(value: object) -> object:
    """What JSON has no word for."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID | datetime.timedelta):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be shown")


class TypedMessage:
    """A message whose key and value are shown as JSON where they have a schema."""

    def __init__(self, message: "Message", decoder: Decoder) -> None:
        self._message = message
        self._decoder = decoder

    def key(self) -> bytes | None:
        return self._decoder.text(self._message.key())

    def value(self) -> bytes | None:
        return self._decoder.text(self._message.value())

    def __getattr__(self, name: str) -> object:
        return getattr(self._message, name)
