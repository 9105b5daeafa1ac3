"""Typed columns into keys and values that begin with a schema's id.

The driver decides on a schema when a write begins: the one that is given, a version that the
subject has, or the one that the column's type has by itself; and registers it if need be. Tasks
only encode.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StructType

from headrace.pipelines.typed.options import PartOptions, TypedOptionError, TypedOptions
from headrace.pipelines.typed.registry import UNKNOWN_STATUS, Refused, Registry, Schema

_EMPTY = pa.scalar(b"", pa.binary())


class Encoding(Protocol):
    """Rows as bytes of one format."""

    def encode(self, array: pa.Array) -> pa.Array: ...


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """Keys or values, the column's type, and the schema with which they are written."""

    options: PartOptions
    kind: DataType
    schema: Schema


@dataclass(frozen=True, slots=True)
class TypedWriting:
    """What the driver has decided; goes to the tasks as it is."""

    parts: tuple[WrittenPart, ...]

    def encoder(self) -> "TypedEncoder":
        return TypedEncoder(self)


class TypedEncoder:
    """One task's work."""

    def __init__(self, writing: TypedWriting) -> None:
        self._parts = [(part, make_encoding(part)) for part in writing.parts]

    def encode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with their typed columns as bytes; a null stays one."""
        for part, encoding in self._parts:
            place = batch.schema.get_field_index(part.options.part)
            prefix = pa.scalar(b"\0" + part.schema.id.to_bytes(4, "big"), pa.binary())
            octets = encoding.encode(batch.column(place))
            framed = pc.binary_join_element_wise(prefix, octets, _EMPTY)
            batch = batch.set_column(place, part.options.part, framed)
        return batch


def make_encoding(part: WrittenPart) -> Encoding:
    """The part's format; its library is imported now and not before."""
    column = part.options.part
    if part.options.kind == "AVRO":
        from headrace.pipelines.typed.avro_encoding import AvroEncoding

        return AvroEncoding(part.schema, column)
    if part.options.kind == "JSON":
        from headrace.pipelines.typed.json_encoding import JsonEncoding

        return JsonEncoding(part.kind, column)
    from headrace.pipelines.typed.protobuf_encoding import ProtobufEncoding

    return ProtobufEncoding(part.schema, part.options.message, column)


def prepare(options: TypedOptions, schema: StructType) -> TypedWriting:
    """Decide on the schemas, and make sure that the registry has them."""
    types = {field.name: field.dataType for field in schema.fields}
    return TypedWriting(tuple(_prepared(options.registry, part, types) for part in options.parts))


def _prepared(registry: Registry, part: PartOptions, types: Mapping[str, DataType]) -> WrittenPart:
    kind = types.get(part.part)
    if kind is None:
        raise TypedOptionError(
            f"{part.part}.format is given, but the DataFrame has no column {part.part!r}; its "
            f"columns are: {', '.join(types)}"
        )
    made = WrittenPart(part, kind, _schema(registry, part, kind))
    # Whether the column fits its schema shows before the first row is written.
    make_encoding(made).encode(pa.nulls(0, to_arrow_type(kind, timezone="UTC")))
    return made


def _schema(registry: Registry, part: PartOptions, kind: DataType) -> Schema:
    if part.version is not None:
        try:
            found = registry.by_version(part.subject, part.version, part.kind)
        except Refused as error:
            raise _explained(error, part) from None
        if found.kind != part.kind:
            raise TypedOptionError(
                f"{part.part}.format={part.kind.lower()}, but subject {part.subject!r} is of type "
                f"{found.kind}"
            )
        return found
    text = part.schema or derived(registry, part, kind)
    give = registry.register if part.register else registry.registered
    try:
        schema_id = give(part.subject, part.kind, text)
    except Refused as error:
        raise _explained(error, part) from None
    if part.kind == "PROTOBUF":
        return registry.by_id(schema_id, part.kind)
    return Schema(part.kind, text, (), schema_id)


def derived(registry: Registry, part: PartOptions, kind: DataType) -> str:
    """The schema that a column's type has by itself."""
    name = re.sub(r"\W|^(?=\d)", "_", part.subject, flags=re.ASCII)
    if part.kind == "AVRO":
        from headrace.pipelines.typed import avro_encoding

        return avro_encoding.derived(kind, name)
    if part.kind == "JSON":
        from headrace.pipelines.typed import json_encoding

        return json_encoding.derived(kind, name)
    from headrace.pipelines.typed import protobuf_encoding

    try:
        before = registry.by_version(part.subject, "latest", part.kind)
    except Refused as error:
        if error.status != UNKNOWN_STATUS:
            raise
        before = None
    return protobuf_encoding.derived(kind, name, before)


def _explained(error: Refused, part: PartOptions) -> TypedOptionError:
    return TypedOptionError(
        f"the schema of the column {part.part!r} cannot be had from subject {part.subject!r}: "
        f"{error}. Give {part.part}.schema, or {part.part}.subject.version=latest to write with "
        "what the subject has"
    )
