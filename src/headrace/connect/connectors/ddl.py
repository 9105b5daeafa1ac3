"""Schemas as Spark's DDL (`id bigint, name string`) and as Arrow, in both directions.

It has the types that connectors produce, and needs no Spark session.
"""

import re
from collections.abc import Iterable

import pyarrow as pa

_NAMES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_TEXTS = {kind: name for name, kind in reversed(_NAMES.items())}
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|\w+|[<>(),:]|\S)")


class DdlError(ValueError):
    """A text that is not a schema; the message says where."""


def ddl(schema: pa.Schema) -> str:
    """The schema as DDL."""
    return columns_ddl((field.name, ddl_type(field.type)) for field in schema)


def columns_ddl(columns: Iterable[tuple[str, str]]) -> str:
    """Names of columns with their types, as DDL."""
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns)


def quoted(name: str) -> str:
    """The name as DDL has it, in backticks where it needs them."""
    if re.fullmatch(r"[A-Za-z_]\w*", name):
        return name
    return "`" + name.replace("`", "``") + "`"


def ddl_type(kind: pa.DataType) -> str:
    """Spark's name of an Arrow type."""
    if kind in _TEXTS:
        return _TEXTS[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_struct(kind):
        inside = ",".join(f"{quoted(field.name)}:{ddl_type(field.type)}" for field in kind)
        return f"struct<{inside}>"
    if pa.types.is_map(kind):
        return f"map<{ddl_type(kind.key_type)},{ddl_type(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{ddl_type(kind.value_type)}>"
    raise DdlError(f"the type {kind} has no counterpart in Spark")


def arrow_schema(text: str) -> pa.Schema:
    """The schema that a DDL describes; DdlError if it describes none."""
    tokens = _Tokens(text)
    fields = [tokens.field()]
    while tokens.peek() == ",":
        tokens.take(",")
        fields.append(tokens.field())
    if tokens.peek():
        raise tokens.unexpected()
    return pa.schema(fields)


class _Tokens:
    """The words of a DDL, read from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = _TOKEN.findall(text)
        self._next = 0

    def peek(self) -> str:
        return self._words[self._next] if self._next < len(self._words) else ""

    def take(self, expected: str = "") -> str:
        word = self.peek()
        if not word or (expected and word.lower() != expected):
            raise self.unexpected()
        self._next += 1
        return word

    def unexpected(self) -> DdlError:
        return DdlError(f"unexpected {self.peek() or 'end'!r} in the schema {self._text!r}")

    def field(self) -> pa.Field:
        name = self.take()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        if self.peek() == ":":
            self.take(":")
        kind = self.kind()
        if self.peek().lower() == "not":
            self.take("not")
            self.take("null")
            return pa.field(name, kind, nullable=False)
        return pa.field(name, kind)

    def kind(self) -> pa.DataType:
        word = self.take().lower()
        if word in _NAMES:
            return _NAMES[word]
        if word in ("varchar", "char"):
            self.take("(")
            self.take()
            self.take(")")
            return pa.string()
        if word in ("decimal", "numeric", "dec"):
            return self._decimal()
        self.take("<")
        if word == "array":
            found = pa.list_(self.kind())
        elif word == "map":
            key = self.kind()
            self.take(",")
            found = pa.map_(key, self.kind())
        elif word == "struct":
            fields = [self.field()]
            while self.peek() == ",":
                self.take(",")
                fields.append(self.field())
            found = pa.struct(fields)
        else:
            raise DdlError(f"unknown type {word!r} in the schema {self._text!r}")
        self.take(">")
        return found

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self.peek() == "(":
            self.take("(")
            precision = int(self.take())
            if self.peek() == ",":
                self.take(",")
                scale = int(self.take())
            self.take(")")
        return pa.decimal128(precision, scale)
