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

    from headrace.pipelines.typed.options import TypedOptions
    from headrace.pipelines.typed.reading import TypedTopic


class DefaultSource(DataSource):  # type: ignore[misc]
    """The format `headrace`: topics of a Kafka cluster as tables and streams."""

    @classmethod
    def name(cls) -> str:
        return "headrace"

    # What the driver found in the registry for the schema goes along to readers and tasks.
    _topic: "TypedTopic | None" = None

    def schema(self) -> "StructType":
        from headrace.pipelines.source.arrow import spark_schema
        from headrace.pipelines.source.options import parse_columns, parse_types

        topic = self._typed_topic(parse_types(self.options))
        types = {} if topic is None else topic.spark_types()
        return spark_schema(parse_columns(self.options), types)

    def reader(self, schema: "StructType") -> DataSourceReader:
        from headrace.pipelines.source.options import parse_options
        from headrace.pipelines.source.readers import BatchReader

        options = parse_options(self.options, streaming=False)
        return BatchReader(options, self._typed_topic(options.typed))

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:
        from headrace.pipelines.source.options import parse_options
        from headrace.pipelines.source.readers import StreamReader

        options = parse_options(self.options, streaming=True)
        return StreamReader(options, self._typed_topic(options.typed))

    def _typed_topic(self, typed: "TypedOptions | None") -> "TypedTopic | None":
        from headrace.pipelines.typed.reading import look_up

        if self._topic is None and typed is not None:
            self._topic = look_up(typed)
        return self._topic

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        from headrace.pipelines.sink.sink import BatchWriter, make_sink

        return BatchWriter(make_sink(self.options, schema, overwrite))

    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamWriter:
        from headrace.pipelines.sink.sink import StreamWriter, make_sink

        return StreamWriter(make_sink(self.options, schema, overwrite, streaming=True))
