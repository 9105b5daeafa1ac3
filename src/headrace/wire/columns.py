"""Decodes many records at once into columns: positions of records, keys and values, and deltas.

For analyses of millions of records that use few of their bytes. The layout of a record is in
`records.py`. Only the search for the beginning of each record is a loop, since the length of a
record is needed to find the next one; everything else is done for all records together. This module
needs numpy; the broker never imports it.
"""

from array import array
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.errors import ErrorCode, KafkaError
from headrace.wire.records import MIN_RECORD_BYTES, STEPS, read_varint

Numbers: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_VARINT_BYTES_MAX = 10


class Columns:
    """The records that begin at given positions of one buffer."""

    __slots__ = (
        "data", "ends", "key_at", "key_bytes", "offset_at", "offset_deltas", "starts",
        "timestamp_deltas", "value_at", "value_bytes",
    )  # fmt: skip

    def __init__(self, buffer: bytes | bytearray, starts: Numbers) -> None:
        """KafkaError INVALID_RECORD if a field reaches past its record."""
        self.data: Bytes = np.frombuffer(buffer, np.uint8)
        self.starts = starts
        try:
            length, at = varints(self.data, self.starts)
            self.ends: Numbers = at + length
            self.timestamp_deltas, self.offset_at = varints(self.data, at + 1)
            self.offset_deltas, at = varints(self.data, self.offset_at)
            self.key_bytes, self.key_at = varints(self.data, at)
            """Lengths are -1 where there is no key or no value."""
            at = self.key_at + np.maximum(self.key_bytes, 0)
            self.value_bytes, self.value_at = varints(self.data, at)
        except IndexError:
            raise _invalid("a record reaches past the end of its batch") from None
        if len(self.starts):
            last = self.value_at + np.maximum(self.value_bytes, 0)
            lengths = min(self.key_bytes.min(), self.value_bytes.min())
            if lengths < -1 or (last >= self.ends).any() or (at > self.ends).any():
                raise _invalid("a record's key or value reaches past its end")

    def __len__(self) -> int:
        return len(self.starts)


def varints(data: Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """The zigzag numbers at these positions, and the positions after them."""
    byte = data[at]
    value = (byte & 0x7F).astype(np.int64)
    behind = at + 1
    more = byte >= 0x80
    shift = 7
    # All numbers have the same number of bytes, as lengths in a topic often have.
    while more.all() and len(more) and shift < 7 * _VARINT_BYTES_MAX:
        byte = data[behind]
        value |= (byte & 0x7F).astype(np.int64) << shift
        behind += 1
        more = byte >= 0x80
        shift += 7
    longer = np.flatnonzero(more)
    while longer.size:
        if shift >= 7 * _VARINT_BYTES_MAX:
            raise _invalid("a variable-length integer is too long")
        byte = data[behind[longer]]
        value[longer] |= (byte & 0x7F).astype(np.int64) << shift
        behind[longer] += 1
        longer = longer[(byte & 0x80) != 0]
        shift += 7
    # An unsigned shift, which brings in zeros.
    half = (value.view(np.uint64) >> np.uint64(1)).view(np.int64)
    return half ^ -(value & 1), behind


def add_starts(
    starts: "array[int]", buffer: bytes | bytearray, at: int, count: int, end: int
) -> None:
    """Add the position of each of the `count` records that fill buffer[at:end].

    KafkaError INVALID_RECORD if they do not fill it.
    """
    if count * MIN_RECORD_BYTES > end - at:
        raise _invalid(f"{count} records cannot fit in {end - at} bytes")
    steps, add = STEPS, starts.append
    try:
        for _ in range(count):
            add(at)
            step = steps[buffer[at]]
            if step > 0:
                at += step
            elif step and 0 < (second := buffer[at + 1]) < 0x80:
                at += (second << 6) - step
            else:
                length, at = read_varint(buffer, at)
                if length < MIN_RECORD_BYTES - 1:
                    raise _invalid(f"a record of {length} bytes is too short")
                at += length
    except IndexError:
        at = -1
    if at != end:
        raise _invalid(f"{count} records do not fill the batch")


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"the record batch is invalid: {why}")
