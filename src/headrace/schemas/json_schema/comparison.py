"""Checks whether every document that one JSON Schema allows is allowed by another one.

Each keyword of the reader's schema must follow from the writer's. If that cannot be determined
keyword by keyword (patterns, conditions, dependencies), both must be equal. A schema without
`additionalProperties: false` allows any property: a reader must therefore not restrict a property
that the writer's documents may already have in another form.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from jsonschema.protocols import Validator
from referencing import Resource
from referencing.jsonschema import DRAFT7, specification_with

from headrace.schemas.comparison import Budget, Sides

if TYPE_CHECKING:
    from referencing._core import Resolver

Data: TypeAlias = "dict[str, object] | bool"
TYPES = frozenset({"null", "boolean", "number", "integer", "string", "array", "object"})
# Keywords whose larger (or smaller) value in the reader allows more.
UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
EXACT = (
    "pattern", "contains", "propertyNames", "if", "then", "else", "unevaluatedProperties",
    "unevaluatedItems", "minContains", "maxContains",
)  # fmt: skip
# The types to which a keyword applies.
ABOUT = {
    "maximum": "number", "exclusiveMaximum": "number", "minimum": "number",
    "exclusiveMinimum": "number", "maxLength": "string", "minLength": "string",
    "pattern": "string", "maxItems": "array", "minItems": "array", "contains": "array",
    "maxProperties": "object", "minProperties": "object", "propertyNames": "object",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class JsonNode:
    """A schema or a part of one, with the resolver of its references."""

    data: Data
    resolver: "Resolver[Data]"
    kind: type[Validator]

    def get(self, word: str) -> object:
        return self.data.get(word) if isinstance(self.data, dict) else None

    def part(self, data: object) -> "JsonNode":
        assert isinstance(data, dict | bool), "the library has checked the schema"
        resolver = self.resolver
        if isinstance(data, dict) and isinstance(data.get("$id"), str):
            name = str(self.kind.META_SCHEMA.get("$schema"))
            like = specification_with(name, default=DRAFT7)
            resolver = resolver.in_subresource(Resource(contents=data, specification=like))
        return JsonNode(data, resolver, self.kind)

    def parts(self, word: str) -> dict[str, "JsonNode"]:
        """Schemas by name, such as those of `properties`."""
        found = self.get(word)
        return {n: self.part(d) for n, d in found.items()} if isinstance(found, dict) else {}

    def listed(self, word: str) -> list["JsonNode"]:
        found = self.get(word)
        return [self.part(each) for each in found] if isinstance(found, list) else []

    def target(self) -> "JsonNode | None":
        """The target of its `$ref`."""
        reference = self.get("$ref")
        if not isinstance(reference, str):
            return None
        found = self.resolver.lookup(reference)
        if not isinstance(found.contents, dict | bool):
            raise ValueError(f"{reference} is not a schema")
        return JsonNode(found.contents, found.resolver, self.kind)

    def children(self) -> Iterator["JsonNode"]:
        """The schemas inside this one."""
        for word in (
            "properties", "patternProperties", "definitions", "$defs", "dependentSchemas",
        ):  # fmt: skip
            yield from self.parts(word).values()
        for word in ("allOf", "anyOf", "oneOf", "prefixItems", "items"):
            yield from self.listed(word)
        for word in (
            "items", "additionalItems", "additionalProperties", "contains", "not", "if", "then",
            "else", "propertyNames",
        ):  # fmt: skip
            found = self.get(word)
            if isinstance(found, dict | bool):
                yield self.part(found)

    def types(self) -> frozenset[str]:
        found = self.get("type")
        if isinstance(found, str):
            return frozenset({found})
        return frozenset(map(str, found)) if isinstance(found, list) else TYPES

    def allows(self, value: object) -> bool:
        return bool(self.validator().is_valid(value))

    def validator(self) -> Validator:
        return self.kind(self.data, _resolver=self.resolver)


class JsonComparison:
    """One comparison of two schemas."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self._budget = Budget(sides.pairs)
        self._results: dict[tuple[int, int], list[str]] = {}
        # Nodes must live as long as their ids are used as keys.
        self._nodes: list[JsonNode] = []

    def problems(self, reader: JsonNode, writer: JsonNode, path: str = "") -> list[str]:
        """Why a document that `writer` allows may be invalid for `reader`, each with its path."""
        pair = (id(reader.data), id(writer.data))
        if isinstance(reader.data, bool) or isinstance(writer.data, bool):
            return self._compare(reader, writer, path)
        if pair not in self._results:
            self._budget.spend()
            self._nodes += (reader, writer)
            # A pair in progress counts as allowed, because a recursive schema is if its rest is.
            self._results[pair] = []
            self._results[pair] = self._compare(reader, writer, path)
        return self._results[pair]

    def _compare(self, reader: JsonNode, writer: JsonNode, path: str) -> list[str]:
        if reader.data in (True, {}) or writer.data is False:
            return []
        if reader.data is False:
            return [self._say(path, "allows no value, but {w} allows some")]
        if (target := writer.target()) is not None:
            return self.problems(reader, target, path)
        if (target := reader.target()) is not None:
            return self.problems(target, writer, path)
        for word in ("anyOf", "oneOf"):
            if branches := writer.listed(word):
                return self._from_branches(reader, writer, word, branches, path)
        return (
            self._all_of(reader, writer, path)
            or self._one_of(reader, writer, path)
            or (self._plain(reader, writer, path))
        )

    def _from_branches(
        self, reader: JsonNode, writer: JsonNode, word: str, branches: list[JsonNode], path: str
    ) -> list[str]:
        """Compare a writer's union: the reader must allow the documents of all its members."""
        assert isinstance(writer.data, dict)
        beside = {name: value for name, value in writer.data.items() if name != word}
        found: list[str] = []
        for branch in branches:
            whole = branch
            if isinstance(branch.data, dict) and "$ref" not in branch.data:
                whole = JsonNode({**beside, **branch.data}, branch.resolver, branch.kind)
                self._nodes.append(whole)
            found += self.problems(reader, whole, path)
        return found

    def _all_of(self, reader: JsonNode, writer: JsonNode, path: str) -> list[str]:
        writers = [writer, *writer.listed("allOf")]
        found: list[str] = []
        for part in reader.listed("allOf"):
            candidates = [self.problems(part, each, path) for each in writers]
            if all(candidates):
                found += candidates[0]
        return found

    def _one_of(self, reader: JsonNode, writer: JsonNode, path: str) -> list[str]:
        for word in ("anyOf", "oneOf"):
            branches = reader.listed(word)
            if not branches:
                continue
            tried = [self.problems(branch, writer, path) for branch in branches]
            if all(tried):
                return [
                    self._say(path, f"has no member of {word} that allows all of {{w}}: ")
                    + min(tried, key=lambda each: len(each))[0]
                ]
        return []

    def _plain(self, reader: JsonNode, writer: JsonNode, path: str) -> list[str]:
        fixed = _values(writer)
        if fixed is not None:
            bad = [value for value in fixed if not reader.allows(value)]
            return [self._say(path, f"does not allow {_short(bad[0])} of {{w}}")] if bad else []
        merged = _merged(writer)
        if merged is not writer:
            self._nodes.append(merged)
        found = self._types(reader, merged, path)
        if found:
            return found
        if _values(reader) is not None:
            return [self._say(path, "allows only certain values, but {w} allows others")]
        found = self._bounds(reader, merged, path)
        if "object" in merged.types():
            found += self._object(reader, merged, path)
        if "array" in merged.types():
            found += self._array(reader, merged, path)
        return found

    def _types(self, reader: JsonNode, writer: JsonNode, path: str) -> list[str]:
        allowed = reader.types()
        extra = [
            each
            for each in sorted(writer.types())
            if each not in allowed and not (each == "integer" and "number" in allowed)
        ]
        if not extra:
            return []
        return [
            self._say(
                path, f"allows {' or '.join(sorted(allowed))}, but {{w}} also {' or '.join(extra)}"
            )
        ]

    def _bounds(self, reader: JsonNode, writer: JsonNode, path: str) -> list[str]:
        found: list[str] = []
        for word in (*UPPER, *LOWER, "multipleOf", "uniqueItems", *EXACT):
            wanted, given = reader.get(word), writer.get(word)
            if wanted is None or (wanted is False and word == "uniqueItems") or wanted == given:
                continue
            about = ABOUT.get(word)
            if about and not writer.types() & {about, "integer" if about == "number" else about}:
                continue
            if not _follows(word, wanted, given):
                shown = "no such limit" if given is None else _short(given)
                found.append(self._say(path, f"has {word} {_short(wanted)}, but {{w}} has {shown}"))
        return found + self._conditions(reader, writer, path)

    def _conditions(self, reader: JsonNode, writer: JsonNode, path: str) -> list[str]:
        found: list[str] = []
        for word in ("dependencies", "dependentRequired", "dependentSchemas"):
            wanted, given = reader.get(word), writer.get(word)
            for name, rule in wanted.items() if isinstance(wanted, dict) else ():
                if not isinstance(given, dict) or given.get(name) != rule:
                    found.append(
                        self._say(_join(path, name), f"has {word} that {{w}} does not have")
                    )
        excluded = reader.get("not")
        if isinstance(excluded, dict | bool):
            other = writer.get("not")
            # The writer must exclude what the reader excludes.
            if not isinstance(other, dict | bool) or self.problems(
                writer.part(other), reader.part(excluded), path
            ):
                found.append(self._say(path, f"excludes {_short(excluded)}, but {{w}} does not"))
        return found

    def _object(self, reader: JsonNode, writer: JsonNode, path: str) -> list[str]:
        found: list[str] = []
        mine, theirs = reader.parts("properties"), writer.parts("properties")
        given = writer.get("required")
        required = set(map(str, given)) if isinstance(given, list) else set()
        wanted = reader.get("required")
        for name in map(str, wanted if isinstance(wanted, list) else ()):
            has_default = name in mine and mine[name].get("default") is not None
            if name not in required and not has_default:
                found.append(self._say(_join(path, name), "requires it, but {w} does not"))
        for name, part in mine.items():
            source = theirs.get(name) or _other_property(writer, name)
            if source is None:
                if part.data not in (True, {}):
                    found.append(
                        self._say(
                            _join(path, name),
                            "restricts it, but {w} allows additional properties of any kind",
                        )
                    )
            else:
                found += self.problems(part, source, _join(path, name))
        for name, source in theirs.items():
            if name not in mine:
                found += self._unknown_property(reader, source, name, path)
        return found + self._additional(reader, writer, path)

    def _unknown_property(
        self, reader: JsonNode, source: JsonNode, name: str, path: str
    ) -> list[str]:
        place = _join(path, name)
        target = _other_property(reader, name)
        if target is None or source.data is False:
            return []
        if target.data is False:
            return [self._say(place, "does not allow it, but {w} has it")]
        return self.problems(target, source, place)

    def _additional(self, reader: JsonNode, writer: JsonNode, path: str) -> list[str]:
        found: list[str] = []
        theirs = writer.parts("patternProperties")
        for pattern, part in reader.parts("patternProperties").items():
            source = theirs.get(pattern) or _additional_of(writer)
            if source.data is not False:
                found += self.problems(part, source, _join(path, f"/{pattern}/"))
        mine = _additional_of(reader)
        for pattern, source in theirs.items():
            if pattern not in reader.parts("patternProperties"):
                found += self.problems(mine, source, _join(path, f"/{pattern}/"))
        if mine.data not in (True, {}) and _additional_of(writer).data is not False:
            if mine.data is False:
                found.append(self._say(path, "allows no additional properties, but {w} does"))
            else:
                found += self.problems(mine, _additional_of(writer), _join(path, "*"))
        return found

    def _array(self, reader: JsonNode, writer: JsonNode, path: str) -> list[str]:
        mine, my_rest = _items(reader)
        theirs, their_rest = _items(writer)
        found: list[str] = []
        for index in range(max(len(mine), len(theirs))):
            part = mine[index] if index < len(mine) else my_rest
            source = theirs[index] if index < len(theirs) else their_rest
            found += self.problems(part, source, f"{path}[{index}]")
        return found + self.problems(my_rest, their_rest, f"{path}[]")

    def _say(self, path: str, text: str) -> str:
        place = f"field '{path}'" if path else "the schema itself"
        return f"{place}: {self._sides.reader} {text}".replace("{w}", self._sides.writer)


def _merged(writer: JsonNode) -> JsonNode:
    """The writer combined with the members of its `allOf`, whose constraints all apply."""
    parts = writer.listed("allOf")
    if not parts or not isinstance(writer.data, dict):
        return writer
    whole: dict[str, object] = {}
    for part in (*parts, writer):
        seen = 0
        while (target := part.target()) is not None and seen < 100:
            part, seen = target, seen + 1
        if not isinstance(part.data, dict):
            continue
        for word, value in part.data.items():
            below = whole.get(word)
            if word in ("properties", "patternProperties") and isinstance(below, dict):
                assert isinstance(value, dict)
                whole[word] = {**below, **value}
            elif word == "required" and isinstance(below, list) and isinstance(value, list):
                whole[word] = [*below, *value]
            elif word != "allOf":
                whole[word] = value
    return JsonNode(whole, writer.resolver, writer.kind)


def _values(node: JsonNode) -> list[object] | None:
    """The values of `enum` or `const`, if it has one."""
    if isinstance(node.data, dict) and "const" in node.data:
        return [node.data["const"]]
    found = node.get("enum")
    return found if isinstance(found, list) else None


def _follows(word: str, wanted: object, given: object) -> bool:
    """Whether the reader's bound follows from the writer's."""
    if given is None or word in EXACT or isinstance(wanted, bool) or isinstance(given, bool):
        return False
    assert isinstance(wanted, int | float)
    assert isinstance(given, int | float)
    if word == "multipleOf":
        return given % wanted == 0
    return given <= wanted if word in UPPER else given >= wanted


def _other_property(node: JsonNode, name: str) -> JsonNode | None:
    """The schema of a property that the object does not name; None if there is none."""
    for pattern, part in node.parts("patternProperties").items():
        if _pattern(pattern).search(name):
            return part
    found = _additional_of(node)
    return None if found.data in (True, {}) else found


@lru_cache(maxsize=1000)
def _pattern(text: str) -> "re.Pattern[str]":
    try:
        return re.compile(text)
    except re.error:
        # A dialect that Python does not support; it is treated as matching nothing.
        return re.compile(r"(?!)")


def _additional_of(node: JsonNode) -> JsonNode:
    found = node.get("additionalProperties")
    return node.part(found if isinstance(found, dict | bool) else True)


def _items(node: JsonNode) -> tuple[list[JsonNode], JsonNode]:
    """The schemas of the first items, and that of all others."""
    items = node.get("items")
    if isinstance(items, list):
        rest = node.get("additionalItems")
        return node.listed("items"), node.part(rest if isinstance(rest, dict | bool) else True)
    first = node.listed("prefixItems")
    return first, node.part(items if isinstance(items, dict | bool) else True)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
