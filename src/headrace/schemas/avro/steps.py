"""Steps that read each Avro type into an Arrow array: many values at once, or from Python values.

A step reads a writer's type as a reader's type. `read` moves cursors over Avro's binary form, for
all records together; `gather` converts the values that fastavro has read for each record. Both
return the same array and find the same bad records. A step without `vector` can only gather.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, Protocol, TypeAlias, cast

import numpy as np
import pyarrow as pa

from headrace.schemas.columns.cursors import Cursors, Flags, Rows
from headrace.schemas.columns.pieces import byte_array
from headrace.wire.columns import Numbers

Raw: TypeAlias = Sequence[object]
Fail: TypeAlias = Callable[[Flags, str], None]

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
DECIMAL_BYTES = 16


class ColumnStep(Protocol):
    """The step of one type."""

    @property
    def type(self) -> pa.DataType: ...

    @property
    def vector(self) -> bool: ...

    def read(self, cursors: Cursors) -> pa.Array: ...

    def skip(self, cursors: Cursors) -> None: ...

    def gather(self, values: Raw, rows: Rows) -> pa.Array: ...


@dataclass(frozen=True, slots=True)
class IntegerStep:
    """int and long, also as a date, a timestamp or a wider number."""

    path: str
    type: pa.DataType
    narrow: bool
    """Whether one of the types is int."""
    unit: int = 0
    vector: ClassVar[bool] = True

    def read(self, cursors: Cursors) -> pa.Array:
        return self._made(cursors.zigzag(self.path), cursors.fail)

    def skip(self, cursors: Cursors) -> None:
        cursors.zigzag(self.path)

    def gather(self, values: Raw, rows: Rows) -> pa.Array:
        try:
            numbers = np.array(values, np.int64)
        except OverflowError:
            whole = [cast(int, value) for value in values]
            fitting = [value if -LONG_MAX - 1 <= value <= LONG_MAX else 0 for value in whole]
            numbers = np.array(fitting, np.int64)
            bad = np.array([a != b for a, b in zip(whole, fitting, strict=True)], np.bool_)
            rows.fail(bad, f"{self.path} is not a number: it has too many bytes")
        return self._made(numbers, rows.fail)

    def _made(self, numbers: Numbers, fail: Fail) -> pa.Array:
        if self.narrow:
            bad = (numbers > INT_MAX) | (numbers < -INT_MAX - 1)
            fail(bad, f"{self.path} has more than 32 bits")
        if self.unit:
            if self.unit > 1:
                most = LONG_MAX // self.unit
                fail((numbers > most) | (numbers < -most), f"{self.path} is too far from 1970")
                numbers = numbers * self.unit
            elif self.unit < 0:
                numbers = numbers // -self.unit
            return pa.array(numbers).view(self.type)
        if self.type == pa.int64():
            return pa.array(numbers)
        if pa.types.is_floating(self.type):
            return pa.array(numbers.astype(self.type.to_pandas_dtype()))
        return pa.array(numbers.astype(np.int32)).view(self.type)


@dataclass(frozen=True, slots=True)
class FloatStep:
    """float and double."""

    path: str
    type: pa.DataType
    width: int
    vector: ClassVar[bool] = True

    def read(self, cursors: Cursors) -> pa.Array:
        word = cursors.word()
        self.skip(cursors)
        if self.width == 8:
            return pa.array(word.view(np.float64))
        return self._made(word.astype(np.uint32).view(np.float32))

    def skip(self, cursors: Cursors) -> None:
        cursors.at += self.width
        cursors.settle(self.path)

    def gather(self, values: Raw, rows: Rows) -> pa.Array:
        return pa.array(np.array(values, np.float64).astype(self.type.to_pandas_dtype()))

    def _made(self, numbers: "np.ndarray[tuple[int], np.dtype[np.float32]]") -> pa.Array:
        return pa.array(numbers if self.type == pa.float32() else numbers.astype(np.float64))


@dataclass(frozen=True, slots=True)
class BooleanStep:
    """boolean."""

    path: str
    type: pa.DataType
    vector: ClassVar[bool] = True

    def read(self, cursors: Cursors) -> pa.Array:
        octet = cursors.octet()
        cursors.fail(octet > 1, f"{self.path} is not a boolean")
        self.skip(cursors)
        return pa.array(octet == 1)

    def skip(self, cursors: Cursors) -> None:
        cursors.at += 1
        cursors.settle(self.path)

    def gather(self, values: Raw, rows: Rows) -> pa.Array:
        return pa.array(values, pa.bool_())


@dataclass(frozen=True, slots=True)
class BytesStep:
    """bytes, string and fixed, also as a decimal."""

    path: str
    type: pa.DataType
    size: int | None = None
    """The size of a fixed."""
    vector: ClassVar[bool] = True

    def read(self, cursors: Cursors) -> pa.Array:
        return self.made(cursors, *self.span(cursors))

    def span(self, cursors: Cursors) -> tuple[Numbers, Numbers]:
        """The position and the length of each."""
        if self.size is None:
            length = cursors.zigzag(self.path)
        else:
            length = np.full(len(cursors), self.size, np.int64)
        room = cursors.end - cursors.at
        bad = (length < 0) | (length > room)
        if bad.any():
            cursors.fail(bad, f"{self.path} reaches past the end of the value")
            length = np.where(bad, 0, length)
        at = cursors.at
        cursors.at = at + length
        return at, length

    def skip(self, cursors: Cursors) -> None:
        self.span(cursors)

    def gather(self, values: Raw, rows: Rows) -> pa.Array:
        pieces = [v.encode() if isinstance(v, str) else cast(bytes, v) for v in values]
        if pa.types.is_decimal(self.type):
            return decimals(pieces, self.type, rows.fail, self.path)
        return self._typed(pa.array(pieces, pa.binary()), rows.fail)

    def made(self, cursors: Cursors, at: Numbers, length: Numbers) -> pa.Array:
        """The array of these pieces; a length of -1 is a null."""
        if pa.types.is_decimal(self.type):
            return self._decimals(cursors, at, length)
        return self._typed(byte_array(cursors.octets, at, length), cursors.fail)

    def _typed(self, array: pa.Array, fail: Fail) -> pa.Array:
        if self.type == pa.binary():
            return array
        try:
            return array.cast(pa.string())
        except pa.ArrowInvalid:
            texts = [_text(piece) for piece in array.to_pylist()]
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            bad = np.array([text is None for text in texts], np.bool_) & valid
            fail(bad, f"{self.path} is not UTF-8")
            return pa.array(texts, pa.string())

    def _decimals(self, cursors: Cursors, at: Numbers, length: Numbers) -> pa.Array:
        places = np.arange(DECIMAL_BYTES)
        # Avro's decimals are big-endian, Arrow's are little-endian and sign-extended.
        from_end = (at + length - 1)[:, None] - places
        there = places < length[:, None]
        negative = (length > 0) & (cursors.octets[np.minimum(at, cursors.park)] >= 0x80)
        filled = np.where(negative, np.uint8(0xFF), np.uint8(0))[:, None]
        octets = np.where(there, cursors.octets[np.maximum(from_end, 0)], filled)
        null = length < 0
        buffers = [None, pa.py_buffer(np.ascontiguousarray(octets))]
        array = pa.Array.from_buffers(self.type, len(at), buffers)
        try:
            array.validate(full=True)
            large = length > DECIMAL_BYTES
            if not large.any():
                return array.take(pa.array(np.arange(len(at)), mask=null)) if null.any() else array
        except pa.ArrowInvalid:
            pass
        pieces = byte_array(cursors.octets, at, length).to_pylist()
        return decimals(pieces, self.type, cursors.fail, self.path)


def decimals(pieces: Sequence[bytes | None], kind: pa.DataType, fail: Fail, path: str) -> pa.Array:
    """Decimals one by one; those with too many digits are bad."""
    most = 10**kind.precision
    found: list[Decimal | None] = []
    bad = np.zeros(len(pieces), np.bool_)
    for index, piece in enumerate(pieces):
        number = 0 if piece is None else int.from_bytes(piece, "big", signed=True)
        bad[index] = not -most < number < most
        text = "" if piece is None or bad[index] else f"{number}E-{kind.scale}"
        found.append(Decimal(text) if text else None)
    fail(bad, f"{path} has more than {kind.precision} digits")
    return pa.array(found, kind)


def _text(piece: bytes | None) -> str | None:
    try:
        return None if piece is None else piece.decode()
    except UnicodeDecodeError:
        return None


@dataclass(frozen=True, slots=True)
class EnumStep:
    """An enum: the writer's symbols, and the reader's symbol for each."""

    path: str
    type: pa.DataType
    written: tuple[str, ...]
    known: tuple[str | None, ...]
    vector: ClassVar[bool] = True

    def read(self, cursors: Cursors) -> pa.Array:
        number = cursors.zigzag(self.path)
        bad = (number < 0) | (number >= len(self.written))
        cursors.fail(bad, f"{self.path} is not one of the {len(self.written)} symbols of its enum")
        return self._made(np.where(bad, 0, number), cursors.fail)

    def skip(self, cursors: Cursors) -> None:
        self.read(cursors)

    def gather(self, values: Raw, rows: Rows) -> pa.Array:
        places = {symbol: place for place, symbol in enumerate(self.written)}
        numbers = np.array([places[str(value)] for value in values], np.int64)
        return self._made(numbers, rows.fail)

    def _made(self, numbers: Numbers, fail: Fail) -> pa.Array:
        for place, symbol in enumerate(self.known):
            if symbol is None:
                why = f"{self.path} is {self.written[place]}, which the reader's enum does not have"
                fail(numbers == place, why)
        return pa.array(self.known, pa.string()).take(pa.array(numbers))


@dataclass(frozen=True, slots=True)
class NullStep:
    """null."""

    type: pa.DataType
    vector: ClassVar[bool] = True

    def read(self, cursors: Cursors) -> pa.Array:
        return pa.nulls(len(cursors), self.type)

    def skip(self, cursors: Cursors) -> None:
        pass

    def gather(self, values: Raw, rows: Rows) -> pa.Array:
        return pa.nulls(len(values), self.type)


@dataclass(frozen=True, slots=True)
class WrittenField:
    """A field of the writer, and its index in the reader's record; None if dropped."""

    name: str
    step: ColumnStep
    slot: int | None


@dataclass(frozen=True, slots=True)
class RecordStep:
    """A record: the writer's fields in their order, and defaults for missing ones."""

    type: pa.DataType
    parts: tuple[WrittenField, ...]
    defaults: tuple[tuple[int, pa.Array], ...]

    @property
    def vector(self) -> bool:
        return all(part.step.vector for part in self.parts)

    def read(self, cursors: Cursors) -> pa.Array:
        columns = self._defaults(len(cursors))
        for part in self.parts:
            if part.slot is None:
                part.step.skip(cursors)
            else:
                columns[part.slot] = part.step.read(cursors)
        return self._made(columns, len(cursors))

    def skip(self, cursors: Cursors) -> None:
        for part in self.parts:
            part.step.skip(cursors)

    def gather(self, values: Raw, rows: Rows) -> pa.Array:
        columns = self._defaults(len(values))
        records = cast("Sequence[dict[str, object]]", values)
        for part in self.parts:
            if part.slot is not None:
                raw = [record[part.name] for record in records]
                columns[part.slot] = part.step.gather(raw, rows)
        return self._made(columns, len(values))

    def _defaults(self, count: int) -> dict[int, pa.Array]:
        zeros = pa.array(np.zeros(count, np.int64))
        return {slot: single.take(zeros) for slot, single in self.defaults}

    def _made(self, columns: dict[int, pa.Array], count: int) -> pa.Array:
        if not columns:
            return pa.array([{}] * count, self.type)
        arrays = [columns[slot] for slot in range(self.type.num_fields)]
        return pa.StructArray.from_arrays(arrays, fields=list(self.type))


@dataclass(frozen=True, slots=True)
class MemberStep:
    """A type of the reader's union of several: one field of a struct."""

    type: pa.DataType
    step: ColumnStep
    number: int

    @property
    def vector(self) -> bool:
        return self.step.vector

    def read(self, cursors: Cursors) -> pa.Array:
        return self._made(self.step.read(cursors))

    def skip(self, cursors: Cursors) -> None:
        self.step.skip(cursors)

    def gather(self, values: Raw, rows: Rows) -> pa.Array:
        return self._made(self.step.gather(values, rows))

    def _made(self, array: pa.Array) -> pa.Array:
        columns = [
            array if place == self.number else pa.nulls(len(array), field.type)
            for place, field in enumerate(self.type)
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self.type))
