"""What PySpark looks for: the format "headrace-parquet", known as soon as Headrace is installed."""

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType


class DefaultSource(DataSource):  # type: ignore[misc]
    """`df.write.format("headrace-parquet")` and `df.writeStream.format("headrace-parquet")`."""

    @classmethod
    def name(cls) -> str:
        return "headrace-parquet"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headrace.pipelines.lake.options import partition_columns
        from headrace.pipelines.lake.parquet import ParquetLake
        from headrace.pipelines.lake.writers import LakeBatchWriter, LakeSink

        if overwrite:
            raise ValueError("the headrace-parquet sink only appends: use mode('append')")
        files = ParquetLake.from_options(self.options)
        return LakeBatchWriter(LakeSink(files, schema, False, partition_columns(self.options)))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from headrace.pipelines.lake.options import partition_columns
        from headrace.pipelines.lake.parquet import ParquetLake
        from headrace.pipelines.lake.writers import LakeSink, LakeStreamWriter

        if overwrite:
            raise ValueError("the headrace-parquet sink only appends: use outputMode('append')")
        files = ParquetLake.from_options(self.options)
        return LakeStreamWriter(LakeSink(files, schema, False, partition_columns(self.options)))
