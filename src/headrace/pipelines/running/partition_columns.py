"""`.partitionBy(...)` of PySpark's writers, for the lake sinks.

Spark does not pass partition columns to a Python data source: a stream drops them silently, and a
batch write is refused because the table that Spark requested from the source has none. So PySpark's
writers are changed here to pass the columns as the option `partitionBy`, which the sinks read.
"""

import json
from collections.abc import Callable
from typing import Any

SINKS = frozenset({"headrace-delta", "headrace-iceberg", "headrace-parquet"})
OPTION = "partitionBy"


def hand_on_partition_columns() -> None:
    """Change PySpark's writers in this process; a second call has no effect.

    `headrace spark run` and `headrace spark shell` call it, and `headrace.pyspark_import` calls it
    in other programs. If neither runs, as under spark-submit, a program may call it before it
    writes, or set the option `partitionBy`.
    """
    from pyspark.sql.readwriter import DataFrameWriter
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    for writer in (DataFrameWriter, DataStreamWriter):
        change(writer)


def change(writer: Any) -> None:
    """Change one of PySpark's two classes of writers."""
    if hasattr(writer, "_headrace_hand_on"):
        return
    with_format: Callable[..., Any] = writer.format
    with_partitions: Callable[..., Any] = writer.partitionBy
    with_clusters: Callable[..., Any] = writer.clusterBy

    def hand_on(self: Any) -> None:
        if getattr(self, "_headrace_format", "").lower() not in SINKS:
            return
        if getattr(self, "_headrace_clusters", None):
            raise ValueError(
                f"the sink {self._headrace_format} does not support clusterBy; use partitionBy, or "
                "repartition the DataFrame"
            )
        if columns := getattr(self, "_headrace_partitions", None):
            # Spark itself would refuse them in a batch write.
            with_partitions(self, [])
            self.option(OPTION, json.dumps(columns))

    def new_format(self: Any, source: str) -> Any:
        with_format(self, source)
        self._headrace_format = source
        hand_on(self)
        return self

    def new_partition_by(self: Any, *cols: Any) -> Any:
        with_partitions(self, *cols)
        self._headrace_partitions = _flat(cols)
        hand_on(self)
        return self

    def new_cluster_by(self: Any, *cols: Any) -> Any:
        with_clusters(self, *cols)
        self._headrace_clusters = _flat(cols)
        hand_on(self)
        return self

    writer.format = new_format
    writer.partitionBy = new_partition_by
    writer.clusterBy = new_cluster_by
    writer._headrace_hand_on = hand_on


def _flat(columns: tuple[Any, ...]) -> list[str]:
    if len(columns) == 1 and isinstance(columns[0], list | tuple):
        return list(columns[0])
    return list(columns)
