"""Tables for `verify`: their files with the epoch and the offsets of each."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.pipelines.lake.files import epoch_of
from headrace.pipelines.lake.ranges import COLUMNS, Ranges, from_json, tracked
from headrace.pipelines.lake.writers import EPOCH, OFFSETS, QUERY
from headrace.pipelines.sink.epoch import Epoch

if TYPE_CHECKING:
    from headrace.pipelines.lake.delta import DeltaLake
    from headrace.pipelines.lake.iceberg import IcebergLake


class TableUnreadable(Exception):
    """The table cannot be verified. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file of the table; `read` gives topic, partition and offset of its rows."""

    path: str
    epoch: Epoch | None
    read: Callable[[], pa.Table]


@dataclass(frozen=True, slots=True)
class TableCommit:
    """The epoch and ranges in a commit of one of the sinks."""

    epoch: Epoch
    ranges: Ranges


@dataclass(frozen=True, slots=True)
class TableView:
    """One version of a table."""

    name: str
    format: str
    version: str
    files: tuple[TableFile, ...]
    commits: tuple[TableCommit, ...]


def open_view(table: str, *, warehouse: str | None = None, catalog: str | None = None) -> TableView:
    """The current version of the table.

    `table` is the folder or address of a Delta table, the folder or `*.metadata.json` of an Iceberg
    table, or, with a warehouse or a catalog, an Iceberg identifier `namespace.name`.
    """
    if warehouse is not None or catalog is not None:
        return _iceberg_by_name(table, warehouse, catalog)
    folder = Path(table)
    if table.endswith(".metadata.json"):
        return _iceberg_by_metadata(table)
    if (folder / "metadata").is_dir():
        return _iceberg_by_metadata(str(_newest_metadata(folder)))
    return _delta(table)


def open_table(
    table: str, *, warehouse: str | None = None, catalog: str | None = None
) -> "DeltaLake | IcebergLake":
    """A table that can be changed, as for `open_view`; an Iceberg table by its name only."""
    from headrace.pipelines.lake.delta import DeltaLake

    if warehouse is not None or catalog is not None:
        return _iceberg_lake(table, warehouse, catalog)
    if table.endswith(".metadata.json") or Path(table, "metadata").is_dir():
        raise TableUnreadable(
            f"{table} is an Iceberg table, which can be changed through its catalog only: use its "
            "name as namespace.name, and --warehouse or --catalog"
        )
    return DeltaLake(table)


def _delta(uri: str) -> TableView:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        table = DeltaTable(uri)
        dataset = table.to_pyarrow_dataset()
    except TableNotFoundError as error:
        raise TableUnreadable(
            f"no table at {uri}: it has neither a _delta_log nor a metadata folder; for an Iceberg "
            "table by name add --warehouse or --catalog"
        ) from error
    except DeltaError as error:
        raise TableUnreadable(f"the Delta table {uri} cannot be read: {error}") from error
    _check_columns(dataset.schema, uri)

    def reader(fragment: Any) -> Callable[[], pa.Table]:
        return lambda: fragment.to_table(schema=dataset.schema, columns=list(COLUMNS))

    files = tuple(
        TableFile(fragment.path, epoch_of(fragment.path), reader(fragment))
        for fragment in dataset.get_fragments()
    )
    commits = tuple(_commits(reversed(table.history())))
    return TableView(uri, "delta", str(table.version()), files, commits)


def _iceberg_by_name(identifier: str, warehouse: str | None, catalog: str | None) -> TableView:
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        return _iceberg(_iceberg_lake(identifier, warehouse, catalog).table(), identifier)
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise TableUnreadable(f"the catalog has no table {identifier}: {error}") from error
    except ValueError as error:
        raise TableUnreadable(f"cannot open the catalog {catalog}: {error}") from error


def _iceberg_lake(identifier: str, warehouse: str | None, catalog: str | None) -> "IcebergLake":
    from headrace.pipelines.lake.iceberg import IcebergLake, in_warehouse

    if warehouse is None:
        return IcebergLake(identifier, catalog or "default")
    if not Path(warehouse, "catalog.db").exists():
        raise TableUnreadable(f"the warehouse {warehouse} has no catalog.db")
    return in_warehouse(warehouse, identifier)


def _iceberg_by_metadata(location: str) -> TableView:
    from pyiceberg.table import StaticTable

    try:
        return _iceberg(StaticTable.from_metadata(location), location)
    except (OSError, ValueError) as error:
        raise TableUnreadable(f"cannot read Iceberg's metadata {location}: {error}") from error


def _newest_metadata(folder: Path) -> Path:
    found = (folder / "metadata").glob("*.metadata.json")
    newest = max(found, key=lambda path: (path.stat().st_mtime_ns, path.name), default=None)
    if newest is None:
        raise TableUnreadable(f"the folder {folder}/metadata has no *.metadata.json")
    return newest


def _iceberg(table: Any, name: str) -> TableView:
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    _check_columns(table.schema().as_arrow(), name)
    scan = table.scan(selected_fields=COLUMNS)

    def reader(task: Any) -> Callable[[], pa.Table]:
        # Through PyIceberg, because it handles deleted rows and renamed columns.
        arrow = ArrowScan(table.metadata, table.io, scan.projection(), AlwaysTrue())
        return lambda: arrow.to_table([task])

    files = tuple(
        TableFile(task.file.file_path, epoch_of(task.file.file_path), reader(task))
        for task in scan.plan_files()
    )
    summaries = [
        snapshot.summary.additional_properties
        for snapshot in table.metadata.snapshots
        if snapshot.summary is not None
    ]
    snapshot = table.current_snapshot()
    version = "none" if snapshot is None else str(snapshot.snapshot_id)
    return TableView(name, "iceberg", version, files, tuple(_commits(summaries)))


def _commits(
    properties: "Iterator[dict[str, Any]] | list[dict[str, Any]]",
) -> Iterator[TableCommit]:
    for each in properties:
        if OFFSETS in each and EPOCH in each:
            yield _commit(each)


def _commit(properties: Mapping[str, Any]) -> TableCommit:
    epoch = Epoch(str(properties.get(QUERY, "")), int(properties[EPOCH]))
    return TableCommit(epoch, from_json(properties[OFFSETS]))


def _check_columns(schema: pa.Schema, name: str) -> None:
    if not tracked(schema):
        raise TableUnreadable(
            f"the rows of the table {name} cannot be matched to records: write the source's "
            "columns topic (string), partition (int) and offset (long) with them"
        )
