"""Avro schemas: validated with Apache's library; references by full name."""

import json
from collections.abc import Sequence
from functools import cached_property
from typing import cast

from avro.errors import AvroException
from avro.name import Names
from avro.schema import NamedSchema, Schema, make_avsc_object

from headrace.bounded_json import BadJson, parse_json
from headrace.schemas.avro.comparison import PRIMITIVES, AvroComparison
from headrace.schemas.avro.text import canonical_text, respelled
from headrace.schemas.comparison import Sides
from headrace.schemas.errors import InvalidSchema, unknown_form
from headrace.schemas.interface import ParsedSchema, SchemaDependency

# The exceptions of the library for invalid schemas.
_LIBRARY_ERRORS = (AvroException, AttributeError, KeyError, TypeError, ValueError, RecursionError)


_SHARED: dict[str, Schema] = {name: make_avsc_object(name) for name in PRIMITIVES}


class KnownNames(Names):
    """The names of types for the library, including Avro's primitive types.

    Most types in a schema are a plain "string" or "long". The library first looks for a user's type
    of that name, and then creates an object for each: two thirds of the parsing time. Shared
    objects also make cached schemas smaller.
    """

    def has_name(self, name_attr: str, space_attr: str | None = None) -> bool:
        return name_attr in _SHARED or super().has_name(name_attr, space_attr)

    def get_name(self, name_attr: str, space_attr: str | None = None) -> NamedSchema | None:
        if (found := _SHARED.get(name_attr)) is not None:
            return cast(NamedSchema, found)
        return super().get_name(name_attr, space_attr)


class AvroSchema:
    """A valid Avro schema."""

    kind = "AVRO"

    def __init__(self, data: object, schema: Schema) -> None:
        self._data = data
        self.schema = schema

    @cached_property
    def canonical(self) -> str:
        return canonical_text(self._data)

    def normalized(self) -> str:
        return canonical_text(self._data, normalize=True)

    def formatted(self, form: str) -> str:
        if form == "resolved":
            return json.dumps(self.schema.to_json(), separators=(",", ":"), ensure_ascii=False)
        raise unknown_form(form, "resolved")

    def problems(self, writer: ParsedSchema, sides: Sides) -> list[str]:
        return AvroComparison(sides).problems(self.schema, cast(AvroSchema, writer).schema)


def parse(text: str, dependencies: Sequence[SchemaDependency]) -> AvroSchema:
    """Parse a schema that may use the named types of its dependencies."""
    data = _data(text)
    known = [(_data(each.text), each.name) for each in dependencies]
    try:
        return _parse(data, known)
    except InvalidSchema:
        other = respelled(data)
        if other == data:
            raise
        return _parse(other, known)


def _parse(data: object, known: Sequence[tuple[object, str]]) -> AvroSchema:
    names = KnownNames(validate_names=True)
    for dependency, name in known:
        _make(dependency, names, f"the reference {name!r}")
    return AvroSchema(data, _make(data, names, "the schema"))


def _data(text: str) -> object:
    try:
        return parse_json(text)
    except BadJson as error:
        raise InvalidSchema(f"Invalid Avro schema: not JSON: {error}") from None


def _make(data: object, names: Names, what: str) -> Schema:
    try:
        return make_avsc_object(data, names)
    except _LIBRARY_ERRORS as error:
        reason = f"{error}"[:500] or type(error).__name__
        raise InvalidSchema(f"Invalid Avro schema: {what} is not valid: {reason}") from None
