"""Encodes typed columns into keys and values that begin with a schema id.

The driver selects the schema when a write begins: the given one, a version of the subject, or the
one that is derived from the column's type; and registers it if necessary. Tasks only encode.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StructType

from headrace.pipelines.typed.options import PartOptions, TypedOptionError, TypedOptions
from headrace.schemas.client import NOT_FOUND_STATUS, RequestRefused, SchemaClient
from headrace.schemas.formats import FORMATS
from headrace.schemas.framing import header
from headrace.schemas.interface import ColumnWriter, RegisteredSchema

_EMPTY = pa.scalar(b"", pa.binary())


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """Keys or values, the column's type, and the schema with which they are written."""

    options: PartOptions
    kind: DataType
    schema: RegisteredSchema


@dataclass(frozen=True, slots=True)
class TypedWriting:
    """The schemas that the driver has selected; picklable for the tasks."""

    parts: tuple[WrittenPart, ...]

    def encoder(self) -> "TypedEncoder":
        return TypedEncoder(self)


class TypedEncoder:
    """The encoding of one task."""

    def __init__(self, writing: TypedWriting) -> None:
        self._parts = [(part, column_writer(part)) for part in writing.parts]

    def encode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with their typed columns as bytes; null stays null."""
        for part, writer in self._parts:
            place = batch.schema.get_field_index(part.options.part)
            prefix = pa.scalar(header(part.schema.id), pa.binary())
            octets = writer.encode(batch.column(place))
            framed = pc.binary_join_element_wise(prefix, octets, _EMPTY)
            batch = batch.set_column(place, part.options.part, framed)
        return batch


def column_writer(part: WrittenPart) -> ColumnWriter:
    """The writer of the part's format; the format's libraries are imported now."""
    options = part.options
    return FORMATS[options.kind].column_writer(
        part.schema, options.message, part.kind, options.part
    )


def prepare(options: TypedOptions, schema: StructType) -> TypedWriting:
    """Select the schemas, and register them if necessary."""
    types = {field.name: field.dataType for field in schema.fields}
    return TypedWriting(tuple(_prepared(options.client, part, types) for part in options.parts))


def _prepared(
    client: SchemaClient, part: PartOptions, types: Mapping[str, DataType]
) -> WrittenPart:
    kind = types.get(part.part)
    if kind is None:
        raise TypedOptionError(
            f"{part.part}.format is given, but the DataFrame has no column {part.part!r}; its "
            f"columns are: {', '.join(types)}"
        )
    made = WrittenPart(part, kind, _schema(client, part, kind))
    # Check that the column matches its schema before the first row is written.
    column_writer(made).encode(pa.nulls(0, to_arrow_type(kind, timezone="UTC")))
    return made


def _schema(client: SchemaClient, part: PartOptions, kind: DataType) -> RegisteredSchema:
    if part.version is not None:
        try:
            found = client.by_version(part.subject, part.version, part.kind)
        except RequestRefused as error:
            raise _explained(error, part) from None
        if found.kind != part.kind:
            raise TypedOptionError(
                f"{part.part}.format={part.kind.lower()}, but subject {part.subject!r} is of type "
                f"{found.kind}"
            )
        return found
    text = part.schema or derived(client, part, kind)
    give = client.register if part.register else client.registered
    try:
        schema_id = give(part.subject, part.kind, text)
    except RequestRefused as error:
        raise _explained(error, part) from None
    if FORMATS[part.kind].readable_form:
        return client.by_id(schema_id, part.kind)
    return RegisteredSchema(part.kind, text, (), schema_id)


def derived(client: SchemaClient, part: PartOptions, kind: DataType) -> str:
    """The schema that is derived from a column's type."""
    name = re.sub(r"\W|^(?=\d)", "_", part.subject, flags=re.ASCII)
    return FORMATS[part.kind].derived(kind, name, lambda: _latest(client, part))


def _latest(client: SchemaClient, part: PartOptions) -> RegisteredSchema | None:
    try:
        return client.by_version(part.subject, "latest", part.kind)
    except RequestRefused as error:
        if error.status != NOT_FOUND_STATUS:
            raise
        return None


def _explained(error: RequestRefused, part: PartOptions) -> TypedOptionError:
    return TypedOptionError(
        f"the schema of the column {part.part!r} cannot be used for subject {part.subject!r}: "
        f"{error}. Set {part.part}.schema, or {part.part}.subject.version=latest to write with "
        "the schema of the subject"
    )
