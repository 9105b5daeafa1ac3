"""Sinks for Delta and Iceberg tables: Spark's sinks of this project, exactly once."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headrace.connect.connectors.lake.stores import S3_OPTIONS, S3Access, check_reachable
from headrace.connect.plugin import REQUIRED, Option, OptionError, Password, TableSink

if TYPE_CHECKING:
    import pyarrow as pa

_SHARED = (
    Option(
        "partition.by", str, "", "Columns by which a new table is partitioned, separated by commas."
    ),
)


class DeltaSink(TableSink):
    """Writes records as rows of a Delta table, exactly once."""

    spark_format = "headrace-delta"
    options = (
        Option("table.path", str, REQUIRED, "The table's folder or address.", importance="high"),
        Option(
            "storage.options", Password, Password("{}"), "Options of the object store, as JSON."
        ),
        *_SHARED,
        *S3_OPTIONS,
    )
    table_path: str
    storage_options: str
    partition_by: str

    def check(self) -> None:
        super().check()
        if urlsplit(self.table_path).scheme in ("s3", "s3a", "hdfs"):
            check_reachable("table.path", self.table_path, self._storage())

    def _storage(self) -> dict[str, str]:
        of_options = _object("storage.options", self.storage_options)
        return {**S3Access.of(self).object_store(), **of_options}

    def table_options(self) -> Mapping[str, str]:
        storage = self._storage()
        return {
            "path": self.table_path,
            **{f"storage.{name}": value for name, value in storage.items()},
            **({"partitionBy": self.partition_by} if self.partition_by else {}),
        }

    def table_schema(self) -> "pa.Schema | None":
        from headrace.pipelines.lake.delta import DeltaLake

        return DeltaLake.from_options(self.table_options()).schema()


class IcebergSink(TableSink):
    """Writes records as rows of an Iceberg table, exactly once."""

    spark_format = "headrace-iceberg"
    options = (
        Option("table.name", str, REQUIRED, "The table, as namespace.name.", importance="high"),
        Option(
            "warehouse", str, "", "A folder, whose catalog is a SQLite file in it.",
            importance="high",
        ),
        Option("catalog", str, "", "A catalog of PyIceberg's configuration, by name."),
        Option("catalog.options", Password, Password("{}"), "Properties of a catalog, as JSON."),
        *_SHARED,
        *S3_OPTIONS,
    )  # fmt: skip
    table_name: str
    warehouse: str
    catalog: str
    catalog_options: str
    partition_by: str

    def check(self) -> None:
        super().check()
        if not (self.warehouse or self.catalog or _object("catalog.options", self.catalog_options)):
            raise OptionError("warehouse", "Set one of warehouse, catalog and catalog.options.")
        scheme = urlsplit(self.warehouse).scheme
        if scheme in ("s3", "s3a"):
            check_reachable("warehouse", self.warehouse, S3Access.of(self).object_store())

    def table_options(self) -> Mapping[str, str]:
        catalog = _object("catalog.options", self.catalog_options)
        scheme = urlsplit(self.warehouse).scheme
        refuse_hdfs("warehouse", self.warehouse)
        refuse_hdfs("catalog.options", catalog.get("warehouse", ""))
        if scheme not in ("", "file") and not (catalog or self.catalog):
            raise OptionError(
                "catalog.options",
                f"The catalog cannot be a file in {self.warehouse}: set catalog or "
                'catalog.options, such as {"type": "sql", "uri": "sqlite:////data/catalog.db"}',
            )
        s3 = S3Access.of(self).file_io()
        if s3 and (catalog or self.catalog):
            catalog = {**s3, **catalog}
        named = {
            "table": self.table_name,
            "warehouse": self.warehouse,
            "catalog": self.catalog,
            "partitionBy": self.partition_by,
        }
        return {
            **{name: value for name, value in named.items() if value},
            **{f"catalog.{name}": value for name, value in catalog.items()},
        }

    def table_schema(self) -> "pa.Schema | None":
        from headrace.pipelines.lake.iceberg import IcebergLake

        return IcebergLake.from_options(self.table_options()).schema()


def refuse_hdfs(option: str, warehouse: str) -> None:
    """PyIceberg needs Java and Hadoop's native library for HDFS."""
    if urlsplit(warehouse).scheme == "hdfs":
        raise OptionError(
            option,
            "Iceberg tables in HDFS are not supported: use the DeltaSink or the ParquetSink.",
        )


def _object(option: str, text: str) -> dict[str, str]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise OptionError(option, f"{option} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise OptionError(option, f'{option}: expected a JSON object such as {{"name": "value"}}')
    return {str(name): str(value) for name, value in found.items()}
