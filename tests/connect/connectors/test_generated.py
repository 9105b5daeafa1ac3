import json
import re

import pytest

from headrace.connect.connectors.generated import BadSchema, Generator


def one_field(kind: object) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": [{"name": "f", "type": kind}]})


def values(kind: object, count: int = 500, seed: int = 1) -> list[object]:
    found: list[object] = Generator(one_field(kind), seed).batch(0, count).column("f").to_pylist()
    return found


def test_rows_are_the_same_in_whatever_ranges_they_are_generated() -> None:
    kinds = [
        {"type": "string", "arg.properties": {"regex": "[a-f]{2,5}(x|yy)+"}},
        {"type": "array", "items": "long"},
        {"type": "map", "values": ["null", "string"]},
        "double",
    ]
    fields = [{"name": f"f{place}", "type": kind} for place, kind in enumerate(kinds)]
    generator = Generator(json.dumps({"type": "record", "name": "r", "fields": fields}), 7)
    whole = generator.batch(0, 100).to_pylist()
    assert [*generator.batch(0, 33).to_pylist(), *generator.batch(33, 67).to_pylist()] == whole


def test_another_seed_and_another_field_have_other_values() -> None:
    assert values("long", seed=1) != values("long", seed=2)
    fields = [{"name": name, "type": "long"} for name in "ab"]
    batch = Generator(json.dumps({"type": "record", "name": "r", "fields": fields}), 1).batch(0, 9)
    assert batch.column("a") != batch.column("b")


def test_a_range_is_kept_and_used() -> None:
    found = values({"type": "int", "arg.properties": {"range": {"min": -2, "max": 3}}})
    assert set(found) == {-2, -1, 0, 1, 2}


def test_options_are_all_drawn() -> None:
    assert set(values({"type": "string", "arg.properties": {"options": ["a", "b"]}})) == {"a", "b"}


def test_an_iteration_counts_and_starts_again() -> None:
    wish = {"iteration": {"start": 10, "restart": 16, "step": 2}}
    assert values({"type": "long", "arg.properties": wish}, 5) == [10, 12, 14, 10, 12]


@pytest.mark.parametrize(
    "pattern",
    ["User_[1-9]{0,1}", "a(b|cd|)[^a-z]\\d+\\.", "(Ab?){2,3}x*", "[-a]{3}", "^Z[A-E]$", "\\w{2,}"],
)
def test_strings_match_their_regex(pattern: str) -> None:
    found = values({"type": "string", "arg.properties": {"regex": pattern}})
    assert [text for text in found if not re.fullmatch(pattern, str(text))] == []
    assert len(set(found)) > 1


def test_nested_types_and_logical_types_have_columns() -> None:
    kind = {
        "type": "record",
        "name": "inner",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis",
                                    "arg.properties": {"range": {"min": 0, "max": 10**12}}}},
            {"name": "tags", "type": {"type": "array", "items": "string",
                                      "arg.properties": {"length": {"min": 1, "max": 4}}}},
            {"name": "kind", "type": {"type": "enum", "name": "k", "symbols": ["A", "B"]}},
            {"name": "maybe", "type": ["null", "boolean"]},
        ],
    }  # fmt: skip
    rows = values(kind)
    lengths = {len(row["tags"]) for row in rows if isinstance(row, dict)}
    maybes = {row["maybe"] for row in rows if isinstance(row, dict)}
    assert lengths == {1, 2, 3}
    assert maybes == {None, True, False}


@pytest.mark.parametrize(
    "kind",
    [
        "fixed",
        ["string", "int"],
        {"type": "string", "arg.properties": {"regex": "(a"}},
        {"type": "string", "arg.properties": {"regex": "a)"}},
        {"type": "int", "arg.properties": {"options": ["a"]}},
        {"type": "int", "arg.properties": {"range": {"min": 3, "max": 3}}},
    ],
)
def test_what_cannot_be_generated_is_refused_with_the_field(kind: object) -> None:
    with pytest.raises(BadSchema, match="field f"):
        Generator(one_field(kind), 1)
