"""Where Spark finds the format `headrace`: it looks for installed modules named `pyspark_*`.

What it does is in `headrace.pipelines`; that is imported when a query uses it, because Spark
imports this module whenever a session looks for data sources.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):  # type: ignore[misc]
    """The format `headrace`: topics of a Kafka cluster as tables and streams."""

    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> str:
        from headrace.pipelines.arrow import sql_schema
        from headrace.pipelines.options import parse_columns

        return sql_schema(parse_columns(self.options))

    def reader(self, schema: "StructType") -> DataSourceReader:
        from headrace.pipelines.options import parse_options
        from headrace.pipelines.source import BatchReader

        return BatchReader(parse_options(self.options, streaming=False))

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:
        from headrace.pipelines.options import parse_options
        from headrace.pipelines.source import StreamReader

        return StreamReader(parse_options(self.options, streaming=True))

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        from headrace.pipelines.sink import BatchWriter, make_sink

        return BatchWriter(make_sink(self.options, schema, overwrite))

    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamWriter:
        from headrace.pipelines.sink import StreamWriter, make_sink

        return StreamWriter(make_sink(self.options, schema, overwrite))
