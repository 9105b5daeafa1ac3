"""Keys and values with a schema of a registry: Avro, JSON Schema, Protobuf.

They are decoded and encoded as those of typed topics in Spark (`pipelines/typed`), by whole Arrow
arrays, with the schema id before each value. The libraries of the formats are imported with this
module, and PySpark's types with them; Java is not started.
"""

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_type

from headrace.pipelines.typed.options import PartOptions, TypedOptions
from headrace.pipelines.typed.reading import PartReading, TypedPart, look_up
from headrace.pipelines.typed.writing import TypedWriting, WrittenPart, prepare
from headrace.schemas.client import SchemaClient
from headrace.schemas.errors import BadColumn, BadValue
from headrace.sql.records.errors import WrongValue
from headrace.sql.records.types import ColumnType, Convert
from headrace.sql.records.values import converter
from headrace.sql.sources import Format

KINDS = {Format.AVRO: "AVRO", Format.JSON_SR: "JSON", Format.PROTOBUF: "PROTOBUF"}
"""The registry's names of the formats."""
_SPARK_TYPES: dict[str, spark.DataType] = {
    "boolean": spark.BooleanType(),
    "tinyint": spark.ByteType(),
    "smallint": spark.ShortType(),
    "int": spark.IntegerType(),
    "bigint": spark.LongType(),
    "float": spark.FloatType(),
    "double": spark.DoubleType(),
    "string": spark.StringType(),
    "binary": spark.BinaryType(),
    "date": spark.DateType(),
    "timestamp": spark.TimestampType(),
    "timestamp_ntz": spark.TimestampNTZType(),
    "time": spark.TimeType(),
    "variant": spark.VariantType(),
    "void": spark.NullType(),
}


class RegisteredPart(NamedTuple):
    """Keys or values of a topic, and their columns."""

    part: str
    """`key` or `value`."""
    topic: str
    format: Format
    schema_id: int | None
    columns: Sequence[tuple[str, ColumnType]]
    wrapped: bool
    """Whether a value is a record with a field for each column, or the only column itself."""

    @property
    def options(self) -> PartOptions:
        return PartOptions(self.part, KINDS[self.format], f"{self.topic}-{self.part}", None, None)


def spark_type(kind: ColumnType) -> spark.DataType:
    """The type with Spark's classes."""
    if kind.kind == "struct":
        return spark.StructType(
            [spark.StructField(name, spark_type(each)) for name, each in kind.fields]
        )
    if kind.kind == "array":
        return spark.ArrayType(spark_type(kind.items))
    if kind.kind == "map":
        return spark.MapType(spark_type(kind.keys), spark_type(kind.items))
    if kind.kind == "decimal":
        return spark.DecimalType(kind.precision, kind.scale)
    return _SPARK_TYPES[kind.kind]


class RegisteredReading:
    """Decodes keys or values of any number of schemas with the latest one of their subject."""

    def __init__(self, part: RegisteredPart, client: SchemaClient) -> None:
        options = part.options
        if part.schema_id is None:
            (typed,) = look_up(TypedOptions(client, (options,))).parts
        else:
            typed = TypedPart(options, client.by_id(part.schema_id, options.kind))
        self._reading = PartReading(typed, client, uuid.uuid4().hex)
        self._columns = [
            (name, converter(kind, f"{part.part}.{name}")) for name, kind in part.columns
        ]
        self._is_single = len(part.columns) == 1
        self._declared_struct = self._is_single and part.columns[0][1].kind == "struct"

    def read(self, octets: Sequence[bytes]) -> list[Sequence[object] | WrongValue]:
        """The values of the columns of each, or what is wrong with it."""
        lengths = np.fromiter(map(len, octets), np.int64, len(octets))
        starts = np.cumsum(lengths) - lengths
        # A byte more, so that there is one to look at if all values are empty.
        joined = np.frombuffer(b"".join((*octets, b"\0")), np.uint8)
        array, bad = self._reading.read(joined, starts, lengths)
        found: list[Sequence[object] | WrongValue] = list(self._rows(array))
        for row, why in bad.items():
            found[row] = WrongValue(why)
        return found

    def _rows(self, array: pa.Array) -> list[Sequence[object] | WrongValue]:
        if not self._is_wrapped(array.type):
            return [_converted((value,), self._columns) for value in _values(array)]
        names = [_field(array.type, name) for name, _ in self._columns]
        nothing: dict[str, object] = {}
        return [
            _converted([(row or nothing).get(name) for name in names], self._columns)
            for row in _values(array)
        ]

    def _is_wrapped(self, kind: pa.DataType) -> bool:
        if not pa.types.is_struct(kind):
            return False
        if not self._is_single:
            return True
        has_field = kind.get_field_index(_field(kind, self._columns[0][0])) >= 0
        return has_field or not self._declared_struct


def _values(array: pa.Array) -> list[Any]:
    return cast("list[Any]", array.to_pylist(maps_as_pydicts="lossy"))


def _field(kind: pa.DataType, name: str) -> str:
    """The field of a column: of the same name, or of the same name in another case."""
    names = [each.name for each in kind]
    if name in names:
        return name
    return next((each for each in names if each.casefold() == name.casefold()), name)


def _converted(
    values: Sequence[object], columns: Sequence[tuple[str, Convert]]
) -> Sequence[object] | WrongValue:
    """The values as the types of the columns. Those that have no such value are null, as in Spark:
    the record is one of its schema, whatever the columns of the source are."""
    return [
        None if value is None else _or_none(convert, value)
        for value, (_, convert) in zip(values, columns, strict=True)
    ]


def _or_none(convert: Convert, value: object) -> object:
    try:
        return convert(value)
    except WrongValue:
        return None


class RegisteredWriting:
    """Encodes keys or values with the schema of their columns, which is registered if necessary."""

    def __init__(self, part: RegisteredPart, client: SchemaClient) -> None:
        fields = tuple(part.columns)
        self._part = part
        self._whole = ColumnType("struct", fields=fields) if part.wrapped else fields[0][1]
        kind = spark_type(self._whole)
        if part.schema_id is None:
            schema = spark.StructType([spark.StructField(part.part, kind)])
            writing = prepare(TypedOptions(client, (part.options,)), schema)
        else:
            options = part.options
            found = client.by_id(part.schema_id, options.kind)
            writing = TypedWriting((WrittenPart(options, kind, found),))
        self._encoder = writing.encoder()
        self._type = to_arrow_type(kind, timezone="UTC")

    def write(self, values: Sequence[object]) -> bytes:
        """The bytes of the columns' values, which have the types of the columns."""
        row: object = values[0]
        if self._part.wrapped:
            row = {name: each for (name, _), each in zip(self._part.columns, values, strict=True)}
        array = pa.array([_arrow_value(row, self._whole)], self._type)
        batch = pa.RecordBatch.from_arrays([array], [self._part.part])
        try:
            return cast(bytes, self._encoder.encode(batch).column(0)[0].as_py())
        except (BadColumn, BadValue, ValueError, OverflowError) as error:
            raise WrongValue(str(error)) from None


def _arrow_value(value: Any, kind: ColumnType) -> object:
    """The value as Arrow takes it: maps are lists of pairs there."""
    if value is None or not kind.is_nested:
        return value
    if kind.kind == "struct":
        return {name: _arrow_value(value.get(name), each) for name, each in kind.fields}
    if kind.kind == "array":
        return [_arrow_value(each, kind.items) for each in value]
    return [(key, _arrow_value(each, kind.items)) for key, each in value.items()]
