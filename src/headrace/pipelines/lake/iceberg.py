"""Iceberg tables through `pyiceberg`: the sink's table, and its files for a compaction.

The epoch of each query is a table property, set in the metadata swap that adds the files, and the
offsets are in the snapshot's summary. Catalogs are PyIceberg's: a catalog of its configuration file
by name, any catalog by `catalog.*` options, or a folder with a SQLite catalog in it.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import (
    ArrowScan,
    PyArrowFileIO,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import partition_record_value
from pyiceberg.table import FileScanTask, Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

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
EPOCH_PROPERTY = "headrace.epoch."
NO_RETRY = {"commit.retry.num-retries": "0"}


@dataclass(frozen=True, slots=True)
class IcebergLake:
    """An Iceberg table with its identifier and its catalog."""

    identifier: str
    catalog: str = "default"
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "IcebergLake":
        """From Spark's options: `table`, and `warehouse`, `catalog` or `catalog.*`."""
        known = ("table", "path", "warehouse", "catalog", "catalog.*")
        check_options("headrace-iceberg", options, known)
        identifier = options.get("table") or options.get("path")
        if not identifier or "." not in identifier:
            raise ValueError(
                "the headrace-iceberg sink needs a table as namespace.name: "
                f'.option("table", "lake.orders"), not {identifier!r}'
            )
        named = {
            name.removeprefix("catalog."): value
            for name, value in options.items()
            if name.startswith("catalog.")
        }
        warehouse = options.get("warehouse")
        if warehouse and not named:
            return in_warehouse(warehouse, identifier)
        if warehouse:
            named["warehouse"] = warehouse
        return cls(identifier, options.get("catalog") or "default", named)

    def load_catalog(self) -> Catalog:
        properties = {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO", **self.properties}
        return load_catalog(self.catalog, **properties)

    def table(self) -> Table:
        """The current version of the table; NoSuchTableError if it does not exist."""
        return self.load_catalog().load_table(self.identifier)

    def schema(self) -> pa.Schema | None:
        try:
            return self.table().schema().as_arrow()
        except NoSuchTableError:
            return None

    def prepare(self, schema: pa.Schema, partition_by: tuple[str, ...] | None = None) -> FileLayout:
        wanted = columns.plain(schema, widen=True)
        partitioning.check(partition_by or (), wanted, self.identifier)
        catalog = self.load_catalog()
        try:
            table = catalog.load_table(self.identifier)
        except NoSuchTableError:
            table = self._create(catalog, wanted, partition_by or ())
        named = _partition_columns(table, self.identifier)
        named = partitioning.agreed(partition_by, named, wanted, self.identifier)
        there = columns.plain(table.schema().as_arrow(), widen=True)
        if columns.additions(there, wanted, self.identifier):
            with table.update_schema() as update:
                update.union_by_name(wanted)
        return FileLayout(wanted, named)

    def folder(self) -> TableFolder:
        table = self.table()
        io = table.io
        assert isinstance(io, PyArrowFileIO), "load_catalog selects PyArrow's files"
        scheme, netloc, path = io.parse_location(table.location())
        return TableFolder(io.fs_by_scheme(scheme, netloc), path)

    def last_epoch(self, query: str) -> int | None:
        return _last_epoch(self.table(), query)

    def append(self, commit: EpochCommit) -> None:
        epoch = commit.epoch
        for attempt in range(COMMIT_ATTEMPTS):
            table = self.table()
            last = _last_epoch(table, epoch.query)
            if last is not None and last >= epoch.number:
                raise EpochTaken
            # PyIceberg would retry a refused commit on top of the newer version, which may contain
            # this epoch.
            _do_not_retry(table)
            try:
                self._commit(table, commit)
            except (CommitFailedException, FileNotFoundError) as error:
                # A file is missing if the other driver of this epoch has committed and swept.
                failure: Exception = error
                time.sleep(random.uniform(0, 0.05 * 2**attempt))
                continue
            return
        raise failure

    def files_of(self, epoch: Epoch) -> frozenset[str] | None:
        table = self.table()
        for snapshot in reversed(table.metadata.snapshots):
            said = snapshot.summary.additional_properties if snapshot.summary else {}
            if (said.get(QUERY), said.get(EPOCH)) == (epoch.query, str(epoch.number)):
                then = table.scan(snapshot_id=snapshot.snapshot_id)
                return named_in((task.file.file_path for task in then.plan_files()), epoch)
        return None

    def contents(self) -> Contents:
        table = self.table()
        named = _partition_columns(table, self.identifier)
        layout = FileLayout(columns.plain(table.schema().as_arrow(), widen=True), named)
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())

        def reader(task: FileScanTask) -> Callable[[], Iterator[pa.RecordBatch]]:
            return lambda: scan.to_record_batches([task])

        tasks = list(table.scan().plan_files())
        files = tuple(
            StoredFile(
                task.file.file_path,
                task.file.file_size_in_bytes,
                task.file.record_count,
                tuple(task.file.partition[place] for place in range(len(named))),
                reader(task),
            )
            for task in tasks
            if _rewritable(task, table.metadata)
        )
        return Contents(layout, files, len(tasks) - len(files))

    def has(self, files: Sequence[WrittenFile]) -> bool:
        table = self.table()
        there = {task.file.file_path for task in table.scan().plan_files()}
        return any(f"{table.location()}/{file.path}" in there for file in files)

    def replace(self, layout: FileLayout, replacements: Sequence[Replacement]) -> None:
        table = self.table()
        _do_not_retry(table)
        current = {
            task.file.file_path: task.file
            for task in table.scan().plan_files()
            if _rewritable(task, table.metadata)
        }
        old = [file.path for one in replacements for file in one.old]
        if gone := set(old) - current.keys():
            raise FilesGone(frozenset(gone))
        summary = {COMPACTION: str(len(old))}
        try:
            with table.transaction() as change:
                _name_columns(change)
                with change.update_snapshot(snapshot_properties=summary).overwrite() as swap:
                    for path in old:
                        swap.delete_data_file(current[path])
                    for file in (file for one in replacements for file in one.new):
                        swap.append_data_file(_data_file(table, change.table_metadata, file))
        except (CommitFailedException, ValidationException) as error:
            raise CommitRefused from error

    def _create(self, catalog: Catalog, schema: pa.Schema, partition_by: tuple[str, ...]) -> Table:
        catalog.create_namespace_if_not_exists(self.identifier.rpartition(".")[0])
        try:
            with catalog.create_table_transaction(self.identifier, schema) as creation:
                if partition_by:
                    with creation.update_spec() as spec:
                        for name in partition_by:
                            spec.add_identity(name)
        except (TableAlreadyExistsError, CommitFailedException):
            # Another query has created it meanwhile.
            pass
        return catalog.load_table(self.identifier)

    def _commit(self, table: Table, commit: EpochCommit) -> None:
        summary = commit.properties()
        with table.transaction() as change:
            if commit.overwrite:
                change.delete(AlwaysTrue(), snapshot_properties=summary)
            if commit.files:
                _name_columns(change)
                with change.update_snapshot(snapshot_properties=summary).fast_append() as append:
                    for file in commit.files:
                        append.append_data_file(_data_file(table, change.table_metadata, file))
            name = EPOCH_PROPERTY + commit.epoch.query
            change.set_properties({name: str(commit.epoch.number)})


def in_warehouse(folder: str, identifier: str) -> IcebergLake:
    """A table in a local folder with a SQLite catalog, `catalog.db`."""
    path = Path(urlsplit(folder).path if folder.startswith("file:") else folder).absolute()
    path.mkdir(parents=True, exist_ok=True)
    return IcebergLake(
        identifier,
        "headrace",
        {"type": "sql", "uri": f"sqlite:///{path}/catalog.db", "warehouse": f"file://{path}"},
    )


def _last_epoch(table: Table, query: str) -> int | None:
    found = table.properties.get(EPOCH_PROPERTY + query)
    return None if found is None else int(found)


def _partition_columns(table: Table, name: str) -> tuple[str, ...]:
    """The columns whose values partition the table; ColumnsDiffer if it has other partitions."""
    found = []
    for each in table.spec().fields:
        column = table.schema().find_column_name(each.source_id) or str(each.source_id)
        if not isinstance(each.transform, IdentityTransform):
            raise columns.ColumnsDiffer(
                f"the table {name} is partitioned by {each.transform}({column}); the sink supports "
                "partitions by the value of a column only (transform identity): write to another "
                "table"
            )
        found.append(column)
    return tuple(found)


def _do_not_retry(table: Table) -> None:
    """Disable retries of refused commits, in the copy in memory only."""
    table.metadata = table.metadata.model_copy(
        update={"properties": {**table.metadata.properties, **NO_RETRY}}
    )


def _rewritable(task: FileScanTask, metadata: TableMetadata) -> bool:
    """Whether a file has only rows of the table's present partitioning."""
    file = task.file
    return (
        not task.delete_files
        and file.spec_id == metadata.default_spec_id
        and file.file_format == FileFormat.PARQUET
    )


def _name_columns(change: Transaction) -> None:
    """Map columns by name, because files are written without Iceberg's field ids."""
    if change.table_metadata.name_mapping() is None:
        mapping = change.table_metadata.schema().name_mapping.model_dump_json()
        change.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})


def _data_file(table: Table, metadata: TableMetadata, file: WrittenFile) -> DataFile:
    """A file with the metrics of its columns, from its footer, and the partition it belongs to.

    PyIceberg would infer the partition from the metrics, which long strings do not have.
    """
    path = f"{table.location()}/{file.path}"
    schema = metadata.schema()
    with table.io.new_input(path).open() as opened:
        footer = pq.read_metadata(opened)
    statistics = data_file_statistics_from_parquet_metadata(
        footer,
        compute_statistics_plan(schema, metadata.properties),
        parquet_path_to_id_mapping(schema),
    )
    fields = metadata.spec().fields
    values = [
        partition_record_value(field, value, schema)
        for field, value in zip(fields, file.partition, strict=True)
    ]
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        file_size_in_bytes=file.size_bytes,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
