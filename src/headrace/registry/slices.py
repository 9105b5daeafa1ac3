"""Long lists in the event loop: after every slice other requests have their turn."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

from headrace.registry import limits

T = TypeVar("T")


async def in_slices(entries: Sequence[T]) -> AsyncIterator[Sequence[T]]:
    """The entries, some at a time. They must not change meanwhile: give a copy."""
    for start in range(0, len(entries), limits.SLICE):
        if start:
            await asyncio.sleep(0)
        yield entries[start : start + limits.SLICE]
