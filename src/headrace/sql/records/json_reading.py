"""JSON documents as values of a type, as Spark's from_json reads them.

Numbers keep all their digits. A column of type string takes any value: what is not a string is the
text of the document there, character by character.
"""

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import TypeAlias

from headrace.sql.records.errors import WrongValue
from headrace.sql.records.types import ColumnType, Convert
from headrace.sql.records.values import converter

ReadDocument: TypeAlias = Callable[[str], object]

_SPACE = " \t\n\r"


def document_reader(kind: ColumnType, path: str) -> ReadDocument:
    """A function that reads documents; null for `null` and for nothing. It raises WrongValue."""
    decoder = json.JSONDecoder(parse_float=Decimal if _has(kind, "decimal") else None)
    scan = decoder.raw_decode
    convert = _exactly_typed(kind, path) if _has(kind, "string") else converter(kind, path)

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
        if found is None:
            return None
        try:
            return convert(found)
        except _NotText:
            return _of_text(kind, text.strip(_SPACE), path)

    return read


def _has(kind: ColumnType, wanted: str) -> bool:
    """Whether a type is of this kind or has such a part."""
    parts = [each for _, each in kind.fields]
    parts += [each for each in (kind.key, kind.element) if each is not None]
    return kind.kind == wanted or any(_has(each, wanted) for each in parts)


class _NotText(Exception):
    """A value of a column of type string is no string: the document's text is needed."""


def _exactly_typed(kind: ColumnType, path: str) -> Convert:
    """As `converter`, but values of strings that are no strings raise _NotText."""
    if kind.kind == "string":
        return _text_only
    if kind.kind == "struct":
        parts = [(name, _exactly_typed(each, f"{path}.{name}")) for name, each in kind.fields]

        def of_object(value: object) -> object:
            if type(value) is not dict:
                raise WrongValue(f"{path} is not an object, as {kind} needs")
            get = value.get
            return {
                name: None if (part := get(name)) is None else inner(part) for name, inner in parts
            }

        return of_object
    if kind.kind == "array":
        inner = _exactly_typed(kind.items, f"{path}[]")

        def of_array(value: object) -> object:
            if type(value) is not list:
                raise WrongValue(f"{path} is not an array, as {kind} needs")
            return [None if each is None else inner(each) for each in value]

        return of_array
    if kind.kind == "map" and kind.keys.kind == "string":
        inner = _exactly_typed(kind.items, f"{path}{{}}")

        def of_map(value: object) -> object:
            if type(value) is not dict:
                raise WrongValue(f"{path} is not an object, as {kind} needs")
            return {name: None if each is None else inner(each) for name, each in value.items()}

        return of_map
    return converter(kind, path)


def _text_only(value: object) -> object:
    if type(value) is str:
        return value
    raise _NotText


# ------------------------------------------------------------------------- from the text itself


def _of_text(kind: ColumnType, text: str, path: str) -> object:
    """The value of a document that is known to be JSON, or of a part of it."""
    if text == "null":
        return None
    if kind.kind == "string":
        return json.loads(text) if text.startswith('"') else text
    if not _has(kind, "string"):
        found = json.loads(text, parse_float=Decimal if _has(kind, "decimal") else None)
        return converter(kind, path)(found)
    if kind.kind == "array" and text.startswith("["):
        return [_of_text(kind.items, each, f"{path}[]") for each in _elements(text)]
    if kind.kind == "struct" and text.startswith("{"):
        members = dict(_members(text))
        return {
            name: _of_text(each, members.get(name, "null"), f"{path}.{name}")
            for name, each in kind.fields
        }
    if kind.kind == "map" and text.startswith("{"):
        return {name: _of_text(kind.items, each, f"{path}{{}}") for name, each in _members(text)}
    raise WrongValue(f"{path} is not of the type {kind}: {text[:100]}")


def _members(text: str) -> Iterator[tuple[str, str]]:
    """The names and the texts of the values of an object."""
    at = _skip(text, 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)
        end = _DECODER.raw_decode(text, at)[1]
        yield name, text[at:end]
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at


def _elements(text: str) -> Iterator[str]:
    """The texts of the elements of an array."""
    at = _skip(text, 1)
    while text[at] != "]":
        end = _DECODER.raw_decode(text, at)[1]
        yield text[at:end]
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at


_DECODER = json.JSONDecoder()
