"""Work that can be interrupted: a generator that yields between two steps and returns its result.

Decoding, handling and encoding of large messages are written in this form. `apis/slices.py` runs
such work in slices; `finish` runs it at once.
"""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

AT_ONCE_RECORDS = 1000
AT_ONCE_BYTES = 256 * 1024
"""The records of a batch are checked without a pause up to this number, and up to this decompressed
size."""

Result = TypeVar("Result")

Steps: TypeAlias = Generator[None, None, Result]


def finish(steps: Steps[Result]) -> Result:
    """Run the work without pauses; its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
