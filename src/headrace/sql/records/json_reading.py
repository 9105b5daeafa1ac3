"""JSON documents as values of a type, as Spark's from_json reads them.

Integers and decimals keep all their digits. A column of type string takes any value: what is not a
string becomes its JSON text.
"""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import TypeAlias

from headrace.sql.records.errors import WrongValue
from headrace.sql.records.types import ColumnType
from headrace.sql.records.values import converter

ReadDocument: TypeAlias = Callable[[str], object]

_SPACE = " \t\n\r"


def document_reader(kind: ColumnType, path: str) -> ReadDocument:
    """A function that reads documents; null for `null` and for nothing. It raises WrongValue."""
    decoder = json.JSONDecoder(parse_float=Decimal if _has_decimals(kind) else None)
    scan = decoder.raw_decode
    convert = converter(kind, path)

    def read(text: str) -> object:
        try:
            found, end = scan(text)
        except (ValueError, RecursionError):
            found, end = None, -1
        if end != len(text):
            stripped = text.strip(_SPACE)
            if not stripped:
                return None
            try:
                found = decoder.decode(stripped)
            except (ValueError, RecursionError) as error:
                raise WrongValue(f"{path} is not JSON: {error}") from None
        return None if found is None else convert(found)

    return read


def _has_decimals(kind: ColumnType) -> bool:
    parts = [each for _, each in kind.fields]
    parts += [each for each in (kind.key, kind.element) if each is not None]
    return kind.kind == "decimal" or any(map(_has_decimals, parts))
