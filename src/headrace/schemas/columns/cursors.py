"""Positions in many values that are advanced together.

The cursor of a bad value is parked after the last value, where there are only zeros: it takes part
in all further steps without an effect, and the reason is reported for its row at the end.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.wire.columns import Bytes, Numbers

Flags: TypeAlias = npt.NDArray[np.bool_]
Words: TypeAlias = npt.NDArray[np.uint64]

PADDING_BYTES = 32
"""Zeros after the last value: the longest look-ahead of a step."""
VARINT_BYTES_MAX = 10
REASON_CHARACTERS = 500

_TOP_BITS = np.uint64(0x8080808080808080)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONE = np.uint64(1)
# Combines 7 bits of each byte, then 14 of each two bytes, then 28 of each four.
_PUSHES = tuple(
    (np.uint64(even), np.uint64(odd), np.uint64(shift))
    for even, odd, shift in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)


class Uneven(Exception):
    """Values differ too much to be read together."""


class Reasons:
    """The bad rows with the first reason of each."""

    __slots__ = ("_codes", "_texts")

    def __init__(self, rows: int) -> None:
        self._codes = np.zeros(rows, np.int32)
        self._texts: dict[str, int] = {}

    def add(self, rows: Numbers, why: str) -> None:
        new = rows[self._codes[rows] == 0]
        if len(new):
            self._codes[new] = self._texts.setdefault(why[:REASON_CHARACTERS], len(self._texts) + 1)

    def found(self) -> dict[int, str]:
        """The reasons by row."""
        bad = np.flatnonzero(self._codes)
        texts = ["", *self._texts]
        return {row: texts[self._codes[row]] for row in bad.tolist()}


@dataclass(frozen=True, slots=True)
class Values:
    """Pieces of one buffer, in order, without nulls."""

    octets: Bytes
    at: Numbers
    length: Numbers

    def __len__(self) -> int:
        return len(self.at)

    def select(self, rows: Numbers) -> "Values":
        return Values(self.octets, self.at[rows], self.length[rows])

    def pieces(self) -> list[bytes]:
        """Each piece as bytes."""
        view = memoryview(self.octets)  # type: ignore[arg-type]  # an array is a buffer
        ends = (self.at + self.length).tolist()
        return [bytes(view[at:end]) for at, end in zip(self.at.tolist(), ends, strict=True)]


class Rows:
    """Rows of which some may be bad, for reading values one by one."""

    __slots__ = ("reasons", "rows")

    def __init__(self, rows: Numbers, reasons: Reasons) -> None:
        self.rows = rows
        self.reasons = reasons

    def subset(self, chosen: Numbers) -> "Rows":
        return Rows(self.rows[chosen], self.reasons)

    def fail(self, bad: Flags, why: str) -> None:
        """Mark these rows as bad, if there are any."""
        if bad.any():
            self.reasons.add(self.rows[bad], why)


class Cursors:
    """The reading position in each value."""

    __slots__ = ("at", "end", "octets", "park", "reasons", "rows", "words")

    def __init__(
        self,
        octets: Bytes,
        at: Numbers,
        end: Numbers,
        rows: Numbers,
        reasons: Reasons,
        park: int,
    ) -> None:
        self.octets = octets
        self.words: Words = np.ndarray(
            (len(octets) - 7,), np.dtype("<u8"), octets.data, strides=(1,)
        )
        self.at = at
        self.end = end
        self.rows = rows
        self.reasons = reasons
        self.park = park

    def __len__(self) -> int:
        return len(self.at)

    def subset(self, chosen: Numbers) -> "Cursors":
        """A subset that is advanced separately; then call `rejoin`."""
        return Cursors(
            self.octets,
            self.at[chosen],
            self.end[chosen],
            self.rows[chosen],
            self.reasons,
            self.park,
        )

    def rejoin(self, chosen: Numbers, part: "Cursors") -> None:
        self.at[chosen] = part.at
        self.end[chosen] = part.end

    def fail(self, bad: Flags, why: str) -> None:
        """Mark these rows as bad and park their cursors."""
        if bad.any():
            self.reasons.add(self.rows[bad], why)
            self.at[bad] = self.park
            self.end[bad] = self.park

    def parked(self) -> Flags:
        """Which cursors are parked."""
        found: Flags = self.end == self.park
        return found

    def settle(self, path: str) -> None:
        """Fail the cursors that are past the end of their value after a step."""
        self.fail(self.at > self.end, f"{path} reaches past the end of the value")

    def octet(self) -> Bytes:
        """The next byte of each, without advancing."""
        return self.octets[self.at]

    def word(self) -> Words:
        """The next eight bytes of each as a number, without advancing."""
        return self.words[self.at]

    def unsigned(self, path: str) -> Numbers:
        """Variable-length integers, seven bits per byte, as 64 bits."""
        first = self.octet()
        if not len(first) or first.max() < 0x80:
            self.at += 1
            self.settle(path)
            return first.astype(np.int64)
        word = self.word()
        stop = ~word & _TOP_BITS
        # All bits up to the first byte without a top bit.
        mask = stop ^ (stop - _ONE)
        value = word & mask & _LOW_BITS
        for even, odd, shift in _PUSHES:
            value = (value & even) | ((value & odd) >> shift)
        found = value.view(np.int64)
        width = np.bitwise_count(mask).astype(np.int64) >> 3
        if (long := np.flatnonzero(stop == 0)).size:
            found[long], width[long] = self._long(long, path)
        self.at += width
        self.settle(path)
        return found

    def _long(self, rows: Numbers, path: str) -> tuple[Numbers, Numbers]:
        """Numbers of nine and ten bytes, which are rare and may be invalid."""
        at = self.at[rows]
        found = np.zeros(len(rows), np.int64)
        for byte in range(VARINT_BYTES_MAX):
            found |= (self.octets[at + byte] & 0x7F).astype(np.int64) << 7 * byte
        ninth, tenth = self.octets[at + 8], self.octets[at + 9]
        short = ninth < 0x80
        found[short] &= (1 << 63) - 1
        # Ten bytes have six bits more than a 64-bit number.
        endless = ~short & (tenth > 1)
        if endless.any():
            bad = np.zeros(len(self), np.bool_)
            bad[rows[endless]] = True
            self.fail(bad, f"{path} is not a number: it has too many bytes")
        return found, np.where(endless, 0, np.where(short, 9, 10))

    def zigzag(self, path: str) -> Numbers:
        """Variable-length integers with a sign."""
        value = self.unsigned(path)
        half = (value.view(np.uint64) >> _ONE).view(np.int64)
        return half ^ -(value & 1)


def start(values: Values, skip: int = 0) -> Cursors:
    """Cursors at the beginning of each value, or `skip` bytes after it. The bytes are copied
    together, so that they are contiguous."""
    first = int(values.at.min()) if len(values) else 0
    last = int((values.at + values.length).max()) if len(values) else 0
    octets = np.zeros(last - first + PADDING_BYTES, np.uint8)
    octets[: last - first] = values.octets[first:last]
    at = values.at - first
    rows = np.arange(len(values))
    reasons = Reasons(len(values))
    # One byte after the last value, so that a parked cursor differs from one at its end.
    return Cursors(octets, at + skip, at + values.length, rows, reasons, last - first + 1)


def scattered(parts: list[tuple[Numbers, pa.Array]], count: int, kind: pa.DataType) -> pa.Array:
    """One array of all parts, each value at its row; null if no part has one."""
    parts = [(rows, array) for rows, array in parts if len(rows)]
    if not parts:
        return pa.nulls(count, kind)
    order = np.zeros(count, np.int64)
    empty = np.ones(count, np.bool_)
    before = 0
    for rows, _ in parts:
        order[rows] = np.arange(before, before + len(rows))
        empty[rows] = False
        before += len(rows)
    whole = parts[0][1] if len(parts) == 1 else pa.concat_arrays([array for _, array in parts])
    return whole.take(pa.array(order, mask=empty if empty.any() else None))
