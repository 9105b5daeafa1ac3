"""The types of columns, parsed from Spark's DDL."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from headrace.client.errors import ClientError

INTEGERS = {"tinyint": 1, "smallint": 2, "int": 4, "bigint": 8}
"""Their widths in bytes."""
ALIASES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "varchar": "string",
    "char": "string",
    "text": "string",
    "bytes": "binary",
    "timestamp_ltz": "timestamp",
}
SCALARS = frozenset(
    {
        *INTEGERS,
        *("boolean", "float", "double", "decimal", "string", "binary"),
        *("date", "time", "timestamp", "timestamp_ntz", "variant", "void"),
    }
)
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|([A-Za-z0-9_.$\-]+)|(.))")

Convert: TypeAlias = Callable[[object], object]
"""Converts a value that is not null."""


class InvalidType(ClientError):
    """A text is not a type of columns."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type; which fields have a meaning depends on the kind."""

    kind: str
    precision: int = 0
    scale: int = 0
    fields: "tuple[tuple[str, ColumnType], ...]" = ()
    key: "ColumnType | None" = None
    """Of a map."""
    element: "ColumnType | None" = None
    """Of an array, and the values of a map."""

    def __str__(self) -> str:
        """Spark's DDL."""
        if self.kind == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.kind == "struct":
            fields = ",".join(f"{_quoted(name)}:{each}" for name, each in self.fields)
            return f"struct<{fields}>"
        if self.kind == "map":
            return f"map<{self.key},{self.element}>"
        return f"array<{self.element}>" if self.kind == "array" else self.kind

    @property
    def is_nested(self) -> bool:
        return self.kind in ("array", "map", "struct")

    @property
    def items(self) -> "ColumnType":
        """The type of the elements of an array, or of the values of a map."""
        assert self.element is not None, "arrays and maps have elements"
        return self.element

    @property
    def keys(self) -> "ColumnType":
        """The type of the keys of a map."""
        assert self.key is not None, "maps have keys"
        return self.key


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else "`" + name.replace("`", "``") + "`"


@cache
def parse_type(text: str) -> ColumnType:
    """The type that a DDL names; raises InvalidType."""
    parser = _Parser(text)
    found = parser.type()
    parser.end()
    return found


class _Parser:
    """Reads a DDL from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [match for match in _TOKEN.finditer(text) if match[0].strip()]
        self._at = 0

    def type(self) -> ColumnType:
        word = self._word().lower()
        kind = ALIASES.get(word, word)
        if kind == "array":
            self._expect("<")
            found = ColumnType("array", element=self.type())
            self._expect(">")
            return found
        if kind == "map":
            self._expect("<")
            key = self.type()
            self._expect(",")
            found = ColumnType("map", key=key, element=self.type())
            self._expect(">")
            return found
        if kind == "struct":
            return ColumnType("struct", fields=self._fields())
        if kind not in SCALARS:
            raise self._invalid(f"{word} is not a type")
        numbers = self._numbers()
        if kind == "decimal":
            precision, scale = (*numbers, *(10, 0)[len(numbers) :])[:2]
            if not 0 <= scale <= precision <= 38 or not precision:
                raise self._invalid("a decimal has up to 38 digits, and no fewer than its scale")
            return ColumnType("decimal", precision, scale)
        return ColumnType(kind)

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise self._invalid(f"unexpected {self._tokens[self._at][0].strip()}")

    def _fields(self) -> tuple[tuple[str, ColumnType], ...]:
        self._expect("<")
        fields: list[tuple[str, ColumnType]] = []
        while not self._take(">"):
            if fields:
                self._expect(",")
            name = self._word()
            self._take(":")
            fields.append((name, self.type()))
        return tuple(fields)

    def _numbers(self) -> tuple[int, ...]:
        if not self._take("("):
            return ()
        numbers = [self._number()]
        while self._take(","):
            numbers.append(self._number())
        self._expect(")")
        return tuple(numbers)

    def _number(self) -> int:
        word = self._word()
        if not word.isdecimal():
            raise self._invalid(f"{word} is not a number")
        return int(word)

    def _word(self) -> str:
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        if token is None or token[3] is not None:
            raise self._invalid("a name is missing")
        self._at += 1
        return token[2] or token[1][1:-1].replace("``", "`")

    def _take(self, sign: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at][3] == sign:
            self._at += 1
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise self._invalid(f"{sign} is missing")

    def _invalid(self, why: str) -> InvalidType:
        return InvalidType(f"invalid type {self._text!r}: {why}")
