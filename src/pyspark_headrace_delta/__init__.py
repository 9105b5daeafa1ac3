"""What PySpark looks for: the format "headrace-delta", known as soon as Headrace is installed."""

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType


class DefaultSource(DataSource):  # type: ignore[misc]
    """`df.write.format("headrace-delta")` and `df.writeStream.format("headrace-delta")`."""

    @classmethod
    def name(cls) -> str:
        return "headrace-delta"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headrace.pipelines.lake.delta import DeltaLake
        from headrace.pipelines.lake.options import partition_columns
        from headrace.pipelines.lake.writers import LakeBatchWriter, LakeSink

        table = DeltaLake.from_options(self.options)
        columns = partition_columns(self.options)
        return LakeBatchWriter(LakeSink(table, schema, overwrite, columns))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from headrace.pipelines.lake.delta import DeltaLake
        from headrace.pipelines.lake.options import partition_columns
        from headrace.pipelines.lake.writers import LakeSink, LakeStreamWriter

        table = DeltaLake.from_options(self.options)
        columns = partition_columns(self.options)
        return LakeStreamWriter(LakeSink(table, schema, overwrite, columns))
