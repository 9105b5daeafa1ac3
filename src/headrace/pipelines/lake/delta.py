"""Delta tables through `deltalake`: the sink's table, and its files for a compaction.

An epoch is stored as Delta's application transaction (`txn`: the query's id and the epoch), which
two writers cannot both commit; its offsets are in the `commitInfo` of the same commit.
"""

import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.schema import Schema
from deltalake.transaction import AddAction, RemoveAction

from headrace.pipelines.lake import columns, partitioning
from headrace.pipelines.lake.compaction import (
    CommitRefused,
    Contents,
    FilesGone,
    Replacement,
    StoredFile,
)
from headrace.pipelines.lake.files import TableFolder, named_in
from headrace.pipelines.lake.open_files import WrittenFile
from headrace.pipelines.lake.options import check_options
from headrace.pipelines.lake.partitioning import FileLayout
from headrace.pipelines.lake.writers import COMPACTION, EPOCH, QUERY, EpochCommit, EpochTaken
from headrace.pipelines.sink.epoch import Epoch

COMMIT_ATTEMPTS = 10
# Delta's log encodes other characters in paths; such files are not rewritten.
PLAIN_PATH = re.compile(r"[A-Za-z0-9_./=-]+")


@dataclass(frozen=True, slots=True)
class DeltaLake:
    """A Delta table at an address, with the options of its object store."""

    uri: str
    storage: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "DeltaLake":
        """From Spark's options: `path`, and `storage.*` for the object store."""
        check_options("headrace-delta", options, ("path", "table", "storage.*"))
        path = options.get("path") or options.get("table")
        if not path:
            raise ValueError(
                "the headrace-delta sink needs the table's address: "
                '.option("path", "/lake/orders") or .start("/lake/orders")'
            )
        storage = {
            name.removeprefix("storage."): value
            for name, value in options.items()
            if name.startswith("storage.")
        }
        return cls(path, storage)

    def table(self) -> DeltaTable:
        """The current version of the table; TableNotFoundError if it does not exist."""
        return DeltaTable(self.uri, storage_options=dict(self.storage))

    def schema(self) -> pa.Schema | None:
        try:
            return pa.schema(self.table().schema().to_arrow())
        except TableNotFoundError:
            return None

    def prepare(self, schema: pa.Schema, partition_by: tuple[str, ...] | None = None) -> FileLayout:
        wanted = columns.plain(schema)
        partitioning.check(partition_by or (), wanted, self.uri)
        try:
            table = self.table()
        except TableNotFoundError:
            table = DeltaTable.create(
                self.uri,
                Schema.from_arrow(wanted),
                mode="ignore",
                partition_by=list(partition_by or ()),
                storage_options=dict(self.storage),
            )
        named = tuple(table.metadata().partition_columns)
        named = partitioning.agreed(partition_by, named, wanted, self.uri)
        there = columns.plain(pa.schema(table.schema().to_arrow()))
        added = columns.additions(there, wanted, self.uri)
        if added:
            table.alter.add_columns(Schema.from_arrow(pa.schema(added)).fields)
        return FileLayout(wanted, named, values_in_files=False)

    def folder(self) -> TableFolder:
        place = urlsplit(self.uri)
        if place.scheme in ("", "file"):
            # A killed process leaves a file that `sweep` finds.
            path = unquote(place.path) if place.scheme else self.uri
            return TableFolder(pafs.LocalFileSystem(), str(Path(path).absolute()))
        handler = DeltaStorageHandler(self.uri, dict(self.storage))
        return TableFolder(pafs.PyFileSystem(handler), "")

    def last_epoch(self, query: str) -> int | None:
        return self.table().transaction_version(query)

    def append(self, commit: EpochCommit) -> None:
        epoch = commit.epoch
        for attempt in range(COMMIT_ATTEMPTS):
            table = self.table()
            last = table.transaction_version(epoch.query)
            if last is not None and last >= epoch.number:
                raise EpochTaken
            try:
                self._commit(table, commit)
            except CommitFailedError as error:
                # Delta refuses a second commit of the same transaction; check which one it was.
                failure = error
                time.sleep(random.uniform(0, 0.01 * 2**attempt))
                continue
            return
        raise failure

    def files_of(self, epoch: Epoch) -> frozenset[str] | None:
        wanted = (epoch.query, str(epoch.number))
        for info in self.table().history():
            if (info.get(QUERY), info.get(EPOCH)) == wanted:
                # As of that version: the table may have been rewritten since, and the files are
                # still part of its history.
                then = DeltaTable(self.uri, info["version"], storage_options=dict(self.storage))
                return named_in(then.file_uris(), epoch)
        return None

    def contents(self) -> Contents:
        table = self.table()
        dataset = table.to_pyarrow_dataset()
        layout = FileLayout(
            columns.plain(dataset.schema),
            tuple(table.metadata().partition_columns),
            values_in_files=False,
        )
        fragments = {fragment.path: fragment for fragment in dataset.get_fragments()}

        def reader(path: str) -> Callable[[], Iterator[pa.RecordBatch]]:
            return lambda: fragments[path].to_batches(schema=dataset.schema)

        actions = _actions(table)
        files = tuple(
            StoredFile(
                path,
                action["size_bytes"],
                action["num_records"],
                tuple(action[f"partition.{name}"] for name in layout.partition_by),
                reader(path),
            )
            for path, action in actions.items()
            if PLAIN_PATH.fullmatch(path) and path in fragments
        )
        return Contents(layout, files, len(actions) - len(files))

    def has(self, files: Sequence[WrittenFile]) -> bool:
        there = _actions(self.table())
        return any(file.path in there for file in files)

    def replace(self, layout: FileLayout, replacements: Sequence[Replacement]) -> None:
        table = self.table()
        old = [file for one in replacements for file in one.old]
        gone = {file.path for file in old} - _actions(table).keys()
        if gone:
            raise FilesGone(frozenset(gone))
        now_ms = int(time.time() * 1000)
        added = [
            _action(f, layout, now_ms, new_rows=False) for one in replacements for f in one.new
        ]
        removed = [_removal(file, layout, now_ms) for file in old]
        try:
            table.create_write_transaction(
                [*added, *removed],
                "append",
                table.schema(),
                partition_by=list(layout.partition_by),
                # On this version only: delta-rs does not detect that another commit has removed the
                # same files.
                commit_properties=CommitProperties(
                    custom_metadata={COMPACTION: str(len(removed))}, max_commit_retries=0
                ),
            )
        except CommitFailedError as error:
            raise CommitRefused from error

    def _commit(self, table: DeltaTable, commit: EpochCommit) -> None:
        now_ms = int(time.time() * 1000)
        table.create_write_transaction(
            [_action(file, commit.layout, now_ms) for file in commit.files],
            "overwrite" if commit.overwrite else "append",
            # An append may lack columns of the table; the table's schema does not change.
            table.schema(),
            partition_by=list(commit.layout.partition_by),
            commit_properties=CommitProperties(
                custom_metadata=commit.properties(),
                # An overwrite removes the files that it has read. If a compaction has replaced them
                # meanwhile, the commit must be retried on the new version.
                max_commit_retries=0 if commit.overwrite else None,
                app_transactions=[Transaction(commit.epoch.query, commit.epoch.number, now_ms)],
            ),
        )


def _action(
    file: WrittenFile, layout: FileLayout, now_ms: int, *, new_rows: bool = True
) -> AddAction:
    texts = (partitioning.delta_text(value) for value in file.partition)
    values = dict(zip(layout.partition_by, texts, strict=True))
    return AddAction(file.path, file.size_bytes, values, now_ms, new_rows, file.statistics)


def _removal(file: StoredFile, layout: FileLayout, now_ms: int) -> RemoveAction:
    texts = (partitioning.delta_text(value) for value in file.partition)
    values = dict(zip(layout.partition_by, texts, strict=True))
    return RemoveAction(file.path, False, now_ms, file.size_bytes, values)


def _actions(table: DeltaTable) -> dict[str, dict[str, Any]]:
    """The entries of the log for each file of the table, by its path."""
    rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return {row["path"]: row for row in rows}
