"""Iceberg tables through `pyiceberg`: the sink's table.

The epoch of each query is a table property, set in the same metadata swap that adds the files, and
the offsets are in the snapshot's summary. Catalogs are PyIceberg's own: a catalog of its
configuration file by name, any by `catalog.*` options, or a folder with a SQLite catalog in it.
"""

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from headrace.pipelines.epoch import Epoch
from headrace.pipelines.lake import columns
from headrace.pipelines.lake.files import TableFolder, named_in
from headrace.pipelines.lake.writers import EPOCH, QUERY, EpochCommit, EpochTaken

COMMIT_ATTEMPTS = 10
EPOCH_PROPERTY = "headrace.epoch."
NO_RETRY = {"commit.retry.num-retries": "0"}


@dataclass(frozen=True, slots=True)
class IcebergLake:
    """An Iceberg table by its identifier, and the catalog that knows it."""

    identifier: str
    catalog: str = "default"
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "IcebergLake":
        """By Spark's options: `table`, and `warehouse`, `catalog` or `catalog.*`."""
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
        """The table as it is now; NoSuchTableError if there is none."""
        return self.load_catalog().load_table(self.identifier)

    def prepare(self, schema: pa.Schema) -> pa.Schema:
        wanted = columns.plain(schema, widen=True)
        catalog = self.load_catalog()
        try:
            table = catalog.load_table(self.identifier)
        except NoSuchTableError:
            catalog.create_namespace_if_not_exists(self.identifier.rpartition(".")[0])
            table = catalog.create_table_if_not_exists(self.identifier, wanted)
        if not table.spec().is_unpartitioned():
            raise columns.ColumnsDiffer(
                f"the table {self.identifier} is partitioned; the sink writes unpartitioned tables "
                "only: choose another table"
            )
        there = columns.plain(table.schema().as_arrow(), widen=True)
        if columns.additions(there, wanted, self.identifier):
            with table.update_schema() as update:
                update.union_by_name(wanted)
        return wanted

    def folder(self) -> TableFolder:
        table = self.table()
        io = table.io
        assert isinstance(io, PyArrowFileIO), "load_catalog asks for PyArrow's files"
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
            # PyIceberg would repeat a refused commit on top of whatever won, and that may be this
            # very epoch. This changes the copy in memory and not the table.
            table.metadata = table.metadata.model_copy(
                update={"properties": {**table.metadata.properties, **NO_RETRY}}
            )
            try:
                self._commit(table, commit)
            except (CommitFailedException, FileNotFoundError) as error:
                # A file is gone when the other driver of this epoch has committed and swept.
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

    def _commit(self, table: Table, commit: EpochCommit) -> None:
        summary = commit.properties()
        root = table.location()
        with table.transaction() as change:
            if commit.overwrite:
                change.delete(AlwaysTrue(), snapshot_properties=summary)
            if commit.files:
                change.add_files(
                    [f"{root}/{file.path}" for file in commit.files],
                    snapshot_properties=summary,
                    check_duplicate_files=False,
                )
            name = EPOCH_PROPERTY + commit.epoch.query
            change.set_properties({name: str(commit.epoch.number)})


def in_warehouse(folder: str, identifier: str) -> IcebergLake:
    """A table in a folder of this machine with a SQLite catalog, `catalog.db`, in it."""
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
