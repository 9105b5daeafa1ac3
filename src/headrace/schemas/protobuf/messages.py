"""Protobuf files as descriptors, and their messages.

A value begins with the indexes of its message in the file: a count and the indexes, each zigzag.

    count | index of a message | index of a message within it | ...     one 0 is the first message
"""

import base64
import importlib

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import DecodeError

from headrace.schemas.errors import InvalidSchema
from headrace.schemas.interface import RegisteredSchema
from headrace.schemas.protobuf.known_files import known_imports

WELL_KNOWN = (
    "any", "descriptor", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers",
)  # fmt: skip
MAIN = "headrace-main.proto"
FIRST_MESSAGE = b"\0"
INDEXES_MAX = 30
"""The limit of nested messages."""


def descriptor_of(schema: RegisteredSchema) -> FileDescriptor:
    """The file of a registered schema, whose text is a descriptor in base64."""
    pool = descriptor_pool.DescriptorPool()
    try:
        for name in WELL_KNOWN:
            module = importlib.import_module(f"google.protobuf.{name}_pb2")
            pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        files = [_file(each.text, each.name) for each in schema.dependencies]
        files.append(_file(schema.text, MAIN))
        given = {file.name for file in files}
        imports = {path for file in files for path in file.dependency} - given
        for file in (*known_imports(sorted(imports)), *files):
            pool.Add(file)
        return pool.FindFileByName(MAIN)
    except (TypeError, KeyError, ValueError, DecodeError) as error:
        raise InvalidSchema(f"schema {schema.id} is not a Protobuf schema: {error}") from None


def _file(text: str, name: str) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto()
    file.ParseFromString(base64.b64decode(text))
    file.name = name
    return file


def message_named(file: FileDescriptor, name: str | None) -> Descriptor:
    """The message with this full or last name; by default the first of the file."""
    found = list(file.message_types_by_name.values())
    if name is None and found:
        return found[0]
    known = []
    while found:
        message = found.pop(0)
        if name in (message.full_name, message.name):
            return message
        known.append(message.full_name)
        found += message.nested_types
    raise InvalidSchema(
        f"the Protobuf schema has no message {name}; it has {', '.join(known)}"
        if known
        else "the Protobuf schema has no message"
    )


def message_at(file: FileDescriptor, indexes: tuple[int, ...]) -> Descriptor:
    """The message with these indexes: an index, then indexes of nested messages."""
    found = list(file.message_types_by_name.values())[indexes[0]]
    for index in indexes[1:]:
        found = found.nested_types[index]
    return found


def message_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """The indexes of a value's message in its file, and the start of the message in `data`."""
    if data[:1] == FIRST_MESSAGE:
        return (0,), 1
    count, at = _read_zigzag(data, 0)
    if not 0 < count <= INDEXES_MAX:
        raise ValueError(f"{count} message indexes")
    found = []
    for _ in range(count):
        index, at = _read_zigzag(data, at)
        if index < 0:
            raise ValueError(f"the message index {index}")
        found.append(index)
    return tuple(found), at


def _read_zigzag(data: bytes, at: int) -> tuple[int, int]:
    shift = found = 0
    while shift < 35:
        if at >= len(data):
            raise ValueError("too short for its message indexes")
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at
    raise ValueError("a message index has too many bytes")


def indexes_of(message: Descriptor) -> bytes:
    """The encoded indexes of a message, with which values begin."""
    found: list[int] = []
    inner: Descriptor | None = message
    while inner is not None:
        around = inner.containing_type
        beside = (
            inner.file.message_types_by_name.values() if around is None else around.nested_types
        )
        found.insert(0, [each.full_name for each in beside].index(inner.full_name))
        inner = around
    return FIRST_MESSAGE if found == [0] else b"".join(map(_write_zigzag, (len(found), *found)))


def _write_zigzag(number: int) -> bytes:
    raw, made = number << 1, bytearray()
    while raw >= 0x80:
        made.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*made, raw])
