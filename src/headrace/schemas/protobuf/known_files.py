"""Files that a Protobuf schema may import without a reference, apart from `google/protobuf/*`.

They are those of existing registries: Google's common types, from the package
googleapis-common-protos, and Confluent's, which are defined here. Readers of records need the same
files. This module does not need protoc.
"""

import importlib
from collections.abc import Callable, Iterable
from functools import cache

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

GOOGLE_TYPES = (
    "calendar_period", "color", "date", "datetime", "dayofweek", "decimal", "expr", "fraction",
    "interval", "latlng", "money", "month", "phone_number", "postal_address", "quaternion",
    "timeofday",
)  # fmt: skip
META_NUMBER = 1088
"""The number of Confluent's extension of all kinds of options."""
Field = FieldDescriptorProto


def known_file(path: str) -> FileDescriptorProto | None:
    """The file with this import path; None if it is not known here."""
    if path in _CONFLUENT:
        return _CONFLUENT[path]()
    return _google_type(path) if path.startswith("google/type/") else None


def file_descriptor(raw: bytes) -> FileDescriptorProto:
    """Parse a descriptor, with Confluent's options as known fields."""
    made: FileDescriptorProto = _descriptor_class().FromString(raw)
    return made


@cache
def _descriptor_class() -> type[FileDescriptorProto]:
    # A separate pool, because other code may register files in the default one.
    pool = DescriptorPool()
    pool.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(_meta())
    pool.FindFileByName("confluent/meta.proto")
    name = FileDescriptorProto.DESCRIPTOR.full_name
    made: type[FileDescriptorProto] = GetMessageClass(pool.FindMessageTypeByName(name))
    return made


def known_imports(paths: Iterable[str]) -> list[FileDescriptorProto]:
    """The known files among these, and their imports, each after its own imports."""
    found: dict[str, FileDescriptorProto] = {}

    def visit(path: str) -> None:
        file = None if path in found else known_file(path)
        if file is not None:
            for each in file.dependency:
                visit(each)
            found[path] = file

    for path in paths:
        visit(path)
    return list(found.values())


@cache
def _google_type(path: str) -> FileDescriptorProto | None:
    name = path.removeprefix("google/type/").removesuffix(".proto")
    if name not in GOOGLE_TYPES:
        return None
    try:
        module = importlib.import_module(f"google.type.{name}_pb2")
    except ModuleNotFoundError:
        return None
    return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


@cache
def _meta() -> FileDescriptorProto:
    """confluent/meta.proto: documentation, tags and rules as options of any part of a schema."""
    file = FileDescriptorProto(
        name="confluent/meta.proto",
        package="confluent",
        syntax="proto3",
        dependency=["google/protobuf/descriptor.proto"],
    )
    meta = file.message_type.add(name="Meta")
    entry = meta.nested_type.add(name="ParamsEntry")
    entry.options.map_entry = True
    for message, name, number in ((entry, "key", 1), (entry, "value", 2), (meta, "doc", 1)):
        _add(message, name, number, Field.TYPE_STRING)
    params = _add(meta, "params", 2, Field.TYPE_MESSAGE, ".confluent.Meta.ParamsEntry")
    tags = _add(meta, "tags", 3, Field.TYPE_STRING)
    rules = _add(meta, "rules", 4, Field.TYPE_MESSAGE, ".confluent.Rule")
    for repeated in (params, tags, rules):
        repeated.label = Field.LABEL_REPEATED
    rule = file.message_type.add(name="Rule")
    for number, name in enumerate(("name", "doc", "expr", "sql"), 1):
        _add(rule, name, number, Field.TYPE_STRING)
    for kind in ("file", "message", "field", "enum", "enum_value"):
        options = "".join(part.capitalize() for part in kind.split("_")) + "Options"
        file.extension.add(
            name=f"{kind}_meta",
            number=META_NUMBER,
            label=Field.LABEL_OPTIONAL,
            type=Field.TYPE_MESSAGE,
            type_name=".confluent.Meta",
            extendee=f".google.protobuf.{options}",
        )
    return file


@cache
def _decimal() -> FileDescriptorProto:
    """confluent/type/decimal.proto: a number as unscaled big-endian bytes."""
    file = _type_file("decimal")
    decimal = file.message_type.add(name="Decimal")
    _add(decimal, "value", 1, Field.TYPE_BYTES)
    _add(decimal, "precision", 2, Field.TYPE_UINT32)
    _add(decimal, "scale", 3, Field.TYPE_INT32)
    return file


@cache
def _variant() -> FileDescriptorProto:
    """confluent/type/variant.proto: a value of any type in the encoding of Parquet's Variant."""
    file = _type_file("variant")
    variant = file.message_type.add(name="Variant")
    _add(variant, "metadata", 1, Field.TYPE_BYTES)
    _add(variant, "value", 2, Field.TYPE_BYTES)
    return file


def _type_file(name: str) -> FileDescriptorProto:
    path = f"confluent/type/{name}.proto"
    return FileDescriptorProto(name=path, package="confluent.type", syntax="proto3")


def _add(
    message: DescriptorProto, name: str, number: int, kind: int, type_name: str = ""
) -> FieldDescriptorProto:
    return message.field.add(
        name=name,
        number=number,
        label=Field.LABEL_OPTIONAL,
        type=kind,
        type_name=type_name or None,
    )


_CONFLUENT: dict[str, Callable[[], FileDescriptorProto]] = {
    "confluent/meta.proto": _meta,
    "confluent/type/decimal.proto": _decimal,
    "confluent/type/variant.proto": _variant,
}
