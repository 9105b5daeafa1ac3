"""Work that can be interrupted: a generator that yields between two steps and returns its result.

Decoding, handling and encoding of large messages are written in this form. `apis/slices.py` runs
such work in slices; `finish` runs it at once.
"""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

Result = TypeVar("Result")

Steps: TypeAlias = Generator[None, None, Result]


def finish(steps: Steps[Result]) -> Result:
    """Run the work to its end without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
