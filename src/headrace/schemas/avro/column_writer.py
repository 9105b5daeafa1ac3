"""Encodes columns in Avro's binary form, for all rows at once.

Each type becomes an array of byte strings, and Arrow joins the strings of a row. The module also
derives the schema of a Spark type.
"""

import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.schemas.avro.resolution import arrow_type
from headrace.schemas.avro.tree import AvroField, AvroNode, parse, without_null
from headrace.schemas.columns.cursors import scattered
from headrace.schemas.errors import BadColumn
from headrace.schemas.interface import RegisteredSchema
from headrace.wire.columns import Numbers

SIMPLE: dict[type[DataType], object] = {
    BooleanType: "boolean",
    ByteType: "int",
    ShortType: "int",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    BinaryType: "bytes",
    StringType: "string",
    DateType: {"type": "int", "logicalType": "date"},
    TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}
_EMPTY = pa.scalar(b"", pa.binary())
_ZERO = pa.scalar(b"\0", pa.binary())
VARINT_BYTES_MAX = 10


def derived(kind: DataType, name: str) -> str:
    """The schema of a column; the names of its records begin with `name`.

    All inner fields may be null, whether Spark declares that or not: Spark's declaration is often
    an accident of the query, and only nullable fields can be added and removed later.
    """
    return json.dumps(_schema(kind, name, name))


def _schema(kind: DataType, name: str, path: str) -> object:
    if isinstance(kind, StructType):
        fields = [
            {
                "name": each.name,
                "type": ["null", _schema(each.dataType, f"{name}_{each.name}", _in(path, each))],
                "default": None,
            }
            for each in kind.fields
        ]
        return {"type": "record", "name": name, "fields": fields}
    if isinstance(kind, ArrayType):
        items = _schema(kind.elementType, f"{name}_item", f"{path}[]")
        return {"type": "array", "items": ["null", items]}
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        values = _schema(kind.valueType, f"{name}_value", f"{path}{{}}")
        return {"type": "map", "values": ["null", values]}
    if isinstance(kind, DecimalType):
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    if type(kind) in SIMPLE:
        return SIMPLE[type(kind)]
    raise BadColumn(f"{path} is {kind.simpleString()}, which has no Avro type; convert it")


def _in(path: str, field: StructField) -> str:
    return f"{path}.{field.name}"


class AvroColumnWriter:
    """Rows as values of one schema."""

    def __init__(self, schema: RegisteredSchema, column: str) -> None:
        self._node = parse(schema)
        self._column = column

    def encode(self, array: pa.Array) -> pa.Array:
        """A value for each row that is not null."""
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(valid)
        made = encoded(self._node, array.filter(pa.array(valid)), self._column)
        return scattered([(rows, made)], len(array), pa.binary())


def encoded(node: AvroNode, array: pa.Array, path: str) -> pa.Array:
    """The bytes of each value; BadColumn if one does not match."""
    if node.kind == "union":
        return _union(node, array, path)
    if node.kind == "null":
        return pa.array([b""] * len(array), pa.binary())
    if array.null_count:
        raise BadColumn(f"{path} is null in a row, but its schema does not allow null")
    if node.kind == "record":
        return _record(node, array, path)
    if node.kind in ("array", "map"):
        return _several(node, array, path)
    if node.kind == "enum":
        return _enum(node, array, path)
    if node.kind == "recursive":
        raise BadColumn(f"{path} is {node.name}, a recursive type, which has no column")
    return _single(node, _cast(array, arrow_type(node), path), path)


def _cast(array: pa.Array, kind: pa.DataType, path: str) -> pa.Array:
    try:
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise BadColumn(f"{path} is {array.type}, but its schema has {kind}: {error}") from None


def _single(node: AvroNode, array: pa.Array, path: str) -> pa.Array:
    if node.is_decimal:
        return _decimals(node, array)
    if node.kind in ("int", "long"):
        numbers = array.cast(pa.int32()) if node.logical == "date" else array
        found = numbers.view(pa.int64() if node.kind == "long" else pa.int32())
        whole: Numbers = found.to_numpy().astype(np.int64)
        if node.unit > 1:
            whole = whole // node.unit
        elif node.unit < 0:
            whole = whole * -node.unit
        return zigzags(whole)
    if node.kind in ("float", "double"):
        width = 4 if node.kind == "float" else 8
        raw = np.ascontiguousarray(array.to_numpy(), f"<f{width}").view(np.uint8)
        return _pieces(np.arange(len(array) + 1) * width, raw)
    if node.kind == "boolean":
        flags = array.to_numpy(zero_copy_only=False).astype(np.uint8)
        return _pieces(np.arange(len(array) + 1), flags)
    octets = array.cast(pa.binary())
    lengths = pc.binary_length(octets).to_numpy(zero_copy_only=False).astype(np.int64)
    if node.kind == "fixed":
        if (lengths != node.size).any():
            raise BadColumn(
                f"{path} does not always have {node.size} bytes, as its schema requires"
            )
        return octets
    return pc.binary_join_element_wise(zigzags(lengths), octets, _EMPTY)


def _union(node: AvroNode, array: pa.Array, path: str) -> pa.Array:
    values = without_null(node)
    if len(values) != 1:
        raise BadColumn(f"{path} is a union of several types; a column has one type")
    numbers = {branch.kind == "null": place for place, branch in enumerate(node.branches)}
    if array.null_count and True not in numbers:
        raise BadColumn(f"{path} is null in a row, but its schema does not allow null")
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    inner = encoded(values[0], array.filter(pa.array(valid)), path)
    branch = pa.scalar(bytes([numbers[False] * 2]), pa.binary())
    made = pc.binary_join_element_wise(branch, inner, _EMPTY)
    found = scattered([(np.flatnonzero(valid), made)], len(array), pa.binary())
    return found.fill_null(bytes([numbers.get(True, 0) * 2]))


def _record(node: AvroNode, array: pa.Array, path: str) -> pa.Array:
    if not pa.types.is_struct(array.type):
        raise BadColumn(f"{path} is {array.type}, but its schema is the record {node.name}")
    names = {field.name for field in array.type}
    known = {field.name for field in node.fields}
    if unknown := [field.name for field in array.type if field.name not in known]:
        raise BadColumn(f"{path} has the field {unknown[0]}, which its schema does not have")
    pieces = [_part(field, array, names, f"{path}.{field.name}") for field in node.fields]
    if not pieces:
        return pa.array([b""] * len(array), pa.binary())
    return pc.binary_join_element_wise(*pieces, _EMPTY) if len(pieces) > 1 else pieces[0]


def _part(field: AvroField, array: pa.Array, names: set[str], path: str) -> pa.Array:
    if field.name in names:
        return encoded(field.type, pc.struct_field(array, field.name), path)
    if any(branch.kind == "null" for branch in field.type.branches):
        return encoded(field.type, pa.nulls(len(array), arrow_type(field.type)), path)
    raise BadColumn(f"{path} is missing in the column, and its schema does not allow null")


def _several(node: AvroNode, array: pa.Array, path: str) -> pa.Array:
    assert node.items is not None
    # A copy, so that it has only the keys and items of these rows.
    array = array.take(pa.array(np.arange(len(array))))
    if pa.types.is_map(array.type) and node.kind == "map":
        counts = np.diff(array.offsets.to_numpy()).astype(np.int64)
        key = encoded(AvroNode("string"), array.keys, f"{path}.key")
        item = encoded(node.items, array.items, f"{path}{{}}")
        inner = pc.binary_join_element_wise(key, item, _EMPTY)
    elif pa.types.is_list(array.type) and node.kind == "array":
        counts = np.diff(array.offsets.to_numpy()).astype(np.int64)
        inner = encoded(node.items, array.flatten(), f"{path}[]")
    else:
        raise BadColumn(f"{path} is {array.type}, but its schema is of type {node.kind}")
    bounds = pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
    joined = pc.binary_join(pa.ListArray.from_arrays(bounds, inner), _EMPTY)
    whole = pc.binary_join_element_wise(zigzags(counts), joined, _ZERO, _EMPTY)
    # A block without items is the end of the blocks.
    return pc.if_else(pa.array(counts == 0), _ZERO, whole)


def _enum(node: AvroNode, array: pa.Array, path: str) -> pa.Array:
    places = pc.index_in(_cast(array, pa.string(), path), pa.array(node.symbols, pa.string()))
    if places.null_count:
        wrong = array.filter(places.is_null())[0].as_py()
        raise BadColumn(f"{path} is {wrong!r}, which is not a symbol of the enum {node.name}")
    return zigzags(places.to_numpy().astype(np.int64))


def _decimals(node: AvroNode, array: pa.Array) -> pa.Array:
    numbers = [int(each.scaleb(node.scale)) for each in array.to_pylist()]
    if node.kind == "fixed":
        return pa.array([n.to_bytes(node.size, "big", signed=True) for n in numbers], pa.binary())
    pieces = [n.to_bytes((n if n >= 0 else ~n).bit_length() // 8 + 1, "big", signed=True)
              for n in numbers]  # fmt: skip
    return pa.array([bytes([len(each) * 2]) + each for each in pieces], pa.binary())


def zigzags(numbers: Numbers) -> pa.Array:
    """Variable-length integers with a sign."""
    raw = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    width = np.ones(len(raw), np.int64)
    for byte in range(1, VARINT_BYTES_MAX):
        longer = raw >= np.uint64(1 << 7 * byte)
        if not longer.any():
            break
        width += longer
    bounds = np.concatenate(([0], np.cumsum(width)))
    out = np.zeros(bounds[-1], np.uint8)
    at = bounds[:-1]
    for byte in range(int(width.max(initial=0))):
        rows = np.flatnonzero(width > byte)
        seven = (raw[rows] >> np.uint64(7 * byte)).astype(np.uint8) & 0x7F
        out[at[rows] + byte] = seven | np.where(width[rows] > byte + 1, 0x80, 0).astype(np.uint8)
    return _pieces(bounds, out)


def _pieces(bounds: "Numbers | Sequence[int]", data: npt.NDArray[np.uint8]) -> pa.Array:
    small = np.asarray(bounds).astype(np.int32)
    buffers = [None, pa.py_buffer(small), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(small) - 1, buffers)
