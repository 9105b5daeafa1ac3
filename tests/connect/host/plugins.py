"""Connectors for the tests of the host."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.connect import Option, PermanentError, RecordError, Sink, SinkTask, Source
from headrace.connect.plugin import HEADERS_TYPE, SourceOffset, SourcePartition, SourceStream


class Numbers(Source):
    """Counts upwards in several lanes; fails while a file exists."""

    options = (
        Option("lanes", int, 1, "how many at once"),
        Option("upto", int, 1000, "where to end"),
        Option("fails.while", str, "", "a file; its text is the error"),
        Option("refuses.while", str, "", "a file; its text is the permanent error"),
    )
    lanes: int
    upto: int
    fails_while: str
    refuses_while: str
    schema = "lane int, n bigint"

    def partitions(self) -> list[SourcePartition]:
        return [{"lane": lane} for lane in range(self.lanes)]

    def latest(
        self, partition: SourcePartition, start: SourceOffset | None, limit: int
    ) -> SourceOffset | None:
        if self.fails_while and Path(self.fails_while).exists():
            raise ConnectionError(Path(self.fails_while).read_text())
        if self.refuses_while and Path(self.refuses_while).exists():
            raise PermanentError(Path(self.refuses_while).read_text())
        return {"n": min(self.upto, int((start or {"n": 0})["n"] or 0) + limit)}

    def read(
        self, partition: SourcePartition, start: SourceOffset | None, end: SourceOffset
    ) -> Iterator[Mapping[str, object]]:
        for n in range(int((start or {"n": 0})["n"] or 0), int(end["n"] or 0)):
            yield {"lane": partition["lane"], "n": n}


class Folder(Sink):
    """Writes each task of an epoch to a file of its own, so that a replay replaces it."""

    once = True
    options = (
        Option("folder", str),
        Option("refused", list[str], (), "the numbers that the target refuses"),
        Option("ends.driver.while", str, "", "a file; while it exists, the driver ends"),
    )
    folder: str
    refused: list[str]
    ends_driver_while: str

    def columns(self, topic: str) -> str | None:
        if self.ends_driver_while and Path(self.ends_driver_while).exists():
            os._exit(3)
        return "lane int, n bigint"

    def open(self, task: SinkTask) -> None:
        self._rows: list[Any] = []
        self._path = Path(self.folder) / f"{task.generation}-{task.epoch}-{task.number}"

    def write(self, batch: pa.RecordBatch) -> None:
        rows = batch.to_pylist()
        bad = {
            index: "refused by the folder"
            for index, row in enumerate(rows)
            if str(row["value"]["n"]) in self.refused
        }
        if bad:
            raise RecordError(bad)
        self._rows += rows

    def close(self) -> None:
        lines = [f"{row['value']['lane']} {row['value']['n']}\n" for row in self._rows]
        half = self._path.with_suffix(".half")
        half.write_text("".join(lines))
        half.rename(self._path)

    def abandon(self) -> None:
        self._rows = []


class Traced(Source):
    """Ten lines, each with the trace of its sender in a header."""

    options = (Option("topic", str), Option("traceparent", str))
    topic: str
    traceparent: str

    def streams(self) -> list[SourceStream]:
        schema = f"line string, found {HEADERS_TYPE}"
        return [SourceStream(self.topic, schema, [{}], value="line", headers="found")]

    def latest(
        self, partition: SourcePartition, start: SourceOffset | None, limit: int
    ) -> SourceOffset | None:
        return {"n": 10}

    def read(
        self, partition: SourcePartition, start: SourceOffset | None, end: SourceOffset
    ) -> Iterator[Mapping[str, object]]:
        found = [{"key": "traceparent", "value": self.traceparent.encode()}]
        for n in range(10):
            yield {"line": str(n), "found": found}


class Traces(Sink):
    """Appends the traces of records to a file."""

    options = (Option("file", str),)
    file: str

    def write(self, batch: pa.RecordBatch) -> None:
        with Path(self.file).open("a") as file:
            for headers in batch.column("headers").to_pylist():
                found = {each["key"]: each["value"].decode() for each in headers}
                file.write(f"{found.get('traceparent')}\n")
