"""Plain Parquet files in folders, exactly once, for every reader of Parquet.

    <root>/<folders>/part-<query>-<epoch>-<number>.parquet
    <root>/<topic>/_common_metadata                  the columns of all files; Spark reads them here
    <root>/_headrace/data/headrace/<query>/<epoch>/  files that are not committed yet
    <root>/_headrace/epochs/<query>/<epoch>.json     the manifest of the newest epoch

Tasks write files whose names readers skip. The driver writes a manifest with the final name of each
file, which decides that the epoch is in the table, and then renames the files. If the driver is
killed between these steps, the replayed epoch finds the manifest, finishes the renames and removes
its own files. A file appears complete, and the files of an epoch appear one after the other.
"""

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from headrace.pipelines.lake import columns, stores
from headrace.pipelines.lake.files import TableFolder, epoch_folder
from headrace.pipelines.lake.folders import NO_FOLDERS, FolderLayout, FolderRule
from headrace.pipelines.lake.open_files import WrittenFile
from headrace.pipelines.lake.options import check_options
from headrace.pipelines.lake.writers import OFFSETS, EpochCommit, EpochTaken
from headrace.pipelines.sink.epoch import Epoch

OURS = "_headrace"
EPOCHS = f"{OURS}/epochs"
COLUMNS = "_common_metadata"
FORMATS = {"parquet": ".parquet", "jsonl": ".json"}
# Not .parquet: some readers look for names at any depth.
STAGED = ".staged"


@dataclass(frozen=True, slots=True)
class ParquetLake:
    """Plain files below a root, with the options of its store."""

    uri: str
    rule: FolderRule = NO_FOLDERS
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    file_rows: int = 0
    format: str = "parquet"

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "ParquetLake":
        """From Spark's options: `path`, `storage.*`, `folders`, `rowsPerFile`, `fileFormat`."""
        known = ("path", "storage.*", "folders", "rowsPerFile", "fileFormat")
        check_options("headrace-parquet", options, known)
        if not options.get("path"):
            raise ValueError(
                "the headrace-parquet sink needs a folder or an address: "
                '.option("path", "/lake/orders") or .start("/lake/orders")'
            )
        storage = {
            name.removeprefix("storage."): value
            for name, value in options.items()
            if name.startswith("storage.")
        }
        file_format = options.get("fileFormat", "parquet")
        if file_format not in FORMATS:
            raise ValueError(f"fileFormat={file_format}: expected one of {', '.join(FORMATS)}")
        rule = FolderRule.from_json(options["folders"]) if options.get("folders") else NO_FOLDERS
        return cls(
            options["path"], rule, storage, int(options.get("rowsPerFile", "0")), file_format
        )

    def prepare(
        self, schema: pa.Schema, partition_by: tuple[str, ...] | None = None
    ) -> FolderLayout:
        wanted = columns.plain(schema)
        rule = self.rule if partition_by is None else FolderRule(fields=partition_by)
        rule.check(wanted, self.uri)
        return FolderLayout(wanted, file_rows=self.file_rows, format=self.format, rule=rule)

    def folder(self) -> TableFolder:
        """The folder of files that are not committed."""
        filesystem, root = stores.opened(self.uri, self.storage)
        return TableFolder(filesystem, _Root(filesystem, root).at(OURS), STAGED)

    def last_epoch(self, query: str) -> int | None:
        return max(_Root.of(self).epochs(query), default=None)

    def append(self, commit: EpochCommit) -> None:
        root = _Root.of(self)
        epoch = commit.epoch
        there = root.epochs(epoch.query)
        if there and max(there) >= epoch.number:
            if epoch.number in there:
                root.finish(epoch)
            raise EpochTaken
        assert isinstance(commit.layout, FolderLayout), "prepare returns this layout"
        if self.format == "parquet":
            for folder in root.tables(commit.files, commit.layout):
                root.agree(folder, commit.layout.file_schema, self.uri)
        root.decide(commit, FORMATS[self.format])
        root.finish(epoch)
        for older in there:
            root.forget(Epoch(epoch.query, older))

    def files_of(self, epoch: Epoch) -> frozenset[str] | None:
        """Committed files have their final names, so that nothing is kept among the others."""
        return frozenset()

    def folders_of(self, epoch: Epoch) -> list[str]:
        """The folders in which the newest epoch has files; none of an older epoch is known."""
        return _Root.of(self).folders(epoch)


@dataclass(frozen=True, slots=True)
class _Root:
    """The root of a table, with the steps of a commit."""

    filesystem: pafs.FileSystem
    path: str

    @classmethod
    def of(cls, lake: ParquetLake) -> "_Root":
        return cls(*stores.opened(lake.uri, lake.storage))

    def at(self, path: str) -> str:
        return "/".join(filter(None, (self.path, path)))

    def epochs(self, query: str) -> list[int]:
        """The epochs with a manifest: the newest, and one more if a driver was killed."""
        selector = pafs.FileSelector(self.at(f"{EPOCHS}/{query}"), allow_not_found=True)
        names = [info.base_name for info in self.filesystem.get_file_info(selector)]
        stems = [name.removesuffix(".json") for name in names if name.endswith(".json")]
        return [int(stem) for stem in stems if stem.isdigit()]

    def tables(self, files: Sequence[WrittenFile], layout: FolderLayout) -> list[str]:
        """The folders that readers open: of the topics, or the root."""
        if not layout.rule.by_topic:
            return [""]
        return sorted({str(file.partition[0]).partition("/")[0] for file in files})

    def agree(self, folder: str, schema: pa.Schema, name: str) -> None:
        """Add new columns to those of a table; ColumnsDiffer if a type changed."""
        path = f"{folder}/{COLUMNS}".lstrip("/")
        stored = self.read(path)
        if stored is None:
            self.write(path, _footer(schema))
            return
        there = columns.plain(pq.read_schema(pa.BufferReader(stored)))
        added = columns.additions(there, schema, f"{name}/{folder}".rstrip("/"))
        if added:
            self.write(path, _footer(pa.schema([*there, *added])))

    def decide(self, commit: EpochCommit, ending: str) -> None:
        """Write the manifest. From here on the epoch is in the table."""
        epoch = commit.epoch
        files = []
        for number, each in enumerate(commit.files):
            name = f"part-{epoch.query}-{epoch.number:09}-{number:05}{ending}"
            final = f"{each.partition[0]}/{name}".lstrip("/")
            files.append({"from": f"{OURS}/{each.path}", "to": final, "rows": each.rows})
        self._sync([self.at(str(each["from"])) for each in files])
        properties = commit.properties()
        offsets = json.loads(properties[OFFSETS])
        manifest = {"query": epoch.query, "epoch": epoch.number, "offsets": offsets, "files": files}
        self.write(_manifest_path(epoch), json.dumps(manifest).encode())

    def finish(self, epoch: Epoch) -> None:
        """Rename the files of a manifest, as far as they are not renamed yet."""
        moves = self._moves(epoch)
        folders = {str(PurePosixPath(new).parent) for _, new in moves}
        if not isinstance(self.filesystem, pafs.S3FileSystem):
            for folder in folders:
                self.filesystem.create_dir(folder, recursive=True)
        for old, new in moves:
            self._move(old, new)
        self._sync(folders)
        staged = self.at(f"{OURS}/{epoch_folder(epoch)}")
        listed = self.filesystem.get_file_info(pafs.FileSelector(staged, allow_not_found=True))
        left = {info.path for info in listed} & {old for old, _ in moves}
        if left:
            raise OSError(
                f"{len(left)} files of epoch {epoch.number} in {staged} could not be renamed; they "
                "are renamed when the epoch is run again"
            )
        with suppress(FileNotFoundError):
            self.filesystem.delete_dir(staged)
        if isinstance(self.filesystem, pafs.PyFileSystem):
            # The client of HDFS deletes only what is in a folder.
            self.filesystem.delete_file(staged)

    def folders(self, epoch: Epoch) -> list[str]:
        if epoch.number not in self.epochs(epoch.query):
            return []
        files = [each["to"] for each in self._manifest(epoch)["files"]]
        return sorted({str(PurePosixPath(path).parent) for path in files})

    def forget(self, epoch: Epoch) -> None:
        """Remove the manifest of an epoch that is followed by another one."""
        with suppress(FileNotFoundError):
            self.filesystem.delete_file(self.at(_manifest_path(epoch)))

    def read(self, path: str) -> bytes | None:
        """The content of a small file; None if there is none."""
        if self.filesystem.get_file_info(self.at(path)).type != pafs.FileType.File:
            return None
        with self.filesystem.open_input_stream(self.at(path)) as file:
            found: bytes = file.read()
        return found

    def write(self, path: str, content: bytes) -> None:
        """Replace a small file, so that it is there as a whole or not at all."""
        final = self.at(path)
        parents = {str(PurePosixPath(final).parent), self.at(OURS)}
        if not isinstance(self.filesystem, pafs.S3FileSystem):
            for parent in parents:
                self.filesystem.create_dir(parent, recursive=True)
        temporary = self.at(f"{OURS}/{uuid.uuid4()}")
        with self.filesystem.open_output_stream(temporary) as file:
            file.write(content)
        self._sync([temporary])
        self.filesystem.move(temporary, final)
        self._sync(parents)

    def _moves(self, epoch: Epoch) -> list[tuple[str, str]]:
        files = self._manifest(epoch)["files"]
        return [(self.at(each["from"]), self.at(each["to"])) for each in files]

    def _manifest(self, epoch: Epoch) -> Any:
        content = self.read(_manifest_path(epoch))
        assert content is not None, "the epoch is decided"
        return json.loads(content)

    def _move(self, old: str, new: str) -> None:
        staged, final = self.filesystem.get_file_info([old, new])
        if staged.type == pafs.FileType.NotFound:
            # It was renamed before, and may have been removed since.
            return
        if final.type == pafs.FileType.NotFound:
            self.filesystem.move(old, new)
        else:
            # S3 renames by copying; the copy is complete.
            self.filesystem.delete_file(old)

    def _sync(self, paths: "Sequence[str] | set[str]") -> None:
        """Have the disk store files and names before the next step; stores do so by themselves."""
        if not isinstance(self.filesystem, pafs.LocalFileSystem):
            return
        for path in paths:
            if os.path.exists(path):
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)


def _manifest_path(epoch: Epoch) -> str:
    return f"{EPOCHS}/{epoch.query}/{epoch.number}.json"


def _footer(schema: pa.Schema) -> bytes:
    """A Parquet file without rows and row groups."""
    sink = pa.BufferOutputStream()
    pq.write_metadata(schema, sink)
    found: bytes = sink.getvalue().to_pybytes()
    return found
