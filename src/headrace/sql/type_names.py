"""ksqlDB's names of types, for responses: Spark's DDL as text and as a schema object."""

from typing import Any

from headrace.sql.records.types import ColumnType, InvalidType, parse_type

_NAMES = {
    "tinyint": "INTEGER",
    "smallint": "INTEGER",
    "int": "INTEGER",
    "float": "DOUBLE",
    "string": "STRING",
    "void": "STRING",
    "binary": "BYTES",
    "timestamp_ntz": "TIMESTAMP",
}
"""Those that are not the same in upper case."""


def _parsed(ddl: str) -> ColumnType:
    try:
        return parse_type(ddl)
    except InvalidType:
        # A type of Spark's that records do not have, such as an interval.
        return ColumnType(ddl)


def type_text(ddl: str) -> str:
    """Such as `BIGINT`, `DECIMAL(10, 2)`, `` STRUCT<`A` INTEGER> ``."""
    return _text(_parsed(ddl))


def _text(found: ColumnType) -> str:
    match found.kind:
        case "decimal":
            return f"DECIMAL({found.precision}, {found.scale})"
        case "array":
            return f"ARRAY<{_text(found.items)}>"
        case "map":
            return f"MAP<{_text(found.keys)}, {_text(found.items)}>"
        case "struct":
            fields = ", ".join(f"{quoted(name)} {_text(each)}" for name, each in found.fields)
            return f"STRUCT<{fields}>"
    return _NAMES.get(found.kind, found.kind.upper())


def type_schema(ddl: str) -> dict[str, Any]:
    """The object `schema` of a column in responses."""
    return _schema(_parsed(ddl))


def _schema(found: ColumnType) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": _text(found).partition("<")[0], "fields": None}
    schema["memberSchema"] = None
    match found.kind:
        case "decimal":
            schema["type"] = "DECIMAL"
            schema["parameters"] = {"precision": found.precision, "scale": found.scale}
        case "array" | "map":
            schema["memberSchema"] = _schema(found.items)
        case "struct":
            schema["fields"] = [
                {"name": name, "schema": _schema(each)} for name, each in found.fields
            ]
    return schema


def quoted(name: str) -> str:
    """A name in backticks."""
    return "`" + name.replace("`", "``") + "`"
