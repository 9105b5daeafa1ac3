"""Avro: validity, the canonical text, and the rules of schema resolution, case by case."""

import json
from pathlib import Path

import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.schema import Schema
from avro.schema import parse as apache_parse
from hypothesis import given
from hypothesis import strategies as st

from headrace.schemas import formats
from headrace.schemas.comparison import COMPARED_PAIRS, Sides
from headrace.schemas.errors import InvalidSchema, TooManyPairs
from headrace.schemas.interface import SchemaDependency

SIDES = Sides(reader="the reader", writer="the writer")


def record(*fields: object, **more: object) -> dict[str, object]:
    return {"type": "record", "name": "R", "fields": list(fields), **more}


def field(name: str, kind: object, **more: object) -> dict[str, object]:
    return {"name": name, "type": kind, **more}


def problems(reader: object, writer: object) -> list[str]:
    parsed = [formats.parse("AVRO", json.dumps(each)) for each in (reader, writer)]
    return parsed[0].problems(parsed[1], SIDES)


def enum(*symbols: str, **more: object) -> dict[str, object]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F") -> dict[str, object]:
    return {"type": "fixed", "name": name, "size": size}


NESTED = record(field("in", record(field("x", "int"), name="In")))
READABLE = [
    ("long", "int"), ("float", "int"), ("double", "int"), ("float", "long"), ("double", "long"),
    ("double", "float"), ("string", "bytes"), ("bytes", "string"), ("int", "int"),
    (["null", "int"], "int"),
    (["null", "int"], ["int", "null"]),
    (["null", "long"], ["int"]),
    ("long", ["int", "long"]),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}),
    ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}),
    (record(field("a", "int", default=0)), record()),
    (record(), record(field("a", "int"))),
    (record(field("b", "int", aliases=["a"])), record(field("a", "int"))),
    (record(name="New", aliases=["R"]), record()),
    (record(name="n.New", aliases=["R"]), record(name="n.R")),
    (record(name="other.R"), record(name="n.R")),
    (enum("A", "B"), enum("A")),
    (enum("A", default="A"), enum("A", "B")),
    (fixed(4), fixed(4)),
    ({"type": "int", "logicalType": "date"}, "int"),
    (record(field("next", ["null", "R"])), record(field("next", ["null", "R"]))),
]  # fmt: skip
UNREADABLE = [
    ("int", "long", "the schema itself"),
    ("int", "string", "the schema itself"),
    ("boolean", "int", "the schema itself"),
    ("int", ["null", "int"], "type null"),
    (["null", "int"], "string", "the union [null, int]"),
    (record(field("a", "int")), record(), "field 'a'"),
    (record(field("a", "int")), record(field("a", "string")), "field 'a'"),
    (
        record(field("in", record(field("x", "string"), name="In"))), NESTED, "field 'in.x'",
    ),
    (
        record(field("in", ["null", record(field("x", "string"), name="In")])), NESTED,
        "field 'in.x'",
    ),
    (
        record(field("a", {"type": "array", "items": "int"})),
        record(field("a", {"type": "array", "items": "string"})),
        "field 'a[]'",
    ),
    (
        record(field("m", {"type": "map", "values": "int"})),
        record(field("m", {"type": "map", "values": "string"})),
        "field 'm{}'",
    ),
    (record(name="A"), record(name="B"), "record A"),
    (enum("A"), enum("A", "B"), "neither B"),
    (fixed(4), fixed(8), "4 bytes"),
    (fixed(4, "F"), fixed(4, "G"), "fixed F"),
    (record(), enum("A"), "type R"),
    (
        record(field("next", ["null", "R"]), field("v", "int")),
        record(field("next", ["null", "R"]), field("v", "string")),
        "field 'v'",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("reader", "writer"), READABLE)
def test_what_the_specification_allows_is_readable(reader: object, writer: object) -> None:
    assert problems(reader, writer) == []


@pytest.mark.parametrize(("reader", "writer", "says"), UNREADABLE)
def test_what_cannot_be_read_is_said_with_its_place(
    reader: object, writer: object, says: str
) -> None:
    found = problems(reader, writer)
    assert any(says in each for each in found), found


primitives = st.sampled_from(
    ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
)


@st.composite
def schemas(draw: st.DrawFn, depth: int = 2) -> object:
    """Schemas in which every named type has a fixed name, so that two of them can be compared."""
    kind = draw(st.sampled_from(["primitive", "enum", "fixed", "record", "union", "array", "map"]))
    if depth == 0 or kind == "primitive":
        return draw(primitives)
    if kind == "enum":
        made = enum(*draw(st.lists(st.sampled_from("ABC"), min_size=1, unique=True)))
        return {**made, "name": f"E{depth}"}
    if kind == "fixed":
        return fixed(draw(st.integers(1, 2)), f"F{depth}")
    if kind in ("array", "map"):
        inside = draw(schemas(depth - 1))
        return {"type": kind, "items" if kind == "array" else "values": inside}
    if kind == "union":
        members = draw(st.lists(primitives, min_size=1, max_size=3, unique=True))
        own: object = draw(schemas(depth - 1))
        return [*members, own] if isinstance(own, dict) else members
    names = draw(st.lists(st.sampled_from("abc"), max_size=1, unique=True))
    return record(*(field(name, draw(schemas(depth - 1))) for name in names), name=f"R{depth}")


@given(schemas(), schemas())
def test_verdicts_are_those_of_apaches_own_checker(reader: object, writer: object) -> None:
    def oracle(schema: object) -> Schema:
        return apache_parse(json.dumps(schema))

    result = ReaderWriterCompatibilityChecker().get_compatibility(oracle(reader), oracle(writer))
    assert (problems(reader, writer) == []) == (
        result.compatibility is SchemaCompatibilityType.compatible
    )


@given(schemas())
def test_a_schema_is_what_apaches_library_makes_of_it(schema: object) -> None:
    text = json.dumps(schema)
    mine = formats.parse("AVRO", text).formatted("resolved")
    assert json.loads(mine) == apache_parse(text).to_json()


def test_every_field_that_cannot_be_read_is_named() -> None:
    """Fields share their types: the primitive ones all, the others those of one name."""
    names = ("a", "b", "c")
    for reader, *writers in (
        ("int", "string", "string", "string"),
        ("int", record(name="In"), "In", "In"),
        (["null", "int"], "string", "string", "string"),
        (["null", "int"], ["null", "string"], ["null", "string"], ["null", "string"]),
        (["null", "int"], ["null", record(name="In")], "In", ["In"]),
    ):
        found = problems(
            record(*(field(name, reader) for name in names)),
            record(*(field(name, kind) for name, kind in zip(names, writers, strict=True))),
        )
        assert [each.partition(":")[0] for each in found] == [f"field '{n}'" for n in names]


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ('{"type": "string"}', '"string"'),
        ('{"type":"int","logicalType":"date"}', '{"type":"int","logicalType":"date"}'),
        (
            (
                '{"fields": [{"type": "a.b.R", "name": "r"}], "x": 1, "name": "a.b.R",'
                ' "aliases": ["Q"], "doc": "d", "type": "record"}'
            ),
            (
                '{"type":"record","name":"R","namespace":"a.b","doc":"d",'
                '"fields":[{"name":"r","type":"R"}],"x":1,"aliases":["Q"]}'
            ),
        ),
        (
            (
                '{"type":"record","name":"R","fields":[{"name":"e","order":"ascending","default":"A",'
                '"type":{"symbols":["A"],"name":"E","namespace":"other","type":"enum"}}]}'
            ),
            (
                '{"type":"record","name":"R","fields":[{"name":"e","type":{"type":"enum","name":"E",'
                '"namespace":"other","symbols":["A"]},"default":"A"}]}'
            ),
        ),
    ],
)
def test_spellings_of_one_schema_have_one_text(text: str, canonical: str) -> None:
    assert formats.parse("AVRO", text).canonical == canonical
    assert formats.parse("AVRO", canonical).canonical == canonical


def java_table() -> list[tuple[str, str]]:
    lines = (Path(__file__).parent / "avro_java.txt").read_text("utf-8").split("\n")
    rows = [line for line in lines if line and not line.startswith("#")]
    return list(zip(rows[::2], rows[1::2], strict=True))


@pytest.mark.filterwarnings("ignore::avro.errors.IgnoredLogicalType")
@pytest.mark.parametrize(("text", "printed_by_java"), java_table())
def test_the_canonical_text_is_the_one_that_java_prints(text: str, printed_by_java: str) -> None:
    assert formats.parse("AVRO", text).canonical == printed_by_java
    assert formats.parse("AVRO", printed_by_java).canonical == printed_by_java


def test_a_reserved_attribute_without_meaning_does_not_make_another_schema() -> None:
    plain = formats.parse("AVRO", json.dumps(record(field("a", "int"))))
    named = record(field("a", {"type": "int", "name": "x", "doc": "d", "size": 4}))
    assert formats.parse("AVRO", json.dumps(named)).canonical == plain.canonical


def test_normalising_puts_the_users_own_properties_in_order() -> None:
    one = formats.parse("AVRO", '{"type":"int","b":1,"a":2}')
    other = formats.parse("AVRO", '{"a":2,"type":"int","b":1}')
    assert one.canonical != other.canonical
    assert one.normalized() == other.normalized()


def test_a_reference_gives_the_types_that_a_schema_names() -> None:
    address = SchemaDependency("shop.Address", json.dumps(record(name="shop.Address")))
    order = json.dumps(record(field("to", "shop.Address"), name="Order"))
    with pytest.raises(InvalidSchema, match="Address"):
        formats.parse("AVRO", order)
    assert "shop.Address" in formats.parse("AVRO", order, [address]).canonical


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "nonsense", '"nonsense"', "5", "null", "{}", '{"type":{}}', '{"type":[]}', "NaN",
        '"\\ud800"', '{"type":"record","name":"R"}', '{"type":"record","name":"R","fields":5}',
        '{"type":"record","name":"1","fields":[]}', '{"type":"record","fields":[]}',
        '{"type":"record","name":"R","fields":[5]}', '{"type":"enum","name":"E","symbols":[1]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
        '{"type":"enum","name":"E","symbols":["A","A"]}', '{"type":"fixed","name":"F","size":"x"}',
        '{"type":"array"}', '{"type":"map","values":"nonsense"}', '[["int"]]', '["int","int"]',
        '{"type":"record","name":"R","fields":[{"name":"a"}]}', "[" * 100_000,
        '{"type":"array","items":' * 200 + '"int"' + "}" * 200, '{"type":"fixed","name":"F","size":'
        + "9" * 5000 + "}",
    ],
)  # fmt: skip
def test_text_that_is_no_schema_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        formats.parse("AVRO", text)
    assert len(str(caught.value)) < 1000


def test_a_comparison_of_huge_unions_ends() -> None:
    names = [record(name=f"R{n}") for n in range(600)]
    one = formats.parse("AVRO", json.dumps(names))
    other = formats.parse("AVRO", json.dumps([record(name=f"Q{n}") for n in range(600)]))
    with pytest.raises(TooManyPairs, match=str(COMPARED_PAIRS)):
        one.problems(other, SIDES)
