"""A sink for Hive tables: Parquet files whose folders are partitions in the Hive metastore."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import urlsplit

from headrace.connect.connectors.lake.parquet import FilesInFolders
from headrace.connect.connectors.lake.partitioners import FLUSH_SIZE, PARTITIONER_OPTIONS
from headrace.connect.plugin import REQUIRED, Option, OptionError, PermanentError

PARTITIONS_AT_ONCE = 100
NO_CATALOG = (
    "Spark has no Hive catalog: start the worker with "
    "headrace.spark.conf=spark.sql.catalogImplementation=hive,"
    "spark.hadoop.hive.metastore.uris=thrift://HOST:9083"
)


class HiveSink(FilesInFolders):
    """Writes an external table of Hive, exactly once.

    The files are those of the ParquetSink. After each epoch its folders become partitions of the
    table; if the driver dies before that, the replayed epoch makes up for it.
    """

    place_option = "path"
    by_topic: ClassVar[bool] = False
    options = (
        Option("hive.table", str, REQUIRED, "The table; it is created.", importance="high"),
        Option("hive.database", str, "default", "Its database; it is created."),
        Option("path", str, REQUIRED, "The table's folder, on disk or in HDFS.", importance="high"),
        FLUSH_SIZE,
        *PARTITIONER_OPTIONS,
    )
    hive_table: str
    hive_database: str
    path: str

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        self._registered: set[str] = set()

    def root(self) -> str:
        if urlsplit(self.path).scheme not in ("", "file", "hdfs"):
            raise OptionError("path", f"{self.path}: expected a folder, or an address of hdfs://")
        return self.path.rstrip("/")

    def storage(self) -> Mapping[str, str]:
        return {}

    def table_options(self) -> Mapping[str, str]:
        from headrace.pipelines.lake import time_format

        rule = self.rule()
        if rule.time_format and not time_format.parse(rule.time_format).is_named:
            raise OptionError(
                "path.format", "A Hive table needs folders with names, such as 'day'=YYYY-MM-dd."
            )
        return super().table_options()

    def begin(self, spark: Any, schema: Any) -> None:
        """Create the table, or add its new columns."""
        if spark.conf.get("spark.sql.catalogImplementation") != "hive":
            raise PermanentError(NO_CATALOG)
        keys = self.rule().keys
        columns, partitions = _columns(schema, keys)
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {_name(self.hive_database)}")
        by = f" PARTITIONED BY ({', '.join(partitions.values())})" if partitions else ""
        spark.sql(
            f"CREATE EXTERNAL TABLE IF NOT EXISTS {self._table} ({', '.join(columns.values())})"
            f"{by} STORED AS PARQUET LOCATION {_text(self.root())}"
        )
        there = [each.name for each in spark.catalog.listColumns(self._table) if each.isPartition]
        if there != [key.lower() for key in keys] and there != list(keys):
            raise PermanentError(
                f"the table {self.hive_database}.{self.hive_table} is partitioned by "
                f"{', '.join(there) or 'nothing'} and the connector writes partitions by "
                f"{', '.join(keys) or 'nothing'}: change the partitioner, or use another table"
            )
        known = {name.lower() for name in spark.table(self._table).columns}
        added = [ddl for name, ddl in columns.items() if name.lower() not in known]
        if added:
            spark.sql(f"ALTER TABLE {self._table} ADD COLUMNS ({', '.join(added)})")

    def committed(self, spark: Any, epoch: Any) -> None:
        """Make the folders of the epoch partitions of the table."""
        from headrace.pipelines.lake.parquet import ParquetLake

        if not self.rule().keys:
            return
        found = ParquetLake.from_options(self.table_options()).folders_of(epoch)
        new = [folder for folder in found if folder not in self._registered]
        for some in _pieces(new, PARTITIONS_AT_ONCE):
            parts = " ".join(map(self._partition, some))
            spark.sql(f"ALTER TABLE {self._table} ADD IF NOT EXISTS {parts}")
        self._registered.update(new)

    @property
    def _table(self) -> str:
        return f"{_name(self.hive_database)}.{_name(self.hive_table)}"

    def _partition(self, folder: str) -> str:
        from headrace.pipelines.lake.folders import values_of

        values = ", ".join(
            f"{_name(name)}={'null' if value is None else _text(value)}"
            for name, value in values_of(folder).items()
        )
        return f"PARTITION ({values}) LOCATION {_text(f'{self.root()}/{folder}')}"


def _columns(schema: Any, keys: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """The columns of the files and the partition columns, by name, as DDL."""
    types = {
        each.name: each.dataType.simpleString()
        for each in schema.fields
        if not each.name.startswith("__headrace_")
    }
    columns = {name: f"{_name(name)} {kind}" for name, kind in types.items() if name not in keys}
    return columns, {key: f"{_name(key)} {types.get(key, 'string')}" for key in keys}


def _name(text: str) -> str:
    return "`" + text.replace("`", "``") + "`"


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _pieces(folders: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for at in range(0, len(folders), size):
        yield folders[at : at + size]
