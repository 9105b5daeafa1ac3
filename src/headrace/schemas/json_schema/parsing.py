"""JSON Schema: validated with the jsonschema library; references by name, without requests."""

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import cast

from jsonschema.exceptions import SchemaError
from jsonschema.protocols import Validator
from jsonschema.validators import Draft7Validator, validator_for
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7, specification_with

from headrace.bounded_json import BadJson, parse_json
from headrace.schemas.comparison import Sides
from headrace.schemas.errors import InvalidSchema, unknown_form
from headrace.schemas.interface import ParsedSchema, SchemaDependency
from headrace.schemas.json_schema.comparison import JsonComparison, JsonNode

Schema = dict[str, object] | bool
# The base URI of a schema without an $id.
HERE = "headrace:/schema"


class JsonSchema:
    """A valid JSON Schema."""

    kind = "JSON"

    def __init__(self, data: Schema, node: JsonNode) -> None:
        self._data = data
        self.node = node

    @cached_property
    def canonical(self) -> str:
        return json.dumps(self._data, separators=(",", ":"), ensure_ascii=False)

    def normalized(self) -> str:
        return json.dumps(self._data, separators=(",", ":"), ensure_ascii=False, sort_keys=True)

    def formatted(self, form: str) -> str:
        raise unknown_form(form, "none")

    def problems(self, writer: ParsedSchema, sides: Sides) -> list[str]:
        return JsonComparison(sides).problems(self.node, cast(JsonSchema, writer).node)


def parse(text: str, dependencies: Sequence[SchemaDependency]) -> JsonSchema:
    """Parse a schema; a `$ref` may refer to a part of it, its `$id`, or a dependency."""
    data = _data(text, "the schema")
    kind: type[Validator] = validator_for(data, default=Draft7Validator)
    _check(kind, data)
    known: list[tuple[str, Resource[Schema]]] = []
    for dependency in dependencies:
        found = _resource(_data(dependency.text, f"the reference {dependency.name!r}"))
        known.append((dependency.name, found))
        if (own := found.id()) is not None:
            known.append((own, found))
    resource = _resource(data)
    place = resource.id() or HERE
    registry: Registry[Schema] = Registry().with_resources([*known, (place, resource)])
    try:
        node = JsonNode(data, registry.crawl().resolver(place), kind)
        _check_references(node)
    except (Unresolvable, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        reason = f"{error}"[:300] or type(error).__name__
        raise InvalidSchema(
            f"Invalid JSON Schema: a $ref cannot be resolved: {reason}. Add its target to the "
            "schema's references"
        ) from None
    return JsonSchema(data, node)


def _data(text: str, what: str) -> Schema:
    try:
        data = parse_json(text)
    except BadJson as error:
        raise InvalidSchema(f"Invalid JSON Schema: {what} is not JSON: {error}") from None
    if not isinstance(data, dict | bool):
        raise InvalidSchema(f"Invalid JSON Schema: {what} must be an object, true or false")
    if isinstance(data, dict) and not isinstance(data.get("$schema", ""), str):
        raise InvalidSchema(f"Invalid JSON Schema: the $schema of {what} must be a string")
    return data


def _check(kind: type[Validator], data: Schema) -> None:
    try:
        kind.check_schema(data)
    except SchemaError as error:
        place = "/".join(map(str, error.absolute_path))
        raise InvalidSchema(f"Invalid JSON Schema: at #/{place}: {error.message[:300]}") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidSchema(f"Invalid JSON Schema: {type(error).__name__}") from None


def _resource(data: Schema) -> Resource[Schema]:
    name = data.get("$schema") if isinstance(data, dict) else None
    chosen = specification_with(str(name), default=DRAFT7) if name else DRAFT7
    return Resource(contents=data, specification=chosen)


def _check_references(root: JsonNode) -> None:
    """Resolves every `$ref` once, so that broken ones are found before a comparison."""
    for node in _walk(root):
        node.target()


def _walk(root: JsonNode) -> Iterator[JsonNode]:
    waiting, seen = [root], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node.data) in seen:
            continue
        seen.add(id(node.data))
        yield node
        waiting += node.children()
