"""Keys and values of a topic as typed columns, and a quarantine for what cannot be decoded.

    0x00 | the schema id, 4 bytes | Avro's binary form, or JSON, or Protobuf's with its message

The reader's schema is requested once, when a query starts, and does not change while it runs;
records of all other schemas are converted to it.
"""

import uuid
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from headrace.pipelines.typed.known_schemas import KnownSchemas
from headrace.pipelines.typed.options import (
    ERROR,
    RAW,
    PartOptions,
    TypedOptionError,
    TypedOptions,
)
from headrace.schemas.client import (
    NOT_FOUND_STATUS,
    UNPROCESSABLE_STATUS,
    RequestRefused,
    SchemaClient,
)
from headrace.schemas.columns.cursors import Values, scattered
from headrace.schemas.columns.pieces import byte_array
from headrace.schemas.formats import FORMATS
from headrace.schemas.framing import HEADER, MAGIC
from headrace.schemas.interface import ColumnReader, RegisteredSchema
from headrace.wire.batch_columns import BatchColumns
from headrace.wire.columns import Bytes, Numbers

RAW_TYPE = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])


@dataclass(frozen=True, slots=True)
class TypedPart:
    """Keys or values, and the schema with which they are read."""

    options: PartOptions
    schema: RegisteredSchema


@dataclass(frozen=True, slots=True)
class TypedTopic:
    """The schemas that the driver has looked up; picklable for the tasks."""

    client: SchemaClient
    parts: tuple[TypedPart, ...]
    query: str
    """The id of the query; a worker caches schemas per query."""
    raw_of_all: bool = False

    def spark_types(self) -> dict[str, DataType]:
        """The columns that differ from those of an untyped topic."""
        types: dict[str, DataType] = {
            part.options.part: column_reader(part).spark_type for part in self.parts
        }
        return types | {ERROR: StringType(), RAW: RAW_TYPE}


def look_up(options: TypedOptions) -> TypedTopic:
    """Look up the reader's schemas in the registry."""
    parts = tuple(TypedPart(part, _schema(options.client, part)) for part in options.parts)
    return TypedTopic(options.client, parts, uuid.uuid4().hex, options.raw_of_all)


def _schema(client: SchemaClient, part: PartOptions) -> RegisteredSchema:
    try:
        found = client.by_version(part.subject, part.version or "latest", part.kind)
    except RequestRefused as error:
        if error.status == NOT_FOUND_STATUS:
            raise TypedOptionError(
                f"the registry has no {_version(part)}; register a schema first, or select another "
                f"with {part.part}.subject and {part.part}.subject.version"
            ) from None
        if error.status != UNPROCESSABLE_STATUS:
            raise
        found = RegisteredSchema("another type", "")
    if found.kind != part.kind:
        raise TypedOptionError(
            f"{part.part}.format={part.kind.lower()}, but {_version(part)} is {found.kind}"
        )
    return found


def _version(part: PartOptions) -> str:
    return f"subject {part.subject!r}, version {part.version or 'latest'}"


def column_reader(part: TypedPart) -> ColumnReader:
    """The reader of the part's format; the format's libraries are imported now."""
    return FORMATS[part.options.kind].column_reader(part.schema, part.options.message)


class TypedReading:
    """The decoding of one task."""

    def __init__(self, topic: TypedTopic) -> None:
        self._parts = {
            part.options.part: PartReading(part, topic.client, topic.query) for part in topic.parts
        }
        self._raw_of_all = topic.raw_of_all

    def columns(self, columns: BatchColumns) -> dict[str, pa.Array]:
        """The typed columns of these records, and their quarantine."""
        places = {
            "key": (columns.key_at, columns.key_length),
            "value": (columns.value_at, columns.value_length),
        }
        found: dict[str, pa.Array] = {}
        bad: dict[int, str] = {}
        for name, part in self._parts.items():
            found[name], reasons = part.read(columns.octets, *places[name])
            for row, why in reasons.items():
                bad[row] = f"{bad[row]}; {name}: {why}" if row in bad else f"{name}: {why}"
        rows = np.array(sorted(bad), np.int64)
        count = len(columns)
        texts = pa.array([bad[row] for row in rows.tolist()], pa.string())
        found[ERROR] = scattered([(rows, texts)], count, pa.string())
        if self._raw_of_all:
            rows = np.arange(count, dtype=np.int64)
        raw = [
            byte_array(columns.payload, at[rows], length[rows]) for at, length in places.values()
        ]
        kind = to_arrow_type(RAW_TYPE, timezone="UTC")
        pairs = pa.StructArray.from_arrays(raw, fields=list(kind))
        found[RAW] = scattered([(rows, pairs)], count, kind)
        return found


class PartReading:
    """The decoding of the keys or values of one topic."""

    def __init__(self, part: TypedPart, client: SchemaClient, query: str) -> None:
        self._reader = column_reader(part)
        self._type = to_arrow_type(self._reader.spark_type, timezone="UTC")
        self._known = KnownSchemas(client, part.options.kind, query)
        self._known.add(part.schema)

    def read(self, octets: Bytes, at: Numbers, length: Numbers) -> tuple[pa.Array, dict[int, str]]:
        """The column, and the errors of rows that are null; rows without a value are null too."""
        framed, bad = _framed(octets, at, length)
        parts = []
        ids = _ids(octets, at[framed])
        for schema_id in np.unique(ids).tolist():
            rows = framed[ids == schema_id]
            schema = self._known.get(schema_id)
            if isinstance(schema, str):
                bad |= dict.fromkeys(rows.tolist(), schema)
                continue
            values = Values(octets, at[rows] + HEADER.size, length[rows] - HEADER.size)
            decoded = self._reader.decode(values, schema)
            for row, why in decoded.bad.items():
                bad[int(rows[row])] = f"{why} (schema {schema_id})"
            if len(rows) == len(at):
                return decoded.array, bad
            parts.append((rows, decoded.array))
        return scattered(parts, len(at), self._type), bad


def _framed(octets: Bytes, at: Numbers, length: Numbers) -> tuple[Numbers, dict[int, str]]:
    """The rows that begin with an id, and the errors of the others that are not null."""
    short = (length >= 0) & (length < HEADER.size)
    long = length >= HEADER.size
    first = octets[np.where(long, at, 0)]
    rows = np.flatnonzero(long & (first == MAGIC))
    bad = {row: f"{length[row]} bytes are too few for a schema id" for row in _places(short)}
    for row in _places(long & (first != MAGIC)):
        bad[row] = f"begins with 0x{first[row]:02x}, not with 0x00 and a schema id"
    return rows, bad


def _places(flags: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> list[int]:
    return [int(row) for row in np.flatnonzero(flags)]


def _ids(octets: Bytes, at: Numbers) -> Numbers:
    found = np.zeros(len(at), np.int64)
    for place in range(1, HEADER.size):
        found = found << 8 | octets[at + place]
    return found
