"""Pieces of a buffer as an Arrow array of bytes."""

import numpy as np
import pyarrow as pa

from headrace.wire.batch_columns import Buffer
from headrace.wire.columns import Bytes, Numbers


def byte_array(payload: Buffer | Bytes, at: Numbers, length: Numbers) -> pa.Array:
    """The pieces of the payload at these positions, copied together; a length of -1 is a null."""
    count = len(at)
    null = length < 0
    if null.all():
        return pa.nulls(count, pa.binary())
    # One array over the whole payload, in which every other slot is a gap: the pieces and the bytes
    # between them. Taking every second slot makes one copy, in C. Pieces may be in any order; Arrow
    # only checks that the first bound is not after the last.
    bounds = np.empty(2 * count + 2, np.int32)
    bounds[0], bounds[-1] = 0, len(payload)
    bounds[1:-1:2] = at
    bounds[2:-1:2] = at + np.maximum(length, 0)
    slots = pa.Array.from_buffers(
        pa.binary(), 2 * count + 1, [None, pa.py_buffer(bounds), pa.py_buffer(payload)]
    )
    places = np.arange(1, 2 * count + 1, 2)
    return slots.take(pa.array(places, mask=null if null.any() else None))
