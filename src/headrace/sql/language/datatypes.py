"""Types of columns: ksqlDB's and Spark's names, as Spark's DDL in lower case."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from headrace.sql.language.errors import did_you_mean
from headrace.sql.language.grammar.reading import TokenReader
from headrace.sql.language.grammar.tokens import SqlToken, TokenKind

NO_TYPES: Mapping[str, str] = MappingProxyType({})
"""No types of CREATE TYPE."""
SIMPLE_TYPES = {
    "VARCHAR": "string",
    "STRING": "string",
    "CHAR": "string",
    "TEXT": "string",
    "BOOLEAN": "boolean",
    "BOOL": "boolean",
    "INT": "int",
    "INTEGER": "int",
    "BIGINT": "bigint",
    "LONG": "bigint",
    "SMALLINT": "smallint",
    "SHORT": "smallint",
    "TINYINT": "tinyint",
    "DOUBLE": "double",
    "FLOAT": "float",
    "REAL": "float",
    "BYTES": "binary",
    "BINARY": "binary",
    "DATE": "date",
    "TIME": "time",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_NTZ": "timestamp_ntz",
    "VARIANT": "variant",
}
"""Types without parameters, by their names in statements."""
LARGEST_PRECISION = 38
_MAX_DEPTH = 50
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def quoted_field(name: str) -> str:
    """A name of a field as Spark's DDL has it."""
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def read_type(reader: TokenReader, types: Mapping[str, str], depth: int = 0) -> str:
    """The type that follows. `types`: those of CREATE TYPE, by name in lower case."""
    first = reader.current
    if depth > _MAX_DEPTH:
        raise first.error(f"The type is nested more than {_MAX_DEPTH} levels deep.")
    if first.kind not in (TokenKind.WORD, TokenKind.NAME):
        raise first.error(f"Expected a type, found {first}.")
    reader.next()
    match first.upper:
        case "ARRAY" if reader.accept("<"):
            element = read_type(reader, types, depth + 1)
            _close(reader)
            found = f"array<{element}>"
        case "MAP" if reader.accept("<"):
            key = read_type(reader, types, depth + 1)
            reader.expect(",")
            value = read_type(reader, types, depth + 1)
            _close(reader)
            found = f"map<{key}, {value}>"
        case "STRUCT" if reader.sees("<") or reader.sees("<>"):
            found = _struct(reader, types, depth)
        case "DECIMAL" | "DEC" | "NUMERIC":
            found = _decimal(reader)
        case _:
            found = _named(first, types)
            _skip_length(reader)
    while reader.accept("ARRAY"):
        found = f"array<{found}>"
    return found


def _close(reader: TokenReader) -> None:
    reader.expect(">")


def _struct(reader: TokenReader, types: Mapping[str, str], depth: int) -> str:
    if reader.accept("<>"):
        return "struct<>"
    reader.expect("<")
    fields = []
    while not reader.sees(">"):
        if reader.current.kind not in (TokenKind.WORD, TokenKind.NAME):
            raise reader.unexpected("the name of a field")
        name = reader.next().value
        reader.accept(":")
        fields.append(f"{quoted_field(name)}: {read_type(reader, types, depth + 1)}")
        if not reader.accept(","):
            break
    _close(reader)
    return f"struct<{', '.join(fields)}>"


def _decimal(reader: TokenReader) -> str:
    place = reader.current
    if not reader.accept("("):
        raise place.error("DECIMAL needs a precision and a scale, as in DECIMAL(10, 2).")
    precision = reader.integer("the precision")
    scale = reader.integer("the scale") if reader.accept(",") else 0
    reader.expect(")")
    if not 1 <= precision <= LARGEST_PRECISION or scale > precision:
        raise place.error(
            f"DECIMAL({precision}, {scale}): the precision is from 1 to {LARGEST_PRECISION}, and"
            " the scale is at most the precision."
        )
    return f"decimal({precision},{scale})"


def _named(token: SqlToken, types: Mapping[str, str]) -> str:
    own = types.get(token.value.casefold())
    if own is not None:
        return own
    found = SIMPLE_TYPES.get(token.upper)
    if found is None:
        known = [*SIMPLE_TYPES, "DECIMAL", "ARRAY", "MAP", "STRUCT", *types]
        raise token.error(
            f"Unknown type {token.value}. A type is {', '.join(_SHOWN)}, or one of CREATE TYPE."
            + did_you_mean(token.value, known)
        )
    return found


_SHOWN = (
    "BOOLEAN", "INT", "BIGINT", "DOUBLE", "DECIMAL(p, s)", "VARCHAR", "BYTES", "DATE", "TIME",
    "TIMESTAMP", "ARRAY<...>", "MAP<..., ...>", "STRUCT<...>",
)  # fmt: skip


def _skip_length(reader: TokenReader) -> None:
    """`VARCHAR(255)`, and `VARCHAR(STRING)` as ksqlDB prints it: neither limits anything."""
    if reader.accept("("):
        if not reader.accept("STRING"):
            reader.integer("the length")
        reader.expect(")")


def struct_fields(type_name: str) -> dict[str, str] | None:
    """The types of a struct's fields by name, out of Spark's DDL; None if it is no struct."""
    inside = _inside(type_name, "struct")
    if inside is None:
        return None
    fields = {}
    for part in _split(inside):
        if part.startswith("`"):
            end = next(found.end() for found in re.finditer(r"`(?:[^`]|``)*`", part))
            name, rest = part[1 : end - 1].replace("``", "`"), part[end:]
        else:
            name = re.split(r"[:\s]", part, maxsplit=1)[0]
            rest = part[len(name) :]
        fields[name] = rest.lstrip(": ")
    return fields


def element_type(type_name: str) -> str | None:
    """The type of an array's elements or of a map's values; None if it is neither."""
    element = _inside(type_name, "array")
    if element is not None:
        return element
    entry = _inside(type_name, "map")
    return None if entry is None else _split(entry)[1]


def _inside(type_name: str, outer: str) -> str | None:
    if type_name.startswith(f"{outer}<") and type_name.endswith(">"):
        return type_name[len(outer) + 1 : -1].strip()
    return None


def _split(text: str) -> list[str]:
    """Parts between the commas that are in no brackets and no backticks."""
    parts, depth, quoted, start = [], 0, False, 0
    for at, each in enumerate(text):
        if each == "`":
            quoted = not quoted
        elif not quoted:
            depth += (each in "<(") - (each in ">)")
            if each == "," and depth == 0:
                parts.append(text[start:at].strip())
                start = at + 1
    return [*parts, text[start:].strip()] if text else []
