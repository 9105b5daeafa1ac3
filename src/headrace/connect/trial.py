"""Tries a connector without Spark as the host uses it, and checks the plug-in's promises.

For `headrace connect dev`, and for the tests of connectors of one's own.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.connect.plugin import (
    HEADERS_TYPE,
    PushSource,
    RecordError,
    Sink,
    SinkTask,
    Source,
    SourceOffset,
    SourcePartition,
    SourceStream,
)

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 1000
MESSAGES_WITHIN_S = 10.0
"""How long the trial of a push source waits for a message."""


class BrokenPromise(AssertionError):
    """A connector does not do what the interface asks for; the message says what."""


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


@dataclass(frozen=True, slots=True)
class TriedEpoch:
    """One epoch that a sink has written."""

    task: SinkTask
    records: int
    refused: Mapping[int, str]
    """By the place of the record in the epoch: why the sink refuses it."""


def try_sink(
    sink: Sink,
    values: Sequence[Mapping[str, Any]],
    schema: str = "",
    *,
    topic: str = "trial",
    epochs: int = 1,
    stored: Callable[[], object] | None = None,
) -> list[TriedEpoch]:
    """Let a sink write the values in epochs; BrokenPromise if something is wrong.

    `schema` is their type as DDL, if the sink's `columns` does not tell it. Records that the sink
    refuses are left out, and the others are written again, as the host does. A sink with `once`
    writes every epoch twice; `stored` returns what the target has, which must then be the same.
    """
    schema = schema or sink.columns(topic) or ""
    if not schema:
        raise BrokenPromise(
            f"{type(sink).__name__}.columns does not tell the type of values: pass a schema"
        )
    size = max(1, -(-len(values) // epochs))
    found = []
    for epoch, first in enumerate(range(0, len(values), size)):
        batch = _records(values[first : first + size], schema, topic, first)
        task = SinkTask("trial", 0, epoch, 0)
        refused = _write(sink, task, batch)
        before = stored() if stored is not None else None
        if sink.once:
            _write(sink, task, batch)
            if stored is not None and (after := stored()) != before:
                raise BrokenPromise(
                    f"{type(sink).__name__} promises `once`, but an epoch that is written again "
                    f"changes the target: {before!r} became {after!r}"
                )
        found.append(TriedEpoch(task, batch.num_rows, refused))
    return found


def _records(
    values: Sequence[Mapping[str, Any]], schema: str, topic: str, first: int
) -> "pa.RecordBatch":
    """A batch with the columns that the host has."""
    import pyarrow as pa

    from headrace.connect.connectors.ddl import arrow_schema

    kind = pa.struct(list(arrow_schema(schema)))
    headers = arrow_schema(f"headers {HEADERS_TYPE}").field(0).type
    count = len(values)
    now_us = time.time_ns() // 1000
    columns = {
        "topic": pa.array([topic] * count, pa.string()),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(first, first + count), pa.int64()),
        "timestamp": pa.array([now_us] * count, pa.timestamp("us", "UTC")),
        "key": pa.nulls(count, pa.string()),
        "value": pa.array(values, kind),
        "headers": pa.nulls(count, headers),
    }
    return pa.RecordBatch.from_pydict(columns)


def _write(sink: Sink, task: SinkTask, batch: "pa.RecordBatch") -> dict[int, str]:
    """Write an epoch; the records that the sink refuses, and why."""
    import pyarrow as pa

    sink.open(task)
    refused: dict[int, str] = {}
    left = list(range(batch.num_rows))
    try:
        while left:
            try:
                sink.write(batch.take(pa.array(left)))
            except RecordError as error:
                wrong = [row for row in error.rows if not 0 <= row < len(left)]
                if wrong or not error.rows:
                    raise BrokenPromise(
                        f"{type(sink).__name__}.write refuses the rows {sorted(error.rows)} of a "
                        f"batch with {len(left)}"
                    ) from error
                refused |= {left[row]: why for row, why in error.rows.items()}
                left = [row for row in left if row not in refused]
            else:
                break
        sink.close()
    except BaseException:
        sink.abandon()
        raise
    return refused


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
