"""Reads flat Protobuf messages for all records at once.

A message is a sequence of tags, each followed by its value, in any order. Each round reads the next
tag of every record, and the values of equal tags together. Irregular cases (a bad record, a field
with an unexpected wire type, a group) are left to the parser that reads one by one.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from headrace.schemas.columns.cursors import Cursors, Flags, Values, start
from headrace.schemas.columns.pieces import byte_array
from headrace.wire.columns import Numbers

F = FieldDescriptor
VARINT, EIGHT, OCTETS, FOUR = 0, 1, 2, 5
WIRE = {
    F.TYPE_INT32: VARINT, F.TYPE_INT64: VARINT, F.TYPE_UINT32: VARINT, F.TYPE_SINT32: VARINT,
    F.TYPE_SINT64: VARINT, F.TYPE_BOOL: VARINT, F.TYPE_ENUM: VARINT, F.TYPE_DOUBLE: EIGHT,
    F.TYPE_SFIXED64: EIGHT, F.TYPE_FLOAT: FOUR, F.TYPE_FIXED32: FOUR, F.TYPE_SFIXED32: FOUR,
    F.TYPE_STRING: OCTETS, F.TYPE_BYTES: OCTETS,
}  # fmt: skip
UNKNOWN_FIELDS_MAX = 64
"""Records with more unknown fields than this are read one by one."""
LOW_HALF = 0xFFFFFFFF


@dataclass(slots=True)
class Column:
    """One field of all records; if it is repeated, the last value is used."""

    field: FieldDescriptor
    type: pa.DataType
    there: Flags
    numbers: Numbers
    """The positions of its bytes, for text and bytes."""
    lengths: Numbers

    def put(self, cursors: Cursors, rows: Numbers) -> None:
        """Read the next values of these records."""
        wire = WIRE[self.field.type]
        if wire == VARINT:
            self.numbers[rows] = cursors.unsigned("a number")
        elif wire == OCTETS:
            self.lengths[rows] = _length(cursors)
            self.numbers[rows] = cursors.at
            cursors.at = cursors.at + self.lengths[rows]
        else:
            self.numbers[rows] = cursors.word().view(np.int64)
            cursors.at += 8 if wire == EIGHT else 4
            cursors.settle("a number")
        self.there[rows] = True

    def array(self, cursors: Cursors) -> pa.Array | None:
        """The array; None if the other parser is needed."""
        made = self._octets(cursors) if WIRE[self.field.type] == OCTETS else self._numbers()
        if made is None or not self.field.has_presence or self.there.all():
            return made
        rows = np.arange(len(self.there))
        return made.take(pa.array(rows, mask=~self.there))

    def _octets(self, cursors: Cursors) -> pa.Array | None:
        made = byte_array(cursors.octets, self.numbers, self.lengths)
        try:
            return made.cast(self.type)
        except pa.ArrowInvalid:
            return None

    def _numbers(self) -> pa.Array | None:
        kind, raw = self.field.type, self.numbers
        low = raw & LOW_HALF
        if kind == F.TYPE_BOOL:
            return pa.array(raw != 0)
        if kind == F.TYPE_DOUBLE:
            return pa.array(raw.view(np.float64))
        if kind == F.TYPE_FLOAT:
            return pa.array(low.astype(np.uint32).view(np.float32))
        if kind in (F.TYPE_SINT32, F.TYPE_SINT64):
            value = low if kind == F.TYPE_SINT32 else raw
            half = (value.view(np.uint64) >> np.uint64(1)).view(np.int64)
            return pa.array(half ^ -(value & 1)).cast(self.type)
        if kind in (F.TYPE_UINT32, F.TYPE_FIXED32):
            return pa.array(low)
        if kind in (F.TYPE_INT64, F.TYPE_SFIXED64):
            return pa.array(raw)
        small = low.astype(np.uint32).view(np.int32)
        return self._names(small.astype(np.int64)) if kind == F.TYPE_ENUM else pa.array(small)

    def _names(self, numbers: Numbers) -> pa.Array | None:
        known = sorted(self.field.enum_type.values_by_number)
        places = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
        if (np.array(known, np.int64)[places] != numbers).any():
            return None
        names = [self.field.enum_type.values_by_number[number].name for number in known]
        return pa.array(names, pa.string()).take(pa.array(places))


def is_flat(message: Descriptor) -> bool:
    """Whether every field is a single number, string or bytes."""
    return bool(message.fields) and all(
        field.type in WIRE and not field.is_repeated for field in message.fields
    )


def read_flat(message: Descriptor, kind: pa.DataType, values: Values) -> pa.Array | None:
    """Structs of all messages; None if one of them must be parsed separately."""
    count = len(values)
    columns = {
        field.number: Column(
            field,
            inner.type,
            np.zeros(count, np.bool_),
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
        )
        for field, inner in zip(message.fields, kind, strict=True)
    }
    cursors = start(values)
    for _ in range(len(columns) + UNKNOWN_FIELDS_MAX):
        rows = np.flatnonzero(cursors.at < cursors.end)
        if not len(rows):
            break
        if not _turn(cursors, rows, columns):
            return None
    if (cursors.at < cursors.end).any() or cursors.reasons.found():
        return None
    arrays = [columns[field.number].array(cursors) for field in message.fields]
    if any(array is None for array in arrays):
        return None
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def _turn(cursors: Cursors, rows: Numbers, columns: dict[int, Column]) -> bool:
    """Read one field of each of these records; False if the other parser is needed."""
    part = cursors.subset(rows)
    tags = part.unsigned("a tag")
    cursors.rejoin(rows, part)
    if cursors.reasons.found():
        return False
    for tag in np.unique(tags).tolist():
        number, wire = tag >> 3, tag & 7
        chosen = rows[tags == tag]
        some = cursors.subset(chosen)
        column = columns.get(number)
        if not 0 < number < 1 << 29 or (column is not None and WIRE[column.field.type] != wire):
            return False
        if column is not None:
            column.put(some, chosen)
        elif not _skip(some, wire):
            return False
        cursors.rejoin(chosen, some)
    return True


def _skip(cursors: Cursors, wire: int) -> bool:
    if wire == VARINT:
        cursors.unsigned("a number")
    elif wire == OCTETS:
        cursors.at = cursors.at + _length(cursors)
    elif wire in (EIGHT, FOUR):
        cursors.at += 8 if wire == EIGHT else 4
        cursors.settle("a number")
    else:
        return False
    return True


def _length(cursors: Cursors) -> Numbers:
    length = cursors.unsigned("a length")
    bad = (length < 0) | (length > cursors.end - cursors.at)
    cursors.fail(bad, "reaches past the end of the value")
    return np.where(bad, 0, length)
