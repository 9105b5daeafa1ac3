"""What PySpark looks for: the format "headrace-iceberg", known as soon as Headrace is installed."""

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType


class DefaultSource(DataSource):  # type: ignore[misc]
    """`df.write.format("headrace-iceberg")` and `df.writeStream.format("headrace-iceberg")`."""

    @classmethod
    def name(cls) -> str:
        return "headrace-iceberg"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headrace.pipelines.lake.iceberg import IcebergLake
        from headrace.pipelines.lake.options import partition_columns
        from headrace.pipelines.lake.writers import LakeBatchWriter, LakeSink

        table = IcebergLake.from_options(self.options)
        columns = partition_columns(self.options)
        return LakeBatchWriter(LakeSink(table, schema, overwrite, columns))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from headrace.pipelines.lake.iceberg import IcebergLake
        from headrace.pipelines.lake.options import partition_columns
        from headrace.pipelines.lake.writers import LakeSink, LakeStreamWriter

        table = IcebergLake.from_options(self.options)
        columns = partition_columns(self.options)
        return LakeStreamWriter(LakeSink(table, schema, overwrite, columns))
