"""Reads JSON values into columns: with Arrow's parser if it accepts all, else one by one."""

import json
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type

from headrace.schemas.columns.cursors import Reasons, Rows, Values, scattered
from headrace.schemas.columns.decoded import Decoded, decode_in_parts, without_bad
from headrace.schemas.columns.pieces import byte_array
from headrace.schemas.interface import RegisteredSchema
from headrace.schemas.json_schema.column_types import ANY, JsonType, parse, spark_type

LARGEST = {"integer": 1 << 63, "int32": 1 << 31}


class JsonColumnReader:
    """Reads with one reader's schema; the writer's schema is not needed."""

    def __init__(self, reader: RegisteredSchema) -> None:
        self._json_type = parse(reader)
        self.spark_type = spark_type(self._json_type)
        self._type = to_arrow_type(self.spark_type, timezone="UTC")

    def decode(self, values: Values, writer: RegisteredSchema) -> Decoded:
        if self._json_type.kind != "object" or not self._json_type.is_plain:
            return self._parse_singly(values)
        return decode_in_parts(values, self._parse_all, self._parse_singly)

    def _parse_all(self, values: Values) -> Decoded | None:
        """Parse all documents at once; None if one of them must be parsed separately."""
        from pyarrow import json as arrow_json

        # The parser makes at least one row of a document that begins like an object, so if there
        # are as many rows as documents, each is exactly one row.
        if (values.octets[np.where(values.length > 0, values.at, 0)] != ord("{")).any():
            return None
        count = len(values)
        documents = byte_array(values.octets, values.at, values.length)
        bounds = pa.array([0, count], pa.int32())
        try:
            lines = pc.binary_join(
                pa.ListArray.from_arrays(bounds, documents.cast(pa.string())), pa.scalar("\n")
            )[0]
        except pa.ArrowInvalid:
            return None
        text = lines.as_buffer()
        if np.count_nonzero(np.frombuffer(text, np.uint8) == ord("\n")) != count - 1:
            return None
        try:
            table = arrow_json.read_json(
                pa.BufferReader(text),
                arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
                arrow_json.ParseOptions(
                    explicit_schema=pa.schema(list(self._type)),
                    unexpected_field_behavior="ignore",
                ),
            )
        except pa.ArrowException:
            return None
        if table.num_rows != count:
            return None
        columns = [
            pa.concat_arrays(table.column(field.name).chunks).cast(field.type)
            for field in self._type
        ]
        return Decoded(pa.StructArray.from_arrays(columns, fields=list(self._type)), {})

    def _parse_singly(self, values: Values) -> Decoded:
        reasons = Reasons(len(values))
        found: list[object] = []
        good: list[int] = []
        for row, piece in enumerate(values.pieces()):
            try:
                found.append(json.loads(piece.decode(), parse_constant=_refuse))
                good.append(row)
            except (ValueError, RecursionError) as error:
                reasons.add(np.array([row]), f"not JSON: {error}")
        rows = np.array(good, np.int64)
        array = column(self._json_type, found, Rows(rows, reasons), "")
        return without_bad(scattered([(rows, array)], len(values), self._type), reasons)


def _refuse(word: str) -> object:
    raise ValueError(f"{word} is not a JSON value")


def column(json_type: JsonType, values: Sequence[object], rows: Rows, path: str) -> pa.Array:
    """Values of one type as an array; rows with a value of another type are bad."""
    kind = to_arrow_type(spark_type(json_type), timezone="UTC")
    if json_type.kind == ANY:
        texts = [None if each is None else _text(each) for each in values]
        return pa.array(texts, kind)
    expected = {"object": dict, "map": dict, "array": list, "string": str, "boolean": bool}
    fits: Callable[[object], bool] = (
        (lambda value: type(value) is expected[json_type.kind])
        if json_type.kind in expected
        else (lambda value: _is_number(value, json_type.kind))
    )
    kept = [value if fits(value) else None for value in values]
    bad = [a is not None and b is None for a, b in zip(values, kept, strict=True)]
    where = f"field {path!r}" if path else "the value"
    rows.fail(np.array(bad, np.bool_), f"{where} is not of type {json_type.kind}")
    if json_type.kind == "object":
        return _object(json_type, kept, rows, path, kind)
    if json_type.inner is not None:
        return _several(json_type.inner, kept, rows, path, kind)
    if json_type.kind in LARGEST:
        kept = [None if each is None else int(cast(float, each)) for each in kept]
    if json_type.kind in ("number", "float32"):
        kept = [None if each is None else float(cast(float, each)) for each in kept]
    return pa.array(kept, kind)


def _object(
    json_type: JsonType, values: Sequence[object], rows: Rows, path: str, kind: pa.DataType
) -> pa.Array:
    objects = [cast("dict[str, object]", each) or {} for each in values]
    columns = [
        column(inner, [each.get(name) for each in objects], rows, f"{path}.{name}".lstrip("."))
        for name, inner in json_type.fields.items()
    ]
    mask = pa.array([each is None for each in values], pa.bool_())
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)


def _several(
    inner: JsonType, values: Sequence[object], rows: Rows, path: str, kind: pa.DataType
) -> pa.Array:
    many = [cast("list[object] | dict[str, object]", each) or [] for each in values]
    flat: list[object] = []
    for each in many:
        flat.extend(each.values() if isinstance(each, dict) else each)
    counts = np.array([len(each) for each in many], np.int64)
    below = rows.subset(np.repeat(np.arange(len(many)), counts))
    items = column(inner, flat, below, f"{path}[]")
    ends = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    null = np.array([*(each is None for each in values), False], np.bool_)
    bounds = pa.array(ends, mask=null if null.any() else None)
    if pa.types.is_map(kind):
        keys = pa.array([key for each in many for key in each], pa.string())
        return pa.MapArray.from_arrays(bounds, keys, items).cast(kind)
    return pa.ListArray.from_arrays(bounds, items, type=kind)


def _is_number(value: object, kind: str) -> bool:
    if type(value) not in (int, float):
        return False
    number = cast("int | float", value)
    if kind not in LARGEST:
        return True
    if isinstance(number, float) and not number.is_integer():
        return False
    return -LARGEST[kind] <= number < LARGEST[kind]


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
