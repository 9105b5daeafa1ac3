"""Batches whose records take long to examine: handled beside other requests.

Codecs run in a worker thread; they do not hold the interpreter's lock. The records are walked on
the event loop in slices, because Python code in a thread would make the event loop wait after every
system call. Only a few batches are decompressed at the same time, which bounds the memory.
"""

import asyncio

from headrace.apis.slices import Slices
from headrace.log.timestamps import BatchSearch, TimestampOffset
from headrace.replication.examination import Examination, Examined

_AT_A_TIME = 4


class LongBatches:
    """Works on batches in steps. All requests of a broker share it."""

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._places = asyncio.Semaphore(_AT_A_TIME)

    async def examine(self, examination: Examination) -> Examined:
        """Complete an examination that takes long; KafkaError if the batch is refused."""
        async with self._places:
            await asyncio.to_thread(examination.unpack)
            largest = await self._slices.finish(examination.steps())
            return await asyncio.to_thread(examination.pack, largest)

    async def search(self, search: BatchSearch) -> TimestampOffset | None:
        """Complete a search for a timestamp that takes long."""
        async with self._places:
            await asyncio.to_thread(search.unpack)
            return await self._slices.finish(search.steps())
