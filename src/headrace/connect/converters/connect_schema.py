"""Connect's schemas as JsonConverter writes them, and the Spark types that they are here.

A schema's name and version that have no type in Spark are kept in the metadata of the field, so
that they are written again. `org.apache.kafka.connect.data.Time` is an int of milliseconds after
midnight with this name, because Spark's TIME type is not available by default.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

NAME, VERSION = "connect.name", "connect.version"
"""Keys in the metadata of a Spark field."""
DECIMAL = "org.apache.kafka.connect.data.Decimal"
DATE = "org.apache.kafka.connect.data.Date"
TIME = "org.apache.kafka.connect.data.Time"
TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
PRECISION = "connect.decimal.precision"
MAX_PRECISION = 38

SCALARS: dict[str, DataType] = {
    "boolean": BooleanType(),
    "int8": ByteType(),
    "int16": ShortType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
}
_KIND_OF = {type(kind): name for name, kind in SCALARS.items()}


class SchemaError(ValueError):
    """A schema that is not one of Connect's; the message says why."""


@dataclass(frozen=True, slots=True)
class ConnectSchema:
    """A schema in the form of JsonConverter's envelope."""

    kind: str
    optional: bool = False
    name: str | None = None
    version: int | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    default: str | None = None
    """As JSON."""
    fields: "tuple[tuple[str, ConnectSchema], ...]" = ()
    keys: "ConnectSchema | None" = None
    values: "ConnectSchema | None" = None
    """Of a map, or the items of an array."""

    @property
    def scale(self) -> int:
        return int(dict(self.parameters).get("scale", "0"))

    @property
    def is_decimal(self) -> bool:
        return self.kind == "bytes" and self.name == DECIMAL

    @property
    def is_date(self) -> bool:
        return self.kind == "int32" and self.name == DATE

    @property
    def is_timestamp(self) -> bool:
        return self.kind == "int64" and self.name == TIMESTAMP

    def spark_type(self) -> DataType:
        """The type of a column with this schema."""
        if self.kind == "struct":
            return StructType([_field(name, schema) for name, schema in self.fields])
        if self.kind == "array":
            assert self.values is not None, "an array has a schema of its items"
            return ArrayType(self.values.spark_type())
        if self.kind == "map":
            assert self.keys is not None, "a map has a schema of its keys"
            assert self.values is not None, "a map has a schema of its values"
            return MapType(self.keys.spark_type(), self.values.spark_type())
        if self.is_decimal:
            precision = int(dict(self.parameters).get(PRECISION, MAX_PRECISION))
            return DecimalType(min(max(precision, self.scale), MAX_PRECISION), self.scale)
        if self.is_date:
            return DateType()
        return TimestampType() if self.is_timestamp else SCALARS[self.kind]

    def metadata(self) -> dict[str, object]:
        """What the Spark type does not say."""
        found: dict[str, object] = {}
        in_type = self.is_decimal or self.is_date or self.is_timestamp
        if self.name is not None and not in_type:
            found[NAME] = self.name
            if self.version is not None:
                found[VERSION] = self.version
        return found

    def to_json(self) -> dict[str, object]:
        """The same document as JsonConverter writes."""
        found: dict[str, object] = {"type": self.kind}
        if self.kind == "array" and self.values is not None:
            found["items"] = self.values.to_json()
        elif self.kind == "map" and self.keys is not None and self.values is not None:
            found |= {"keys": self.keys.to_json(), "values": self.values.to_json()}
        elif self.kind == "struct":
            found["fields"] = [schema.to_json() | {"field": name} for name, schema in self.fields]
        found["optional"] = self.optional
        if self.name is not None:
            found["name"] = self.name
        if self.version is not None:
            found["version"] = self.version
        if self.parameters:
            found["parameters"] = dict(self.parameters)
        return found


def _field(name: str, schema: ConnectSchema) -> StructField:
    return StructField(name, schema.spark_type(), True, schema.metadata())


def parse_schema(text: str) -> ConnectSchema:
    """The schema of an envelope; SchemaError if it is not valid."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise SchemaError(f"the schema is not JSON: {error}") from None
    return _parsed(document)


def _parsed(document: object) -> ConnectSchema:
    if not isinstance(document, Mapping) or not isinstance(document.get("type"), str):
        raise SchemaError("Schema must contain 'type' field")
    kind = str(document["type"])
    if kind not in SCALARS and kind not in ("array", "map", "struct"):
        raise SchemaError(f"Unknown schema type: {kind}")
    name, version = document.get("name"), document.get("version")
    parameters = document.get("parameters") or {}
    if not isinstance(parameters, Mapping):
        raise SchemaError("the parameters of a schema are an object")
    parsed = ConnectSchema(
        kind,
        document.get("optional") is True,
        name if isinstance(name, str) else None,
        version if isinstance(version, int) else None,
        tuple((str(key), str(value)) for key, value in parameters.items()),
        json.dumps(document["default"]) if document.get("default") is not None else None,
    )
    if kind == "array":
        return replace(parsed, values=_parsed(document.get("items")))
    if kind == "map":
        keys, values = _parsed(document.get("keys")), _parsed(document.get("values"))
        return replace(parsed, keys=keys, values=values)
    if kind == "struct":
        return replace(parsed, fields=_parsed_fields(document.get("fields")))
    return parsed


def _parsed_fields(documents: object) -> tuple[tuple[str, ConnectSchema], ...]:
    if not isinstance(documents, list):
        raise SchemaError('Struct schema\'s "fields" argument is not an array.')
    fields = []
    for document in documents:
        if not isinstance(document, Mapping) or not isinstance(document.get("field"), str):
            raise SchemaError("Struct schema's field name not specified properly")
        fields.append((str(document["field"]), _parsed(document)))
    names = [name for name, _ in fields]
    if len(set(names)) < len(names):
        raise SchemaError("a struct has two fields with the same name")
    return tuple(fields)


def schema_of(
    kind: DataType, nullable: bool = True, metadata: Mapping[str, object] | None = None
) -> ConnectSchema:
    """The schema of a column; SchemaError if Connect has no such type."""
    given = metadata or {}
    name, version = given.get(NAME), given.get(VERSION)
    found = replace(
        _unnamed(kind),
        optional=nullable,
    )
    if isinstance(name, str):
        found = replace(found, name=name)
        if name == TIME:
            found = replace(found, version=1)
    if isinstance(version, int):
        found = replace(found, version=version)
    return found


def _unnamed(kind: DataType) -> ConnectSchema:
    if isinstance(kind, StructType):
        fields = tuple(
            (field.name, schema_of(field.dataType, field.nullable, field.metadata))
            for field in kind.fields
        )
        return ConnectSchema("struct", fields=fields)
    if isinstance(kind, ArrayType):
        return ConnectSchema("array", values=schema_of(kind.elementType, kind.containsNull))
    if isinstance(kind, MapType):
        values = schema_of(kind.valueType, kind.valueContainsNull)
        return ConnectSchema("map", keys=schema_of(kind.keyType, False), values=values)
    if isinstance(kind, DecimalType):
        parameters = (("scale", str(kind.scale)), (PRECISION, str(kind.precision)))
        return ConnectSchema("bytes", name=DECIMAL, version=1, parameters=parameters)
    if isinstance(kind, DateType):
        return ConnectSchema("int32", name=DATE, version=1)
    if isinstance(kind, TimestampType | TimestampNTZType):
        return ConnectSchema("int64", name=TIMESTAMP, version=1)
    if isinstance(kind, CharType | VarcharType | NullType):
        return ConnectSchema("string")
    if type(kind) not in _KIND_OF:
        raise SchemaError(f"Connect has no type for {kind.simpleString()}")
    return ConnectSchema(_KIND_OF[type(kind)])
