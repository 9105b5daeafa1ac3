"""Sources of files: one file as Kafka's own connector reads it, and a folder of files."""

import fnmatch
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.connect.connectors.json_lines import json_batches
from headrace.connect.plugin import (
    REQUIRED,
    Option,
    OptionError,
    PermanentError,
    Source,
    SourceOffset,
    SourcePartition,
    SourceStream,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.connect.connectors.tailing import TailedFile

FILENAME = "filename"


class FileStreamSource(Source):
    """Reads the lines of a file as it grows, exactly once."""

    aliases = ("org.apache.kafka.connect.file.FileStreamSourceConnector",)
    ignored = ("batch.size",)
    options = (
        Option("file", str, REQUIRED, "The file; it may appear later.", importance="high"),
        Option("topic", str, REQUIRED, "The topic.", importance="high"),
    )

    file: str
    topic: str

    def streams(self) -> Sequence[SourceStream]:
        return [SourceStream(self.topic, "line string", [{FILENAME: self.file}], value="line")]

    def latest(
        self, partition: SourcePartition, start: SourceOffset | None, limit: int
    ) -> SourceOffset | None:
        return _latest(self._tailed(partition), start, limit)

    def read(
        self, partition: SourcePartition, start: SourceOffset | None, end: SourceOffset
    ) -> "Iterator[pa.RecordBatch]":
        for block in _blocks(self._tailed(partition), start, end):
            yield _as_lines(block)

    def _tailed(self, partition: SourcePartition) -> "TailedFile":
        from headrace.connect.connectors.tailing import TailedFile

        return TailedFile(Path(str(partition[FILENAME])))


class Files(Source):
    """Reads the files of a folder, exactly once: lines, CSV or JSON lines.

    With `when.done=keep`, files may grow. Otherwise they must be complete when they appear in the
    folder, which means that they are written elsewhere and renamed.
    """

    options = (
        Option("folder", str, REQUIRED, "The folder with the files.", importance="high"),
        Option("topic", str, REQUIRED, "The topic.", importance="high"),
        Option("pattern", str, "*", "Which names are read, such as *.csv.", importance="high"),
        Option(
            "format",
            str,
            "lines",
            "What the files contain.",
            choices=("lines", "csv", "jsonl"),
            importance="high",
        ),
        Option(
            "schema",
            str,
            "",
            "The columns as DDL, such as `id bigint, name string`; required for csv and jsonl.",
            importance="high",
        ),
        Option("key", list[str], [], "The columns that are the record's key."),
        Option("csv.header", bool, True, "Whether the first line of a file has the names."),
        Option("csv.delimiter", str, ",", "The character between two values."),
        Option(
            "when.done",
            str,
            "keep",
            "What happens to a file when its records are in the topic.",
            choices=("keep", "move", "delete"),
        ),
        Option("done.folder", str, "", "Where when.done=move moves files."),
    )

    folder: str
    topic: str
    pattern: str
    format: str
    key: Sequence[str]
    csv_header: bool
    csv_delimiter: str
    when_done: str
    done_folder: str

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        if self.format != "lines" and not self.schema:
            raise OptionError("schema", f"Set schema: format={self.format} needs the columns.")
        if self.when_done == "move" and not self.done_folder:
            raise OptionError("done.folder", "Set done.folder: when.done=move needs it.")
        if len(self.csv_delimiter) != 1:
            raise OptionError("csv.delimiter", "Expected a single character.")

    def check(self) -> None:
        from headrace.connect.connectors.ddl import DdlError

        for option, folder in (("folder", self.folder), ("done.folder", self.done_folder)):
            if folder and not Path(folder).is_dir():
                raise OptionError(option, f"{folder} is not a folder.")
        try:
            names = self._arrow_schema().names
        except DdlError as error:
            raise OptionError("schema", str(error)) from None
        if missing := set(self.key) - set(names):
            raise OptionError("key", f"The schema has no column {', '.join(sorted(missing))}.")

    def streams(self) -> Sequence[SourceStream]:
        from headrace.connect.connectors.ddl import ddl

        scalar = "line" if self.format == "lines" else ""
        schema = ddl(self._arrow_schema())
        return [SourceStream(self.topic, schema, self.partitions(), self.key, scalar)]

    def partitions(self) -> Sequence[SourcePartition]:
        folder = Path(self.folder)
        if not folder.is_dir():
            raise PermanentError(f"{folder} is not a folder; create it or change `folder`")
        return [
            {FILENAME: str(path)}
            for path in sorted(folder.iterdir())
            if fnmatch.fnmatch(path.name, self.pattern)
            and not path.name.startswith(".")
            and path.is_file()
        ]

    def latest(
        self, partition: SourcePartition, start: SourceOffset | None, limit: int
    ) -> SourceOffset | None:
        return _latest(self._tailed(partition), start, limit)

    def read(
        self, partition: SourcePartition, start: SourceOffset | None, end: SourceOffset
    ) -> "Iterator[pa.RecordBatch]":
        is_first = start is None or bool(end.get("restarted"))
        for block in _blocks(self._tailed(partition), start, end):
            try:
                yield from self._parsed(block, is_first)
            except (ValueError, TypeError) as error:  # Arrow's errors are of these kinds
                raise PermanentError(
                    f"{partition[FILENAME]} does not have the columns of the option schema: {error}"
                ) from error
            is_first = False

    def commit(self, partition: SourcePartition, end: SourceOffset) -> None:
        from headrace.connect.connectors.tailing import FilePosition

        reached = FilePosition.of(end)
        if self.when_done == "keep" or reached is None:
            return
        tailed = self._tailed(partition)
        if not tailed.is_done(reached):
            return
        if self.when_done == "delete":
            tailed.path.unlink(missing_ok=True)
        else:
            shutil.move(tailed.path, Path(self.done_folder) / tailed.path.name)

    def _tailed(self, partition: SourcePartition) -> "TailedFile":
        from headrace.connect.connectors.tailing import TailedFile

        path = Path(str(partition[FILENAME]))
        return TailedFile(path, self.when_done != "keep", self.format == "csv")

    def _arrow_schema(self) -> "pa.Schema":
        from headrace.connect.connectors.ddl import arrow_schema

        return arrow_schema("line string" if self.format == "lines" else self.schema)

    def _parsed(self, block: bytes, is_first: bool) -> "Iterator[pa.RecordBatch]":
        if self.format == "lines":
            yield _as_lines(block)
        elif self.format == "csv":
            yield from self._csv(block, is_first and self.csv_header)
        else:
            yield from json_batches(block, self._arrow_schema())

    def _csv(self, block: bytes, has_header: bool) -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa
        from pyarrow import csv

        schema = self._arrow_schema()
        reading = csv.ReadOptions(column_names=schema.names, skip_rows=int(has_header))
        parsing = csv.ParseOptions(delimiter=self.csv_delimiter, newlines_in_values=True)
        converting = csv.ConvertOptions(
            column_types=schema, strings_can_be_null=True, quoted_strings_can_be_null=False
        )
        try:
            table = csv.read_csv(pa.BufferReader(block), reading, parsing, converting)
        except pa.ArrowInvalid as error:
            if has_header and "Empty CSV" in str(error):
                return
            raise
        yield from table.to_batches()


def _latest(tailed: "TailedFile", start: SourceOffset | None, limit: int) -> SourceOffset | None:
    from headrace.connect.connectors.tailing import FilePosition

    before = FilePosition.of(start)
    end = tailed.next_end(before, limit)
    return start if end is None or end == before else end.offset


def _blocks(tailed: "TailedFile", start: SourceOffset | None, end: SourceOffset) -> Iterator[bytes]:
    from headrace.connect.connectors.tailing import FilePosition

    reached = FilePosition.of(end)
    assert reached is not None, "a range has an end"
    return tailed.blocks(FilePosition.of(start), reached)


def _as_lines(block: bytes) -> "pa.RecordBatch":
    import pyarrow as pa

    from headrace.connect.connectors.tailing import lines

    return pa.RecordBatch.from_arrays([lines(block)], ["line"])
