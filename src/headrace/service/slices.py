"""Iterates over long lists in slices, so that the event loop can run other requests in between."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

T = TypeVar("T")

SLICE = 1_000
"""Entries that are processed before the event loop runs other requests."""


async def in_slices(entries: Sequence[T]) -> AsyncIterator[Sequence[T]]:
    """The entries in slices. The list must not change during the iteration."""
    for start in range(0, len(entries), SLICE):
        if start:
            await asyncio.sleep(0)
        yield entries[start : start + SLICE]
