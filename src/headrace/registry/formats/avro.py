"""Avro schemas: validity by Apache's library, one canonical text, and references by full name."""

import json
from collections.abc import Sequence
from functools import cached_property
from typing import cast

from avro.errors import AvroException
from avro.name import Names
from avro.schema import NamedSchema, Schema, make_avsc_object

from headrace.registry.failures import InvalidSchema
from headrace.registry.formats.avro_reading import NAMED, PRIMITIVES, Reading
from headrace.registry.formats.json_text import BadJson, parse_json
from headrace.registry.formats.parsed import Dependency, Parsed, Sides, unknown_form

# What Avro itself knows, in the order in which the canonical text has it. Anything else is a
# property of the user's and stands between these and the aliases.
ORDER = {
    "record": ("type", "name", "namespace", "doc", "fields"),
    "error": ("type", "name", "namespace", "doc", "fields"),
    "enum": ("type", "name", "namespace", "doc", "symbols", "default"),
    "fixed": ("type", "name", "namespace", "doc", "size"),
    "array": ("type", "items"),
    "map": ("type", "values"),
}
FIELD_ORDER = ("name", "type", "doc", "default", "order")
# Whatever the library stumbles over in text that is no schema.
_LIBRARY_ERRORS = (AvroException, AttributeError, KeyError, TypeError, ValueError, RecursionError)


_SHARED: dict[str, Schema] = {name: make_avsc_object(name) for name in PRIMITIVES}


class KnownNames(Names):
    """The names that the library looks types up by, and among them those that Avro begins with.

    Most types in a schema are a bare "string" or "long". The library looks for a user's type of
    that name first, and then makes an object of each: two thirds of the time that it takes. One
    object for all also keeps what is remembered of a schema small.
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
        return _text(_canonical(self._data, "", ordered=False))

    def normalized(self) -> str:
        return _text(_canonical(self._data, "", ordered=True))

    def formatted(self, form: str) -> str:
        if form == "resolved":
            return _text(self.schema.to_json())
        raise unknown_form(form, "resolved")

    def problems(self, writer: Parsed, sides: Sides) -> list[str]:
        return Reading(sides).problems(self.schema, cast(AvroSchema, writer).schema)


def parse(text: str, dependencies: Sequence[Dependency]) -> AvroSchema:
    """The schema, with the named types of its dependencies known to it."""
    names = KnownNames(validate_names=True)
    for dependency in dependencies:
        _make(_data(dependency.text), names, f"the reference {dependency.name!r}")
    data = _data(text)
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


def _text(data: object) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)


def _canonical(data: object, space: str, *, ordered: bool) -> object:
    """The schema with its attributes in one order and its names as short as they can be."""
    if isinstance(data, str):
        return data if data in PRIMITIVES else _short(_full(data, space), space)
    if isinstance(data, list):
        return [_canonical(each, space, ordered=ordered) for each in data]
    assert isinstance(data, dict), "the library has taken it for a schema"
    kind = data["type"]
    if isinstance(kind, dict | list):
        return _canonical(kind, space, ordered=ordered)
    if kind not in ORDER:
        if set(data) == {"type"}:
            return _canonical(kind, space, ordered=ordered)
        return _arranged(data, ("type",), ordered=ordered)
    made = dict(data)
    inner = space
    if kind in NAMED:
        full = _full(str(data["name"]), str(data.get("namespace", space)))
        inner, _, made["name"] = full.rpartition(".")
        made.pop("namespace", None)
        if inner != space:
            made["namespace"] = inner
        if not made.get("doc", True):
            del made["doc"]
    if "fields" in made:
        made["fields"] = [_field(each, inner, ordered=ordered) for each in data["fields"]]
    for part in ("items", "values"):
        if part in made:
            made[part] = _canonical(data[part], inner, ordered=ordered)
    return _arranged(made, ORDER[kind], ordered=ordered)


def _field(field: dict[str, object], space: str, *, ordered: bool) -> dict[str, object]:
    made = {**field, "type": _canonical(field["type"], space, ordered=ordered)}
    if made.get("order") == "ascending":
        del made["order"]
    return _arranged(made, FIELD_ORDER, ordered=ordered)


def _arranged(data: dict[str, object], order: Sequence[str], *, ordered: bool) -> dict[str, object]:
    rest = [name for name in data if name not in order and name != "aliases"]
    if ordered:
        rest.sort()
    names = [*(name for name in order if name in data), *rest]
    if "aliases" in data:
        names.append("aliases")
    return {name: data[name] for name in names}


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _short(full: str, space: str) -> str:
    return full.removeprefix(f"{space}.") if full.rpartition(".")[0] == space else full
