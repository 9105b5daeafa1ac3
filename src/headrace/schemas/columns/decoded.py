"""Decoded values: an array, and the reasons of bad rows."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.schemas.columns.cursors import Reasons, Values, scattered


@dataclass(frozen=True, slots=True)
class Decoded:
    """An array with a null for each bad row, and the reasons by row."""

    array: pa.Array
    bad: dict[int, str]


PARTS = 8
PART_ROWS = 128
"""Fewer values than this are not divided further."""


def decode_in_parts(
    values: Values,
    at_once: Callable[[Values], Decoded | None],
    singly: Callable[[Values], Decoded],
) -> Decoded:
    """Decode all values at once; if that fails, in smaller parts, so that an unusual value slows
    down only its neighbours."""
    found = at_once(values)
    if found is not None:
        return found
    if len(values) <= PART_ROWS:
        return singly(values)
    arrays, bad = [], dict[int, str]()
    step = -(-len(values) // PARTS)
    for first in range(0, len(values), step):
        rows = slice(first, first + step)
        part = Values(values.octets, values.at[rows], values.length[rows])
        decoded = decode_in_parts(part, at_once, singly)
        arrays.append(decoded.array)
        bad |= {first + row: why for row, why in decoded.bad.items()}
    return Decoded(pa.concat_arrays(arrays), bad)


def without_bad(array: pa.Array, reasons: Reasons) -> Decoded:
    """The array with nulls where a row is bad."""
    bad = reasons.found()
    if bad:
        good = np.ones(len(array), np.bool_)
        good[list(bad)] = False
        rows = np.flatnonzero(good)
        array = scattered([(rows, array.take(pa.array(rows)))], len(array), array.type)
    return Decoded(array, bad)


def all_bad(count: int, kind: pa.DataType, why: str) -> Decoded:
    """Every row is bad, for the same reason."""
    return Decoded(pa.nulls(count, kind), dict.fromkeys(range(count), why))
