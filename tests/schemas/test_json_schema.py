"""JSON Schema: which changes of keywords are compatible."""

import json

import pytest

from headrace.schemas import formats
from headrace.schemas.comparison import Sides
from headrace.schemas.errors import InvalidSchema
from headrace.schemas.interface import SchemaDependency

SIDES = Sides(reader="the reader", writer="the writer")


def thing(required: tuple[str, ...] = (), more: object = None, **properties: object) -> object:
    """An object's schema; `more` is its additionalProperties."""
    made: dict[str, object] = {"type": "object", "properties": properties}
    if required:
        made["required"] = list(required)
    if more is not None:
        made["additionalProperties"] = more
    return made


def problems(reader: object, writer: object) -> list[str]:
    parsed = [formats.parse("JSON", json.dumps(each)) for each in (reader, writer)]
    return parsed[0].problems(parsed[1], SIDES)


INT, NUMBER, TEXT = {"type": "integer"}, {"type": "number"}, {"type": "string"}
TREE = {"type": "object", "properties": {"next": {"$ref": "#"}, "v": INT}}
READABLE = [
    ({}, TEXT), (True, TEXT), (TEXT, False), (NUMBER, INT), (TEXT, {**TEXT, "title": "t"}),
    ({"type": ["string", "null"]}, TEXT),
    ({**TEXT, "maxLength": 9}, {**TEXT, "maxLength": 5}),
    ({**TEXT, "minLength": 1}, {**TEXT, "minLength": 2}),
    ({"maxLength": 3}, INT),
    ({**NUMBER, "multipleOf": 2}, {**NUMBER, "multipleOf": 4}),
    ({**NUMBER, "maximum": 5}, {**INT, "maximum": 5}),
    (TEXT, {**TEXT, "pattern": "x"}), ({**TEXT, "pattern": "x"}, {**TEXT, "pattern": "x"}),
    ({"enum": [1, 2, 3]}, {"enum": [1, 2]}), (INT, {"enum": [1, 2]}), (INT, {"const": 1}),
    ({"enum": [1, 2]}, {"const": 1}),
    ({"anyOf": [TEXT, INT]}, TEXT),
    ({"oneOf": [TEXT, INT, {"type": "null"}]}, {"oneOf": [TEXT, INT]}),
    (NUMBER, {"anyOf": [INT, NUMBER]}),
    ({"allOf": [NUMBER]}, INT), (INT, {"allOf": [NUMBER, INT]}),
    ({"not": INT}, {"not": NUMBER}),
    (thing(a=TEXT), thing(("a",), a=TEXT)),
    (thing(), thing(a=TEXT)),
    (thing(more=False, a=TEXT, b=TEXT), thing(more=False, a=TEXT)),
    (thing(("b",), more=False, b={**TEXT, "default": "x"}), thing(more=False)),
    (thing(b=TEXT), thing(more=TEXT)),
    (thing(more=TEXT), thing(more=False, a=TEXT)),
    (thing(more={}), thing(more=True)),
    ({"type": "object", "patternProperties": {"^x": TEXT}, "additionalProperties": False},
     thing(more=False, xa=TEXT)),
    ({"type": "array", "items": NUMBER}, {"type": "array", "items": INT}),
    ({"type": "array", "maxItems": 5}, {"type": "array", "maxItems": 5, "uniqueItems": True}),
    ({"type": "array", "items": [NUMBER, TEXT]}, {"type": "array", "items": [INT, TEXT]}),
    ({"dependencies": {}}, {"dependencies": {"a": ["b"]}}),
    (TREE, TREE),
    ({"$ref": "#/definitions/n", "definitions": {"n": NUMBER}}, INT),
    ({"enum": [1, "a"]}, {"anyOf": [{"const": 1}, {"const": "a"}]}),
]  # fmt: skip
UNREADABLE = [
    (TEXT, INT, "the schema itself"), (INT, NUMBER, "number"), (TEXT, True, "string"),
    (False, TEXT, "allows no value"),
    (TEXT, {"type": ["string", "null"]}, "null"),
    ({**TEXT, "maxLength": 3}, {**TEXT, "maxLength": 5}, "maxLength"),
    ({**TEXT, "maxLength": 3}, TEXT, "maxLength"),
    ({**TEXT, "minLength": 3}, {**TEXT, "minLength": 2}, "minLength"),
    ({**TEXT, "pattern": "x"}, {**TEXT, "pattern": "y"}, "pattern"),
    ({**NUMBER, "multipleOf": 4}, {**NUMBER, "multipleOf": 2}, "multipleOf"),
    ({**NUMBER, "exclusiveMinimum": 4}, {**NUMBER, "exclusiveMinimum": 2}, "exclusiveMinimum"),
    ({"enum": [1]}, {"enum": [1, 2]}, "2"), ({"enum": [1]}, INT, "certain values"),
    (TEXT, {"const": 1}, "1"),
    ({"oneOf": [TEXT, INT]}, {"oneOf": [TEXT, INT, {"type": "null"}]}, "oneOf"),
    ({"allOf": [TEXT]}, INT, "string"),
    ({"not": NUMBER}, {"not": INT}, "excludes"),
    (thing(("a",), a=TEXT), thing(a=TEXT), "field 'a'"),
    (thing(a=INT), thing(a=TEXT), "field 'a'"),
    (thing(a=thing(b=INT)), thing(a=thing(b=TEXT)), "field 'a.b'"),
    (thing(a=TEXT), thing(), "field 'a'"),
    (thing(more=False), thing(more=False, a=TEXT), "field 'a'"),
    (thing(more=False), thing(), "additional"),
    (thing(more=INT), thing(more=TEXT), "field '*'"),
    (thing(a={"type": "array", "items": INT}), thing(a={"type": "array", "items": TEXT}), "'a[]'"),
    ({"type": "array", "uniqueItems": True}, {"type": "array"}, "uniqueItems"),
    ({"type": "array", "items": [INT, TEXT]}, {"type": "array", "items": [INT, INT]}, "[1]"),
    ({"dependencies": {"a": ["b"]}}, {"dependencies": {"a": ["c"]}}, "dependencies"),
    (TREE, {**TREE, "properties": {"next": {"$ref": "#"}, "v": TEXT}}, "field 'v'"),
]  # fmt: skip


@pytest.mark.parametrize(("reader", "writer"), READABLE)
def test_a_schema_that_allows_more_reads_what_allowed_less(reader: object, writer: object) -> None:
    assert problems(reader, writer) == []


@pytest.mark.parametrize(("reader", "writer", "says"), UNREADABLE)
def test_a_schema_that_allows_less_is_refused_with_the_place(
    reader: object, writer: object, says: str
) -> None:
    found = problems(reader, writer)
    assert any(says in each for each in found), found


def test_spaces_do_not_matter_and_the_order_only_until_it_is_normalised() -> None:
    one = formats.parse("JSON", '{ "type" : "string",\n "title": "t" }')
    other = formats.parse("JSON", '{"title":"t","type":"string"}')
    assert one.canonical == '{"type":"string","title":"t"}'
    assert one.normalized() == other.normalized() == '{"title":"t","type":"string"}'


def test_a_reference_by_name_and_by_id_is_followed() -> None:
    part = SchemaDependency("part.json", json.dumps({"$id": "http://example.com/part", **TEXT}))
    for name in ("part.json", "http://example.com/part"):
        text = json.dumps(thing(a={"$ref": name}))
        with pytest.raises(InvalidSchema, match="cannot be resolved"):
            formats.parse("JSON", text)
        parsed = formats.parse("JSON", text, [part])
        assert parsed.problems(formats.parse("JSON", json.dumps(thing(a=TEXT))), SIDES) == []
        assert parsed.problems(formats.parse("JSON", json.dumps(thing(a=INT))), SIDES) != []


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "5", '"string"', "[]", '{"type":"nonsense"}', '{"type":5}', '{"required":"a"}',
        '{"properties":[]}', '{"minLength":-1}', '{"$ref":"#/definitions/none"}',
        '{"$ref":"http://127.0.0.1:9/remote"}', '{"$ref":"file:///etc/passwd"}',
        '{"$schema":5}', '{"a":NaN}', "[" * 100_000,
        '{"properties":{"a":{"properties":{"b":' * 40 + "{}" + "}}}}" * 40,
    ],
)  # fmt: skip
def test_text_that_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        formats.parse("JSON", text)


def test_references_in_a_circle_end() -> None:
    circle = {"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/a"}}}
    assert problems(circle, circle) == []
    assert isinstance(problems(circle, TEXT), list)
