"""Tries a source without Spark: reads ranges as the host does, and checks the plug-in's promises.

For `headrace connect dev`, and for the tests of connectors of one's own.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.connect.plugin import (
    PushSource,
    Source,
    SourceOffset,
    SourcePartition,
    SourceStream,
)

ROWS = 1000
MESSAGES_WITHIN_S = 10.0
"""How long the trial of a push source waits for a message."""


class BrokenPromise(AssertionError):
    """A source does not do what the interface asks for; the message says what."""


@dataclass(frozen=True, slots=True)
class TriedRange:
    """One range of a partition, with its rows."""

    topic: str
    partition: SourcePartition
    start: SourceOffset | None
    end: SourceOffset
    rows: list[Mapping[str, Any]]


def try_source(source: Source, epochs: int = 1, rows: int = ROWS) -> Iterator[TriedRange]:
    """The next ranges of all partitions, `epochs` times; BrokenPromise if something is wrong.

    Checked: `latest` returns an offset, and the same one if nothing is new; `read` returns rows of
    the schema, and the same rows for the same range. Messages of a push source are read and not
    acknowledged.
    """
    if not isinstance(source, PushSource):
        yield from _try(source, epochs, rows)
        return
    from headrace.connect.push.spooled_source import SpooledSource

    with tempfile.TemporaryDirectory() as folder:
        receiving = SpooledSource(source, Path(folder))
        try:
            yield from _try(receiving, epochs, rows, MESSAGES_WITHIN_S)
        finally:
            receiving.close()


def _try(source: Source, epochs: int, rows: int, patience_s: float = 0.0) -> Iterator[TriedRange]:
    reached: dict[str, SourceOffset | None] = {}
    for _ in range(epochs):
        for stream in source.streams():
            for partition in stream.partitions:
                key = str(sorted(partition.items()))
                start = reached.get(key)
                end = _next_end(source, partition, start, rows, patience_s)
                if end is None or end == start:
                    continue
                reached[key] = end
                yield TriedRange(
                    stream.topic,
                    partition,
                    start,
                    end,
                    _rows(source, stream, partition, start, end),
                )


def _next_end(
    source: Source,
    partition: SourcePartition,
    start: SourceOffset | None,
    rows: int,
    patience_s: float,
) -> SourceOffset | None:
    """The end of the next range, which is waited for as long as nothing is new."""
    deadline = time.monotonic() + patience_s
    while (end := source.latest(partition, start, rows)) == start and time.monotonic() < deadline:
        time.sleep(0.05)
    return end


def _rows(
    source: Source,
    stream: SourceStream,
    partition: SourcePartition,
    start: SourceOffset | None,
    end: SourceOffset,
) -> list[Mapping[str, Any]]:
    first, second = (_read(source, stream, partition, start, end) for _ in range(2))
    if first != second:
        raise BrokenPromise(
            f"{type(source).__name__}.read returned other rows when the range from {start} to "
            f"{end} of {dict(partition)} was read again; exactly-once needs the same rows"
        )
    return first


def _read(
    source: Source,
    stream: SourceStream,
    partition: SourcePartition,
    start: SourceOffset | None,
    end: SourceOffset,
) -> list[Mapping[str, Any]]:
    import pyarrow as pa

    from headrace.connect.connectors.ddl import arrow_schema

    schema = arrow_schema(stream.schema)
    found: list[Mapping[str, Any]] = []
    for each in source.read(partition, start, end):
        rows = each.to_pylist() if isinstance(each, pa.RecordBatch) else [each]
        try:
            found += pa.Table.from_pylist(rows, schema=schema).to_pylist()
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise BrokenPromise(
                f"{type(source).__name__}.read returned a row that does not fit the schema "
                f"{stream.schema!r}: {error}"
            ) from error
    return found
