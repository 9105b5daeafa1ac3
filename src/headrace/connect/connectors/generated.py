"""Random values for an Avro schema, as Arrow columns, for the Datagen source.

Every value is a function of its row's number, so the same rows always have the same values. The
attribute `arg.properties` of a type chooses the values, with the names of Confluent's Avro random
generator: `options`, `range`, `iteration`, `regex`, `length`, `odds` and `keys`.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers: TypeAlias = npt.NDArray[np.uint64]

_INTEGERS = {"int": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1)}
_ARROW = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_ALPHABET = [chr(code) for code in range(ord("a"), ord("z") + 1)]


class BadSchema(ValueError):
    """A schema for which no values can be generated; the message says where."""


class Generator:
    """Generates the records of one schema."""

    def __init__(self, schema: str, seed: int) -> None:
        try:
            parsed = json.loads(schema)
        except ValueError as error:
            raise BadSchema(f"the schema is not JSON: {error}") from None
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            raise BadSchema("the schema is not a record")
        self._schema = parsed
        self._named: dict[str, object] = {}
        self._seed = np.uint64(seed % 2**64)
        # Also finds what cannot be generated, before the first row is asked for.
        self.arrow_schema: pa.Schema = self.batch(0, 0).schema

    def batch(self, first: int, count: int) -> pa.RecordBatch:
        """The records with the numbers from `first` on."""
        rows = np.arange(first, first + count, dtype=np.uint64)
        made = self._value(self._schema, rows, _mixed(self._seed))
        return pa.RecordBatch.from_struct_array(made)

    def _value(self, schema: object, rows: Numbers, salt: np.uint64) -> pa.Array:
        if isinstance(schema, list):
            return self._union(schema, rows, salt)
        if isinstance(schema, str):
            if schema in self._named:
                return self._value(self._named[schema], rows, salt)
            schema = {"type": schema}
        if not isinstance(schema, dict) or "type" not in schema:
            raise BadSchema(f"{json.dumps(schema)} is not a type")
        kind, wish = schema["type"], schema.get("arg.properties", {})
        if isinstance(kind, dict | list):
            return self._value(kind, rows, salt)
        if "name" in schema:
            self._named[schema["name"]] = schema
        match kind:
            case "record":
                return self._record(schema, rows, salt)
            case "array":
                return self._array(schema["items"], wish, rows, salt)
            case "map":
                return self._map(schema["values"], wish, rows, salt)
            case "enum":
                return _chosen(pa.array(schema["symbols"]), rows, salt)
            case "null":
                return pa.nulls(len(rows), pa.string())
            case _ if kind in _ARROW:
                return _scalar(kind, schema, wish, rows, salt)
            case _ if kind in self._named:
                return self._value(self._named[kind], rows, salt)
        raise BadSchema(f"the type {kind!r} is not supported")

    def _record(self, schema: Mapping[str, object], rows: Numbers, salt: np.uint64) -> pa.Array:
        fields = schema.get("fields")
        if not isinstance(fields, list) or not fields:
            raise BadSchema(f"the record {schema.get('name')} has no fields")
        names = [field["name"] for field in fields]
        columns = []
        for place, field in enumerate(fields, 1):
            try:
                columns.append(self._value(field["type"], rows, _mixed(salt, place)))
            except BadSchema as error:
                raise BadSchema(f"field {field['name']}: {error}") from None
        return pa.StructArray.from_arrays(columns, names)

    def _union(self, members: Sequence[object], rows: Numbers, salt: np.uint64) -> pa.Array:
        some = [member for member in members if member != "null"]
        if len(some) != 1:
            raise BadSchema("a union of several types is not supported, except with null")
        values = self._value(some[0], rows, salt)
        if len(some) == len(members):
            return values
        is_null = pa.array(_hashed(rows, _mixed(salt, 1)) % np.uint64(2) == 0)
        return pc.if_else(is_null, pa.scalar(None, values.type), values)

    def _array(
        self, items: object, wish: Mapping[str, object], rows: Numbers, salt: np.uint64
    ) -> pa.Array:
        if "options" in wish:
            return _options(wish["options"], self._value(items, rows[:0], salt), rows, salt)
        starts, inside = _slots(wish, rows, salt)
        return pa.ListArray.from_arrays(starts, self._value(items, inside, _mixed(salt, 2)))

    def _map(
        self, values: object, wish: Mapping[str, object], rows: Numbers, salt: np.uint64
    ) -> pa.Array:
        starts, inside = _slots(wish, rows, salt)
        how = wish.get("keys") or {"length": 8}
        keys = self._value({"type": "string", "arg.properties": how}, inside, _mixed(salt, 3))
        items = self._value(values, inside, _mixed(salt, 2))
        return pa.MapArray.from_arrays(starts, keys, items)


def _mixed(salt: int | np.uint64, part: int = 0) -> np.uint64:
    """Another salt for a part of a value."""
    return np.uint64(_hashed(np.array([part], dtype=np.uint64), np.uint64(salt))[0])


def _hashed(rows: Numbers, salt: np.uint64) -> Numbers:
    """A random number for each row (SplitMix64)."""
    with np.errstate(over="ignore"):
        mixed = (rows + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + salt
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))


def _fractions(rows: Numbers, salt: np.uint64) -> npt.NDArray[np.float64]:
    return (_hashed(rows, salt) >> np.uint64(11)).astype(np.float64) / 2.0**53


def _chosen(values: pa.Array, rows: Numbers, salt: np.uint64) -> pa.Array:
    return values.take(pa.array(_hashed(rows, salt) % np.uint64(len(values))))


def _options(options: object, like: pa.Array, rows: Numbers, salt: np.uint64) -> pa.Array:
    if not isinstance(options, list) or not options:
        raise BadSchema("`options` is a list with at least one value")
    try:
        values = pa.array(options, like.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise BadSchema(f"`options` has a value of another type: {error}") from None
    return _chosen(values, rows, salt)


def _length(wish: Mapping[str, object], default: int) -> tuple[int, int]:
    """The least and the greatest length."""
    length = wish.get("length", default)
    if isinstance(length, dict):
        return int(length.get("min", 0)), int(length.get("max", default)) - 1
    return int(str(length)), int(str(length))


def _slots(wish: Mapping[str, object], rows: Numbers, salt: np.uint64) -> tuple[pa.Array, Numbers]:
    """Where the elements of each row start, and a number for each element."""
    low, high = _length(wish, 4)
    lengths = np.uint64(low) + _hashed(rows, salt) % np.uint64(max(1, high - low + 1))
    starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    owners = np.repeat(_hashed(rows, _mixed(salt, 1)), lengths.astype(np.int64))
    within = np.arange(len(owners)) - np.repeat(starts[:-1], lengths.astype(np.int64))
    with np.errstate(over="ignore"):
        return pa.array(starts), owners + within.astype(np.uint64)


def _scalar(
    kind: str,
    schema: Mapping[str, object],
    wish: Mapping[str, object],
    rows: Numbers,
    salt: np.uint64,
) -> pa.Array:
    arrow = _ARROW[kind]
    logical = schema.get("logicalType")
    if "options" in wish:
        made = _options(wish["options"], pa.nulls(0, arrow), rows, salt)
    elif "iteration" in wish:
        made = _iteration(kind, wish["iteration"], rows)
    elif kind in _INTEGERS:
        made = _integers(kind, wish.get("range"), rows, salt)
    elif kind in ("float", "double"):
        low, high = _bounds(wish.get("range"), 0.0, 1.0)
        made = pa.array(low + _fractions(rows, salt) * (high - low)).cast(arrow)
    elif kind == "boolean":
        odds = float(str(wish.get("odds", 0.5)))
        made = pa.array(_fractions(rows, salt) < odds)
    elif "regex" in wish and kind == "string":
        made = matching(str(wish["regex"]), rows, salt)
    else:
        low_length, high_length = _length(wish, 8)
        made = _repeated(pa.array(_ALPHABET), low_length, high_length, rows, salt).cast(arrow)
    return made.cast(_LOGICAL.get((kind, logical), arrow)) if isinstance(logical, str) else made


def _bounds(wish: object, low: float, high: float) -> tuple[float, float]:
    if wish is None:
        return low, high
    if not isinstance(wish, dict):
        raise BadSchema("`range` is an object with `min` and `max`")
    low, high = wish.get("min", low), wish.get("max", high)
    if low >= high:
        raise BadSchema(f"`range` has a min of {low} and a max of {high}")
    return low, high


def _integers(kind: str, wish: object, rows: Numbers, salt: np.uint64) -> pa.Array:
    low, high = (int(bound) for bound in _bounds(wish, *_INTEGERS[kind]))
    steps = _hashed(rows, salt) % np.uint64(high - low)
    with np.errstate(over="ignore"):
        made = (np.uint64(low % 2**64) + steps).astype(np.int64)
    return pa.array(made).cast(_ARROW[kind])


def _iteration(kind: str, wish: object, rows: Numbers) -> pa.Array:
    """Values that count: from `start` by `step`, and again from `start` before `restart`."""
    if not isinstance(wish, dict) or "start" not in wish:
        raise BadSchema("`iteration` is an object with `start`, and maybe `restart` and `step`")
    start = wish["start"]
    step = wish.get("step", 1 if wish.get("restart", math.inf) > start else -1)
    numbers = rows.astype(np.int64)
    if "restart" in wish:
        numbers = numbers % max(1, math.ceil((wish["restart"] - start) / step))
    values = start + numbers * step
    if kind == "string":
        return pa.array(values).cast(pa.string())
    if kind == "int":  # as Java counts
        return pa.array(values.astype(np.int64).astype(np.int32))
    if kind not in ("long", "float", "double"):
        raise BadSchema(f"`iteration` is not possible for {kind}")
    return pa.array(values).cast(_ARROW[kind])


def _repeated(choices: pa.Array, low: int, high: int, rows: Numbers, salt: np.uint64) -> pa.Array:
    """Strings of `low` to `high` choices, each drawn for itself."""
    parts = [_chosen(choices, rows, _mixed(salt, place)) for place in range(high)]
    return _cut(parts, low, high, rows, salt)


def _cut(parts: list[pa.Array], low: int, high: int, rows: Numbers, salt: np.uint64) -> pa.Array:
    """The parts of each row joined: all up to `low`, and some of those up to `high`."""
    counts = low + (_hashed(rows, _mixed(salt, -1 % 2**63)) % np.uint64(high - low + 1)).astype(int)
    joined = pa.array([""] * len(rows), pa.string())
    for place, part in enumerate(parts):
        if place >= low:
            part = pc.if_else(pa.array(counts > place), part, "")
        joined = pc.binary_join_element_wise(joined, part, "")
    return joined


def matching(pattern: str, rows: Numbers, salt: np.uint64) -> pa.Array:
    """A string for each row that matches a simple regular expression.

    Literals, escapes, character classes, groups, alternatives and repetitions are simple.
    """
    parser = _Pattern(pattern, rows)
    made = parser.alternatives(salt)
    if parser.place < len(pattern):
        raise BadSchema(f"the regex {pattern!r} has an unexpected {pattern[parser.place]!r}")
    return made


_CLASSES = {
    "d": [chr(code) for code in range(48, 58)],
    "w": [*(chr(code) for code in range(48, 58)), *_ALPHABET, *map(str.upper, _ALPHABET), "_"],
    "s": [" "],
}
_UNBOUNDED = 8
"""How many repetitions `*` and `+` have at most."""


class _Pattern:
    """Reads a regular expression from left to right and makes strings as it goes."""

    def __init__(self, pattern: str, rows: Numbers) -> None:
        self._pattern = pattern
        self._rows = rows
        self.place = 0

    def alternatives(self, salt: np.uint64) -> pa.Array:
        found = [self._sequence(_mixed(salt, 1))]
        while self._at("|"):
            self.place += 1
            found.append(self._sequence(_mixed(salt, len(found) + 1)))
        if len(found) == 1:
            return found[0]
        which = _hashed(self._rows, salt) % np.uint64(len(found))
        return pc.choose(pa.array(which.astype(np.int64)), *found)

    def _at(self, characters: str) -> bool:
        return self.place < len(self._pattern) and self._pattern[self.place] in characters

    def _sequence(self, salt: np.uint64) -> pa.Array:
        joined = pa.array([""] * len(self._rows), pa.string())
        while self.place < len(self._pattern) and not self._at("|)"):
            begin, salt = self.place, _mixed(salt, self.place)
            part = self._atom(_mixed(salt, 0))
            after = self.place
            low, high = self._repetition()
            resume = self.place
            if (low, high) != (1, 1):
                parts = []
                for time in range(high):
                    self.place = begin
                    parts.append(self._atom(_mixed(salt, time + 1)))
                    assert self.place == after, "an atom always ends at the same place"
                part = _cut(parts, low, high, self._rows, salt)
                self.place = resume
            joined = pc.binary_join_element_wise(joined, part, "")
        return joined

    def _atom(self, salt: np.uint64) -> pa.Array:
        first = self._pattern[self.place]
        if first in "*+?{":
            raise BadSchema(f"the regex {self._pattern!r} has nothing before {first!r}")
        self.place += 1
        match first:
            case "(":
                if self._pattern.startswith("?:", self.place):
                    self.place += 2
                inside = self.alternatives(salt)
                if not self._at(")"):
                    raise BadSchema(f"the regex {self._pattern!r} has an open group")
                self.place += 1
                return inside
            case "[":
                return _chosen(pa.array(self._class()), self._rows, salt)
            case ".":
                return _chosen(pa.array(_CLASSES["w"]), self._rows, salt)
            case "\\":
                return _chosen(pa.array(self._escape()), self._rows, salt)
            case "^" | "$":
                first = ""
        return pa.array([first] * len(self._rows), pa.string())

    def _escape(self) -> list[str]:
        if self.place >= len(self._pattern):
            raise BadSchema(f"the regex {self._pattern!r} ends with a backslash")
        self.place += 1
        escaped = self._pattern[self.place - 1]
        return _CLASSES.get(escaped, [escaped])

    def _class(self) -> list[str]:
        negated = self._at("^")
        self.place += negated
        found: list[str] = []
        while not self._at("]"):
            if self.place >= len(self._pattern):
                raise BadSchema(f"the regex {self._pattern!r} has an open character class")
            first = self._pattern[self.place]
            self.place += 1
            some = self._escape() if first == "\\" else [first]
            if self._at("-") and not self._pattern.startswith("-]", self.place):
                last = self._pattern[self.place + 1]
                self.place += 2
                some = [chr(code) for code in range(ord(first), ord(last) + 1)]
            found += some
        self.place += 1
        if negated:
            found = [character for character in _CLASSES["w"] if character not in found]
        if not found:
            raise BadSchema(f"the regex {self._pattern!r} has an empty character class")
        return found

    def _repetition(self) -> tuple[int, int]:
        if not self._at("*+?{"):
            return 1, 1
        sign = self._pattern[self.place]
        if sign != "{":
            self.place += 1
            return {"*": (0, _UNBOUNDED), "+": (1, _UNBOUNDED), "?": (0, 1)}[sign]
        bounds = re.compile(r"\{(\d+)(,(\d*))?\}").match(self._pattern, self.place)
        if not bounds:
            raise BadSchema(f"the regex {self._pattern!r} has an open repetition")
        self.place = bounds.end()
        low = int(bounds[1])
        if bounds[2] is None:
            return low, low
        return low, int(bounds[3]) if bounds[3] else low + _UNBOUNDED
