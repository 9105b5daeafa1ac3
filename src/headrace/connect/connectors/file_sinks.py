"""Sinks into files: one file as Kafka's own connector writes it, and a folder of files."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from headrace.connect.plugin import (
    REQUIRED,
    Option,
    OptionError,
    RecordError,
    Sink,
    SinkTask,
)

if TYPE_CHECKING:
    import pyarrow as pa


class FileStreamSink(Sink):
    """Appends the values to a file, one line each, at least once."""

    aliases = ("org.apache.kafka.connect.file.FileStreamSinkConnector",)
    options = (Option("file", str, REQUIRED, "The file; it is created.", importance="high"),)

    file: str

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        self._file: BinaryIO | None = None

    def check(self) -> None:
        if not Path(self.file).absolute().parent.is_dir():
            raise OptionError("file", f"{Path(self.file).absolute().parent} is not a folder.")

    def open(self, task: SinkTask) -> None:
        self._file = Path(self.file).open("ab", buffering=0)  # noqa: SIM115 - until close

    def write(self, batch: "pa.RecordBatch") -> None:
        assert self._file is not None, "a sink is open when it writes"
        # One call if the system takes it whole, so that lines of several tasks do not mix.
        rest = memoryview(_text_lines(batch.column("value")))
        while rest:
            rest = rest[self._file.write(rest) :]

    def close(self) -> None:
        if self._file is not None:
            os.fsync(self._file.fileno())
        self.abandon()

    def abandon(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class FilesSink(Sink):
    """Writes files into a folder, exactly once: lines, CSV or JSON lines.

    Each task writes one file per epoch and topic, which appears complete under a name with the
    epoch and the task. A task that runs again replaces it.
    """

    once = True
    options = (
        Option(
            "folder", str, REQUIRED, "The folder; a topic has a folder in it.", importance="high"
        ),
        Option(
            "format",
            str,
            "lines",
            "What the files contain.",
            choices=("lines", "csv", "jsonl"),
            importance="high",
        ),
        Option("csv.header", bool, True, "Whether the first line of a file has the names."),
    )

    folder: str
    format: str
    csv_header: bool

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        self._task: SinkTask | None = None
        self._files: dict[str, tuple[BinaryIO, Path, Path]] = {}
        """By topic: the file, its name until the task ends, and its name then."""

    def check(self) -> None:
        if not Path(self.folder).is_dir():
            raise OptionError("folder", f"{self.folder} is not a folder.")

    def open(self, task: SinkTask) -> None:
        self._task = task

    def write(self, batch: "pa.RecordBatch") -> None:
        import pyarrow.compute as pc

        if self.format == "csv":
            _check_columns(batch.column("value"))
        for topic in pc.unique(batch.column("topic")):
            values = batch.filter(pc.equal(batch.column("topic"), topic)).column("value")
            file, is_new = self._opened(topic.as_py())
            file.write(self._encoded(values, is_new))

    def close(self) -> None:
        for file, temporary, final in self._files.values():
            file.flush()
            os.fsync(file.fileno())
            file.close()
            temporary.replace(final)
        for folder in {final.parent for _, _, final in self._files.values()}:
            _sync_folder(folder)
        self._files = {}

    def abandon(self) -> None:
        for file, temporary, _ in self._files.values():
            file.close()
            temporary.unlink(missing_ok=True)
        self._files = {}

    def _opened(self, topic: str) -> tuple[BinaryIO, bool]:
        if topic in self._files:
            return self._files[topic][0], False
        task = self._task
        assert task is not None, "a sink is open when it writes"
        folder = Path(self.folder) / re.sub(r"[^\w.-]", "_", topic)
        folder.mkdir(parents=True, exist_ok=True)
        ending = {"lines": "txt"}.get(self.format, self.format)
        place = f"{task.generation}-{task.epoch:09}-{task.number:05}"
        name = f"{task.connector}-{place}{f'-{task.part}' if task.part else ''}.{ending}"
        temporary = folder / f".{name}.{os.getpid()}"
        file = temporary.open("wb")
        self._files[topic] = file, temporary, folder / name
        return file, True

    def _encoded(self, values: "pa.Array", is_new: bool) -> bytes:
        if self.format == "csv":
            return _csv_lines(values, is_new and self.csv_header)
        return _text_lines(values, as_json=self.format == "jsonl")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _text_lines(values: "pa.Array", as_json: bool = False) -> bytes:
    """A line for each value: strings as they are, everything else as JSON."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if len(values) == 0:
        return b""
    if pa.types.is_binary(values.type) and not as_json:
        texts = values.fill_null(b"null")
    elif pa.types.is_string(values.type) and not as_json:
        texts = values.fill_null("null").cast(pa.binary())
    else:
        found = [json.dumps(value, default=str) for value in values.to_pylist()]
        texts = pa.array(found, pa.string()).cast(pa.binary())
    lists = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    joined: bytes = pc.binary_join(lists, b"\n")[0].as_py()
    return joined + b"\n"


def _check_columns(values: "pa.Array") -> None:
    import pyarrow as pa

    if not pa.types.is_struct(values.type):
        raise RecordError(
            dict.fromkeys(range(len(values)), "CSV needs a value with fields, not a scalar")
        )
    if values.null_count:
        rows = [row for row, is_null in enumerate(values.is_null().to_pylist()) if is_null]
        raise RecordError(dict.fromkeys(rows, "a tombstone has no columns for CSV"))


def _csv_lines(values: "pa.Array", with_header: bool) -> bytes:
    import pyarrow as pa
    from pyarrow import csv

    columns = [
        _as_json(column) if pa.types.is_nested(column.type) else column
        for column in values.flatten()
    ]
    table = pa.Table.from_arrays(columns, [field.name for field in values.type])
    written = pa.BufferOutputStream()
    csv.write_csv(table, written, csv.WriteOptions(include_header=with_header))
    found: bytes = written.getvalue().to_pybytes()
    return found


def _as_json(column: "pa.Array") -> "pa.Array":
    import pyarrow as pa

    texts = [
        None if value is None else json.dumps(value, default=str) for value in column.to_pylist()
    ]
    return pa.array(texts, pa.string())
