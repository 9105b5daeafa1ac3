"""JSON Schemas as types of columns.

Only fields and their types are read from a schema: a reader does not validate. If a schema does not
determine a type, the column is the JSON text.
"""

import json
from dataclasses import dataclass, field

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from headrace.schemas.errors import InvalidSchema
from headrace.schemas.interface import RegisteredSchema

ANY = "any"
SCALARS: dict[str, DataType] = {
    "integer": LongType(),
    "int32": IntegerType(),
    "number": DoubleType(),
    "float32": FloatType(),
    "boolean": BooleanType(),
    "string": StringType(),
    ANY: StringType(),
}
# The number types of Connect's converters; JSON itself has only two.
CONNECT = {"int8": "int32", "int16": "int32", "int32": "int32", "float32": "float32"}


@dataclass(frozen=True, slots=True)
class JsonType:
    """A scalar, or `object` with fields, or `array` or `map` of an inner type."""

    kind: str
    fields: "dict[str, JsonType]" = field(default_factory=dict)
    inner: "JsonType | None" = None

    @property
    def is_plain(self) -> bool:
        """Whether Arrow's parser gives the same result: no undetermined types, no maps."""
        if self.kind in ("map", ANY):
            return False
        parts = [*self.fields.values(), *([] if self.inner is None else [self.inner])]
        return all(part.is_plain for part in parts)


def parse(schema: RegisteredSchema) -> JsonType:
    """The type of a registered schema; InvalidSchema if it is malformed."""
    try:
        documents = {each.name: json.loads(each.text) for each in schema.dependencies}
        documents[""] = json.loads(schema.text)
        return _TypeReader(documents).type_of(documents[""], "", ())
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidSchema(f"schema {schema.id} is not a JSON Schema: {error}") from None


class _TypeReader:
    """One schema with the documents of its references, by name; its own is ''."""

    def __init__(self, documents: dict[str, object]) -> None:
        self._documents = documents

    def type_of(self, data: object, home: str, under_way: tuple[str, ...]) -> JsonType:
        if not isinstance(data, dict):
            return JsonType(ANY)
        if isinstance(target := data.get("$ref"), str):
            return self._reference(target, home, under_way)
        for word in ("oneOf", "anyOf", "allOf"):
            if isinstance(choices := data.get(word), list):
                open_ = [each for each in choices if not _is_null(each)]
                return self.type_of(open_[0], home, under_way) if len(open_) == 1 else JsonType(ANY)
        kind = _kind(data)
        if kind == "object":
            return self._object(data, home, under_way)
        if kind == "array":
            return JsonType("array", inner=self.type_of(data.get("items"), home, under_way))
        if kind in ("integer", "number"):
            return JsonType(CONNECT.get(str(data.get("connect.type")), kind))
        return JsonType(kind)

    def _object(self, data: dict[str, object], home: str, under_way: tuple[str, ...]) -> JsonType:
        properties = data.get("properties")
        if isinstance(properties, dict) and properties:
            return JsonType(
                "object",
                {str(n): self.type_of(each, home, under_way) for n, each in properties.items()},
            )
        others = data.get("additionalProperties")
        if isinstance(others, dict):
            return JsonType("map", inner=self.type_of(others, home, under_way))
        return JsonType(ANY)

    def _reference(self, target: str, home: str, under_way: tuple[str, ...]) -> JsonType:
        name, _, pointer = target.partition("#")
        name = name or home
        place = f"{name}#{pointer}"
        if place in under_way or name not in self._documents:
            return JsonType(ANY)
        found: object = self._documents[name]
        for part in filter(None, pointer.split("/")):
            key = part.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, dict) else None
        return self.type_of(found, name, (*under_way, place))


def _is_null(data: object) -> bool:
    return isinstance(data, dict) and data.get("type") == "null"


def _kind(data: dict[str, object]) -> str:
    kind = data.get("type")
    if isinstance(kind, list):
        names = {str(each) for each in kind} - {"null"}
        kind = "number" if names == {"integer", "number"} else None
        if len(names) == 1:
            kind = names.pop()
    if kind is None and isinstance(data.get("properties"), dict):
        return "object"
    if kind is None and isinstance(data.get("enum"), list):
        words = data["enum"]
        assert isinstance(words, list)
        return "string" if all(isinstance(each, str) for each in words) else ANY
    return str(kind) if kind in ("object", "array", *SCALARS) else ANY


def spark_type(json_type: JsonType) -> DataType:
    """The Spark type; all fields are nullable."""
    if json_type.kind == "object":
        return StructType(
            [StructField(name, spark_type(each)) for name, each in json_type.fields.items()]
        )
    if json_type.inner is not None:
        inner = spark_type(json_type.inner)
        return ArrayType(inner) if json_type.kind == "array" else MapType(StringType(), inner)
    return SCALARS[json_type.kind]
