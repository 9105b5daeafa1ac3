"""Avro schemas as trees, and their Spark types.

The types are those of Spark's own `from_avro`. A recursive type has no columns: a reader cannot
have one, but a writer may if the reader leaves it out.
"""

import json
from dataclasses import dataclass, replace
from typing import cast

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.schemas.errors import InvalidSchema
from headrace.schemas.interface import RegisteredSchema

PRIMITIVES = {
    "null": NullType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
}
UNITS = {"millis": 1_000, "micros": 1, "nanos": -1_000}
"""The factor that converts to microseconds; a negative one divides."""
LARGEST_PRECISION = 38


@dataclass(frozen=True, slots=True)
class AvroNode:
    """A type. Which attributes have a meaning depends on the kind."""

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: "tuple[AvroField, ...]" = ()
    branches: "tuple[AvroNode, ...]" = ()
    items: "AvroNode | None" = None
    symbols: tuple[str, ...] = ()
    default: str | None = None
    size: int = 0
    logical: str = ""
    precision: int = 0
    scale: int = 0

    @property
    def is_decimal(self) -> bool:
        return self.logical == "decimal"

    @property
    def unit(self) -> int:
        """The factor of a timestamp in UNITS; 0 for other types."""
        first, _, unit = self.logical.rpartition("-")
        fits = self.kind == "long" and first in ("timestamp", "local-timestamp")
        return UNITS.get(unit, 0) if fits else 0

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of a record."""

    name: str
    type: AvroNode
    aliases: tuple[str, ...]
    has_default: bool
    default: object


def parse(schema: RegisteredSchema) -> AvroNode:
    """The tree of a registered schema; InvalidSchema if it is malformed."""
    names: dict[str, AvroNode] = {}
    try:
        for each in schema.dependencies:
            _node(json.loads(each.text), "", names)
        return _node(json.loads(schema.text), "", names)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidSchema(
            f"schema {schema.id} is not an Avro schema: {type(error).__name__} {error}"
        ) from None


def _node(data: object, space: str, names: dict[str, AvroNode]) -> AvroNode:
    if isinstance(data, str):
        return AvroNode(data) if data in PRIMITIVES else names[_full(data, space)]
    if isinstance(data, list):
        return AvroNode("union", branches=tuple(_node(each, space, names) for each in data))
    about = cast("dict[str, object]", data)
    kind = about["type"]
    if not isinstance(kind, str):
        return _node(kind, space, names)
    if kind in ("array", "map"):
        return AvroNode(
            kind, items=_node(about["items" if kind == "array" else "values"], space, names)
        )
    if kind in ("record", "error"):
        return _record(about, space, names)
    made = _plain(about, kind, space) if kind in ("enum", "fixed") else None
    if made is None and kind not in PRIMITIVES:
        return names[_full(kind, space)]
    made = _with_logical(made or AvroNode(kind), about)
    if made.name:
        names[made.name] = made
    return made


def _plain(about: dict[str, object], kind: str, space: str) -> AvroNode:
    default = about.get("default")
    return AvroNode(
        kind,
        name=_name(about, space),
        aliases=_aliases(about, _name(about, space).rpartition(".")[0]),
        symbols=tuple(map(str, cast("list[object]", about.get("symbols", [])))),
        default=None if default is None else str(default),
        size=int(cast(int, about.get("size", 0))),
    )


def _record(about: dict[str, object], space: str, names: dict[str, AvroNode]) -> AvroNode:
    name = _name(about, space)
    inner = name.rpartition(".")[0]
    names[name] = AvroNode("recursive", name=name)
    fields = tuple(
        AvroField(
            str(each["name"]),
            _node(each["type"], inner, names),
            tuple(map(str, cast("list[object]", each.get("aliases", [])))),
            "default" in each,
            each.get("default"),
        )
        for each in cast("list[dict[str, object]]", about["fields"])
    )
    names[name] = AvroNode("record", name=name, aliases=_aliases(about, inner), fields=fields)
    return names[name]


def _with_logical(node: AvroNode, about: dict[str, object]) -> AvroNode:
    """The node with its logical type; unsupported ones are ignored, as Avro requires."""
    logical = str(about.get("logicalType", ""))
    if logical == "decimal" and node.kind in ("bytes", "fixed"):
        precision = int(cast(int, about["precision"]))
        scale = int(cast(int, about.get("scale", 0)))
        if not 0 <= scale <= precision or not 0 < precision <= LARGEST_PRECISION:
            return node
        return replace(node, logical=logical, precision=precision, scale=scale)
    made = replace(node, logical=logical)
    return made if made.unit or (logical, node.kind) == ("date", "int") else node


def _name(about: dict[str, object], space: str) -> str:
    return _full(str(about["name"]), str(about.get("namespace") or space))


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _aliases(about: dict[str, object], space: str) -> tuple[str, ...]:
    given = cast("list[object]", about.get("aliases", []))
    return tuple(_full(str(each), space) for each in given)


def without_null(node: AvroNode) -> list[AvroNode]:
    """The branches of a union without null."""
    if node.kind != "union":
        return [node]
    return [branch for branch in node.branches if branch.kind != "null"]


def merged(node: AvroNode) -> AvroNode | None:
    """The type that can hold every branch of a union except null; None if there is none."""
    kinds = without_null(node)
    if len(kinds) == 1:
        return kinds[0]
    names = {each.kind for each in kinds}
    if any(each.logical for each in kinds) or not kinds:
        return None if kinds else AvroNode("null")
    for wide in ("long", "double"):
        if names == {"long": {"int", "long"}, "double": {"float", "double"}}[wide]:
            return AvroNode(wide)
    return None


def spark_type(node: AvroNode, path: str = "") -> DataType:
    """The Spark type. All fields are nullable, because a record may be bad."""
    if node.kind == "union":
        single = merged(node)
        if single is not None:
            return spark_type(single, path)
        members = [
            StructField(f"member{number}", spark_type(each, path))
            for number, each in enumerate(without_null(node))
        ]
        return StructType(members)
    if node.kind == "record":
        return StructType(
            [
                StructField(each.name, spark_type(each.type, f"{path}.{each.name}".lstrip(".")))
                for each in node.fields
            ]
        )
    if node.kind == "array" and node.items is not None:
        return ArrayType(spark_type(node.items, f"{path}[]"))
    if node.kind == "map" and node.items is not None:
        return MapType(StringType(), spark_type(node.items, f"{path}{{}}"))
    if node.kind == "recursive":
        raise InvalidSchema(
            f"field {path!r} is {node.name}, a recursive type, which has no columns in Spark. "
            "Read the topic without value.format, or select a version of the schema without it"
        )
    if node.is_decimal:
        return DecimalType(node.precision, node.scale)
    if node.unit:
        local = node.logical.startswith("local")
        return TimestampNTZType() if local else TimestampType()
    if node.logical == "date":
        return DateType()
    return {"enum": StringType(), "fixed": BinaryType()}.get(node.kind) or PRIMITIVES[node.kind]
