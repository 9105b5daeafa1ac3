"""Reads a push source through its spool, in place of Spark."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headrace.connect.plugin import PushSource
from headrace.connect.push.spooled_source import SpooledSource

WITHIN_S = 60.0
MANY = 100_000


class SpoolReader:
    """The reader of a query on the driver."""

    def __init__(self, source: PushSource, folder: Path) -> None:
        self.source = SpooledSource(source, folder)
        ((self.partition,),) = [stream.partitions for stream in self.source.streams()]
        self.reached: Any = None

    def rows(self, count: int) -> list[dict[str, Any]]:
        """The next rows, when there are at least as many."""
        found: list[dict[str, Any]] = []
        begin = time.monotonic()
        while len(found) < count:
            end = self.source.latest(self.partition, self.reached, MANY)
            assert time.monotonic() - begin < WITHIN_S, found
            if end is None or end == self.reached:
                time.sleep(0.01)
                continue
            for batch in self.source.read(self.partition, self.reached, end):
                found += batch.to_pylist()
            self.reached = end
        return found

    def commit(self) -> None:
        """What was read is in the topic."""
        self.source.commit(self.partition, self.reached)

    def wait_for(self, is_enough: Callable[[], bool]) -> None:
        """As a query does that finds nothing new."""
        begin = time.monotonic()
        while not is_enough():
            self.source.latest(self.partition, self.reached, MANY)
            assert time.monotonic() - begin < WITHIN_S
            time.sleep(0.01)


@contextlib.contextmanager
def reading(source: PushSource, folder: Path) -> Iterator[SpoolReader]:
    """A reader that is closed at the end, like the process of a query."""
    made = SpoolReader(source, folder)
    try:
        yield made
    finally:
        made.source.close()
