"""Values as JSON, byte by byte as the Spark host writes them with Jackson."""

import base64
import json
import math
from collections.abc import Callable
from typing import Any, TypeAlias

from headrace.sql.records.java_numbers import double_text, float_text
from headrace.sql.records.json_texts import quoted
from headrace.sql.records.types import INTEGERS, ColumnType
from headrace.sql.records.values import days, milliseconds, time_micros

WriteDocument: TypeAlias = Callable[[Any], str]
"""Of a value that is not null."""


def document_writer(kind: ColumnType) -> WriteDocument:
    """A function that writes values of this type."""
    if kind.kind in INTEGERS:
        return str
    if kind.kind == "struct":
        return _struct(kind)
    if kind.kind == "array":
        inner = _or_null(document_writer(kind.items))
        return lambda value: f"[{','.join(map(inner, value))}]"
    if kind.kind == "map":
        return _map(kind)
    return _SCALARS[kind.kind]


def _or_null(write: WriteDocument) -> WriteDocument:
    return lambda value: "null" if value is None else write(value)


def _struct(kind: ColumnType) -> WriteDocument:
    parts = [(name, f"{quoted(name)}:", document_writer(each)) for name, each in kind.fields]

    def write(value: dict[str, object]) -> str:
        texts = [
            f"{before}null" if (part := value.get(name)) is None else before + inner(part)
            for name, before, inner in parts
        ]
        return f"{{{','.join(texts)}}}"

    return write


def _map(kind: ColumnType) -> WriteDocument:
    inner = _or_null(document_writer(kind.items))
    if kind.keys.kind == "string":
        return lambda value: (
            "{" + ",".join(f"{quoted(name)}:{inner(each)}" for name, each in value.items()) + "}"
        )
    key = document_writer(kind.keys)
    return lambda value: (
        "[" + ",".join(f"[{key(name)},{inner(each)}]" for name, each in value.items()) + "]"
    )


def _double(value: float) -> str:
    text = double_text(value)
    return text if math.isfinite(value) else f'"{text}"'


def _float(value: float) -> str:
    text = float_text(value)
    return text if math.isfinite(value) else f'"{text}"'


_SCALARS: dict[str, WriteDocument] = {
    "boolean": lambda value: "true" if value else "false",
    "float": _float,
    "double": _double,
    "decimal": str,
    "string": quoted,
    "binary": lambda value: f'"{base64.b64encode(value).decode()}"',
    "date": lambda value: str(days(value)),
    "time": lambda value: str(time_micros(value) // 1000),
    "timestamp": lambda value: str(milliseconds(value)),
    "timestamp_ntz": lambda value: str(milliseconds(value)),
    "variant": lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")),
    "void": lambda value: "null",
}
