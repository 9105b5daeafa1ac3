"""Reading Avro for all records at once gives the same results as fastavro."""

import datetime
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.schemas.avro.column_reader import (
    AvroColumnReader,
    decode_singly,
    decode_vector,
    single_reader,
)
from headrace.schemas.avro.resolution import resolve
from headrace.schemas.avro.steps import ColumnStep
from headrace.schemas.avro.tree import parse
from headrace.schemas.columns.cursors import Values
from headrace.schemas.columns.decoded import Decoded
from headrace.schemas.interface import RegisteredSchema

UTC = datetime.UTC
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3}
FIXED_DECIMAL = {
    "type": "fixed", "name": "Money", "size": 9, "logicalType": "decimal", "precision": 20,
    "scale": 2,
}  # fmt: skip
ENUM = {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN", "BLUE"]}


def logical(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "logicalType": name}


MICROS = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1))
INT = st.integers(-(1 << 31), (1 << 31) - 1)
LONG = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-3, 3)


def whole(scale: int) -> "st.SearchStrategy[Decimal]":
    # The default context has 28 digits, which is enough for 20.
    return st.integers(-(10**20) + 1, 10**20 - 1).map(lambda n: Decimal(n).scaleb(-scale))


TYPES: list[tuple[Any, Any]] = [
    ("boolean", st.booleans()),
    ("int", INT),
    ("long", LONG),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("bytes", st.binary(max_size=70)),
    ("string", st.text(max_size=40)),
    (ENUM, st.sampled_from(ENUM["symbols"])),
    ({"type": "fixed", "name": "Five", "size": 5}, st.binary(min_size=5, max_size=5)),
    (logical("int", "date"), st.dates()),
    (
        logical("long", "timestamp-millis"),
        MICROS.map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000, tzinfo=UTC)),
    ),
    (logical("long", "timestamp-micros"), MICROS.map(lambda t: t.replace(tzinfo=UTC))),
    (logical("long", "local-timestamp-micros"), MICROS),
    (DECIMAL, whole(3)),
    (FIXED_DECIMAL, whole(2)),
]


def renamed(kind: Any, name: str) -> Any:
    """Named types may stand only once in a schema."""
    return {**kind, "name": f"{kind['name']}_{name}"} if "name" in kind and kind != "name" else kind


@st.composite
def flat_fields(draw: st.DrawFn, prefix: str = "f") -> tuple[list[Any], list[Any]]:
    """Fields, and a strategy for the values of each."""
    fields, strategies = [], []
    for number, (kind, values) in enumerate(draw(st.lists(st.sampled_from(TYPES), max_size=7))):
        name = f"{prefix}{number}"
        made = renamed(kind, name) if isinstance(kind, dict) else kind
        form = draw(st.sampled_from(["plain", "plain", "null first", "null last"]))
        if form != "plain":
            made = ["null", made] if form == "null first" else [made, "null"]
            values = st.none() | values
        fields.append({"name": name, "type": made})
        strategies.append(values)
    return fields, strategies


@st.composite
def flat_topic(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    fields, strategies = draw(flat_fields())
    if draw(st.booleans()) and fields:
        inner, inner_strategies = draw(flat_fields("g"))
        if inner:
            record = {"type": "record", "name": "Inner", "fields": inner}
            names = [each["name"] for each in inner]
            fields.append({"name": "inner", "type": ["null", record]})
            strategies.append(
                st.none() | st.fixed_dictionaries(dict(zip(names, inner_strategies, strict=True)))
            )
    for number, (kind, items) in enumerate(draw(st.lists(st.sampled_from(TYPES[:7]), max_size=2))):
        fields.append({"name": f"l{number}", "type": {"type": "array", "items": ["null", kind]}})
        strategies.append(st.lists(st.none() | items, max_size=4))
        fields.append({"name": f"m{number}", "type": {"type": "map", "values": kind}})
        strategies.append(st.dictionaries(st.text(max_size=3), items, max_size=3))
    if not fields:
        fields, strategies = [{"name": "only", "type": "long"}], [LONG]
    names = [each["name"] for each in fields]
    records = draw(
        st.lists(st.fixed_dictionaries(dict(zip(names, strategies, strict=True))), max_size=12)
    )
    return {"type": "record", "name": "Flat", "fields": fields}, records


def written(schema: Any, records: list[Any]) -> list[bytes]:
    parsed = fastavro.parse_schema(schema)
    made = []
    for record in records:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, record)
        made.append(out.getvalue())
    return made


def values_of(pieces: list[bytes]) -> Values:
    """In a buffer with other bytes before, between and behind them."""
    gap = b"\xaa\xbb"
    lengths = np.array([len(piece) for piece in pieces], np.int64)
    octets = np.frombuffer(gap + b"".join(piece + gap for piece in pieces), np.uint8)
    return Values(octets, np.cumsum(lengths + 2) - lengths, lengths)


def registered(schema: Any, schema_id: int = 1) -> RegisteredSchema:
    return RegisteredSchema("AVRO", json.dumps(schema), (), schema_id)


def both_ways(writer: Any, reader: Any, pieces: list[bytes]) -> tuple[Decoded, Decoded]:
    step = resolve(parse(registered(writer)), parse(registered(reader)))
    assert step.vector, "a flat schema is read with numpy"
    values = values_of(pieces)
    vector = AvroColumnReader(registered(reader, 2)).decode(values, registered(writer))
    vector.array.validate(full=True)
    return vector, decode_singly(step, values, single_reader(registered(writer)))


@settings(max_examples=80, deadline=None)
@given(flat_topic())
def test_flat_records_are_what_was_written(
    topic: tuple[dict[str, Any], list[dict[str, Any]]],
) -> None:
    schema, records = topic
    vector, singly = both_ways(schema, schema, written(schema, records))
    assert vector.bad == singly.bad == {}
    assert [shown(each) for each in vector.array.to_pylist()] == records
    assert vector.array.equals(singly.array)


def shown(record: dict[str, Any]) -> dict[str, Any]:
    """Arrow shows maps as pairs."""
    return {name: dict(each) if name.startswith("m") else each for name, each in record.items()}


@settings(max_examples=80, deadline=None)
@given(flat_topic(), st.data())
def test_corrupted_records_do_not_affect_others(
    topic: tuple[dict[str, Any], list[dict[str, Any]]], data: st.DataObject
) -> None:
    schema, records = topic
    pieces = written(schema, records)
    spoilt = set()
    for row, piece in enumerate(pieces):
        if piece and data.draw(st.booleans()):
            at = data.draw(st.integers(0, len(piece) - 1))
            how = data.draw(st.sampled_from(["cut", "change", "add", "random"]))
            pieces[row] = {
                "cut": piece[:at],
                "change": piece[:at] + bytes([data.draw(st.integers(0, 255))]) + piece[at + 1 :],
                "add": piece + b"\x00",
                "random": data.draw(st.binary(max_size=40)),
            }[how]
            spoilt.add(row)
    vector, singly = both_ways(schema, schema, pieces)
    assert set(vector.bad) <= spoilt
    found, reference = vector.array.to_pylist(), singly.array.to_pylist()
    for row, record in enumerate(records):
        if row not in spoilt:
            assert shown(found[row]) == record
        elif row in vector.bad:
            assert found[row] is None
        else:
            # Still a value of its schema: then it is the one that the other way finds too.
            assert row not in singly.bad
            assert repr(found[row]) == repr(reference[row])
    # fastavro takes any byte for a boolean and any number of bytes for a number.
    lenient = {row for row, why in vector.bad.items() if "boolean" in why or "many bytes" in why}
    assert set(vector.bad) - lenient <= set(singly.bad)


WIDER = {
    "int": ["int", "long", "float", "double"],
    "long": ["long", "double"],
    "float": ["float", "double"],
    "string": ["string", "bytes"],
    "bytes": ["bytes"],
}


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_an_evolved_reader_sees_what_fastavro_resolves(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(sorted(WIDER)), min_size=1, max_size=6))
    plain = {kind: values for kind, values in TYPES if isinstance(kind, str)}
    plain["float"] = st.integers(-1000, 1000).map(float)
    plain["long"] = st.integers(-(1 << 50), 1 << 50)
    plain["int"] = st.integers(-(1 << 20), 1 << 20)
    fields = [{"name": f"f{n}", "type": kind} for n, kind in enumerate(kinds)]
    strategies = {f"f{n}": plain[kind] for n, kind in enumerate(kinds)}
    kept = []
    for field in fields:
        if not data.draw(st.booleans()):
            continue
        kind = data.draw(st.sampled_from(WIDER[field["type"]]))
        made: dict[str, Any] = {"name": field["name"], "type": kind}
        if data.draw(st.booleans()):
            made = {"name": f"new_{field['name']}", "aliases": [field["name"]], "type": kind}
        if data.draw(st.booleans()):
            made["type"] = ["null", kind]
        kept.append(made)
    kept.append({"name": "added", "type": "string", "default": "x"})
    kept.append({"name": "empty", "type": ["null", "long"], "default": None})
    kept = data.draw(st.permutations(kept))
    writer = {"type": "record", "name": "R", "fields": fields}
    reader = {"type": "record", "name": "R", "fields": kept}
    records = data.draw(st.lists(st.fixed_dictionaries(strategies), max_size=8))
    pieces = written(writer, records)
    vector, singly = both_ways(writer, reader, pieces)
    assert vector.bad == singly.bad == {}
    assert vector.array.equals(singly.array)
    parsed = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    expected: list[Any] = [
        fastavro.schemaless_reader(io.BytesIO(piece), *parsed) for piece in pieces
    ]
    assert vector.array.to_pylist() == [
        {name: as_bytes(value, vector.array.type.field(name).type) for name, value in each.items()}
        for each in expected
    ]


def as_bytes(value: Any, kind: pa.DataType) -> Any:
    """fastavro leaves text that is read as bytes what it was."""
    return value.encode() if kind == pa.binary() and isinstance(value, str) else value


def decoded(writer: Any, reader: Any, records: list[Any]) -> Decoded:
    pieces = written(writer, records)
    return AvroColumnReader(registered(reader, 2)).decode(values_of(pieces), registered(writer))


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields)}


def test_defaults_of_all_kinds_are_of_their_type() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int", "default": 3}]}
    fields: list[Any] = [
        {"name": "b", "type": "bytes", "default": "\u00ff"},
        {"name": "d", "type": DECIMAL, "default": "\u0001"},
        {"name": "e", "type": ENUM, "default": "BLUE"},
        {"name": "i", "type": inner, "default": {}},
        {"name": "l", "type": {"type": "array", "items": "long"}, "default": [1, 2]},
        {"name": "t", "type": logical("long", "timestamp-millis"), "default": 1000},
    ]
    found = decoded(record({"name": "a", "type": "int"}), record(*fields), [{"a": 1}, {"a": 2}])
    assert found.bad == {}
    assert (
        found.array.to_pylist()
        == [
            {
                "b": b"\xff",
                "d": Decimal("0.001"),
                "e": "BLUE",
                "i": {"x": 3},
                "l": [1, 2],
                "t": datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
            }
        ]
        * 2
    )


def test_symbols_that_the_reader_does_not_have_are_its_default_or_bad() -> None:
    more = {**ENUM, "symbols": [*ENUM["symbols"], "PINK"]}
    spare = {**ENUM, "default": "RED"}
    writer = record({"name": "c", "type": more})
    records = [{"c": "PINK"}, {"c": "BLUE"}]
    found = decoded(writer, record({"name": "c", "type": spare}), records)
    assert found.array.to_pylist() == [{"c": "RED"}, {"c": "BLUE"}]
    found = decoded(writer, record({"name": "c", "type": ENUM}), records)
    assert found.array.to_pylist() == [None, {"c": "BLUE"}]
    assert found.bad == {0: "field 'c' is PINK, which the reader's enum does not have"}


def test_a_null_that_the_reader_does_not_allow_is_bad() -> None:
    writer = record({"name": "n", "type": ["null", "long"]}, {"name": "m", "type": "int"})
    reader = record({"name": "n", "type": "long"}, {"name": "m", "type": "int"})
    records = [{"n": 1, "m": 1}, {"n": None, "m": 2}]
    found = decoded(writer, reader, records)
    assert found.array.to_pylist() == [{"n": 1, "m": 1}, None]
    assert found.bad == {1: "field 'n' is null, which the reader's schema does not allow"}


def test_a_field_that_was_widened_is_read_as_long_as_it_fits() -> None:
    writer, reader = ({"name": "n", "type": kind} for kind in ("long", "int"))
    found = decoded(record(writer), record(reader), [{"n": 5}, {"n": 1 << 31}, {"n": -(1 << 31)}])
    assert found.array.to_pylist() == [{"n": 5}, None, {"n": -(1 << 31)}]
    assert found.bad == {1: "field 'n' has more than 32 bits"}


def test_the_unit_of_timestamps_is_the_writers() -> None:
    moment = datetime.datetime(2024, 1, 2, 3, 4, 5, 6000, UTC)
    for unit in ("millis", "micros"):
        writer = record({"name": "t", "type": logical("long", f"timestamp-{unit}")})
        reader = record({"name": "t", "type": logical("long", "timestamp-micros")})
        assert decoded(writer, reader, [{"t": moment}]).array.to_pylist() == [{"t": moment}]


def at_once(step: ColumnStep, pieces: list[bytes]) -> Decoded:
    found = decode_vector(step, values_of(pieces))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("kind", "piece", "why"),
    [
        ("int", b"\x80\x80\x80\x80\x20", "field 'x' has more than 32 bits"),
        ("long", b"\xff" * 11, "field 'x' is not a number: it has too many bytes"),
        ("boolean", b"\x02", "field 'x' is not a boolean"),
        ("string", b"\x01", "field 'x' reaches past the end of the value"),
        ("string", b"\x7e", "field 'x' reaches past the end of the value"),
        ("double", b"\x00" * 7, "field 'x' reaches past the end of the value"),
        (ENUM, b"\x06", "field 'x' is not one of the 3 symbols of its enum"),
        (["null", "int"], b"\x04", "field 'x' is none of the 2 types of its union"),
        (
            logical("long", "timestamp-millis"),
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "field 'x' is too far from 1970",
        ),
        (DECIMAL, b"\x24" + b"\x7f" * 18, "field 'x' has more than 20 digits"),
        ("null", b"\x00", "the value has bytes behind its last field"),
    ],
)
def test_nonsense_is_named(kind: Any, piece: bytes, why: str) -> None:
    schema = record({"name": "x", "type": kind})
    step = resolve(parse(registered(schema)), parse(registered(schema)))
    assert at_once(step, [piece] * 3).bad == dict.fromkeys(range(3), why)


def test_numbers_of_all_lengths_are_read() -> None:
    numbers = [sign * ((1 << bits) + delta) for bits in range(63) for sign in (1, -1)
               for delta in (-1, 0, 1)]  # fmt: skip
    numbers += [(1 << 63) - 1, -(1 << 63)]
    found = decoded("long", "long", numbers)
    assert (found.array.to_pylist(), found.bad) == (numbers, {})


def test_many_values_without_any_are_no_values() -> None:
    step = resolve(parse(registered("long")), parse(registered("long")))
    empty = at_once(step, [])
    assert (len(empty.array), empty.bad) == (0, {})


ITEMS = record({"name": "a", "type": {"type": "array", "items": "long"}})


def test_long_and_short_arrays_are_read_whatever_their_blocks() -> None:
    records = [{"a": list(range(count))} for count in (0, 3, 1000, *[1, 0] * 500)]
    found = decoded(ITEMS, ITEMS, records)
    assert (found.array.to_pylist(), found.bad) == (records, {})
    blocks = [b"\x04\x02\x04\x02\x06\x00", b"\x03\x04\x02\x04\x02\x06\x00", b"\x00"]
    step = resolve(parse(registered(ITEMS)), parse(registered(ITEMS)))
    assert at_once(step, blocks).array.to_pylist() == [
        {"a": [1, 2, 3]},
        {"a": [1, 2, 3]},
        {"a": []},
    ]


def test_an_array_of_nothing_is_not_counted_to_the_end_of_time() -> None:
    nothing = record({"name": "a", "type": {"type": "array", "items": "long"}})
    step = resolve(parse(registered(nothing)), parse(registered(nothing)))
    endless = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    assert at_once(step, [endless]).bad == {0: "field 'a' has more items than bytes"}


def test_of_a_key_that_comes_twice_the_last_value_counts() -> None:
    schema = record({"name": "m", "type": {"type": "map", "values": "int"}})
    twice = b"\x04\x02a\x02\x02a\x04\x00"
    found = AvroColumnReader(registered(schema)).decode(values_of([twice] * 2), registered(schema))
    assert found.array.to_pylist() == [{"m": [("a", 2)]}] * 2


def test_an_array_may_be_left_out() -> None:
    inner = {"type": "map", "values": {"type": "array", "items": "string"}}
    writer = record({"name": "gone", "type": inner}, {"name": "n", "type": "int"})
    records = [{"gone": {"a": ["x"], "b": []}, "n": 1}, {"gone": {}, "n": 2}]
    found = decoded(writer, record({"name": "n", "type": "int"}), records)
    assert (found.array.to_pylist(), found.bad) == ([{"n": 1}, {"n": 2}], {})
