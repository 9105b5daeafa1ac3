"""Records of a source that need no expression of Spark: they pass through it in packs.

If a connector has no transforms, and its converters write strings and bytes as they are, Spark
would only copy every record from one Python process to another. The reader then puts many records
into one row, a pack, and the sink takes the packs apart.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter
from pyspark.sql.types import StructType

from headrace.connect.connectors.ddl import DdlError, arrow_schema
from headrace.connect.converters.options import BYTES, ENCODINGS, JSON, STRING, converter_of
from headrace.connect.plugin import SourceStream
from headrace.connect.transforms.options import steps
from headrace.pipelines.sink.sink import StreamWriter, make_sink

PACKS_FORMAT = "headrace-connect-packs"
PACKED_SCHEMA = "topic string, value binary, records bigint"
"""The value is an Arrow stream with the columns key, value and perhaps headers."""
PACK_BYTES = 4 << 20
PACKED_RECORDS_AN_EPOCH = 500_000
"""More than of other sources: an epoch costs Spark more time than its packs."""
_OBSERVED = "packed"
_ROW = pa.schema([("topic", pa.string()), ("value", pa.binary()), ("records", pa.int64())])
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True, slots=True)
class Packing:
    """How the rows of a stream become packs."""

    stream: SourceStream
    row: pa.StructType
    """The type of the stream's rows."""
    offsets_topic: str
    has_headers: bool
    """Whether any stream of the connector has headers: all packs have the same columns."""

    @property
    def _columns(self) -> pa.Schema:
        columns = [("key", pa.binary()), ("value", pa.binary())]
        return pa.schema([*columns, ("headers", _HEADERS)] if self.has_headers else columns)

    def packs(self, rows: pa.StructArray) -> Iterator[pa.RecordBatch]:
        """The rows as records of the stream's topic."""
        stream = self.stream
        key = rows.field(stream.key[0]) if stream.key else pa.nulls(len(rows), pa.binary())
        columns = [key, rows.field(stream.value)]
        if self.has_headers:
            found = stream.headers and rows.field(stream.headers)
            columns.append(found or pa.nulls(len(rows), _HEADERS))
        typed = zip(columns, self._columns, strict=True)
        records = pa.RecordBatch.from_arrays(
            [column.cast(field.type) for column, field in typed], schema=self._columns
        )
        step = max(1, len(rows) * PACK_BYTES // max(PACK_BYTES, records.nbytes))
        for start in range(0, len(rows), step):
            piece = records.slice(start, step)
            yield _row(stream.topic, piece, piece.num_rows)

    def offset(self, key: str, value: str) -> pa.RecordBatch:
        """A record of the offsets topic; it does not count as one of the source."""
        row = {"key": key.encode(), "value": value.encode()}
        record = pa.RecordBatch.from_pylist([row], schema=self._columns)
        return _row(self.offsets_topic, record, 0)


def packings(
    streams: Sequence[SourceStream], config: Mapping[str, str], offsets_topic: str
) -> list[Packing] | None:
    """How each stream is packed; None if Spark has work to do for the records of one."""
    try:
        rows = [pa.struct(arrow_schema(each.schema)) for each in streams]
    except DdlError:
        return None
    if steps(config) or not all(map(partial(_is_plain, config), streams, rows)):
        return None
    has_headers = any(each.headers for each in streams)
    return [
        Packing(each, row, offsets_topic, has_headers)
        for each, row in zip(streams, rows, strict=True)
    ]


def _is_plain(config: Mapping[str, str], stream: SourceStream, row: pa.StructType) -> bool:
    if stream.headers and row.field(stream.headers).type != _HEADERS:
        return False
    if not stream.value or len(stream.key) > 1:
        return False
    if not stream.key and converter_of(config, "key").class_name not in (STRING, JSON):
        return False
    columns = {"value": stream.value, **({"key": stream.key[0]} if stream.key else {})}
    return all(_is_copied(row.field(name).type, config, part) for part, name in columns.items())


def _is_copied(kind: pa.DataType, config: Mapping[str, str], part: str) -> bool:
    """Whether the converter writes the bytes of a column as they are."""
    converter = converter_of(config, part)
    if converter.class_name == BYTES:
        return bool(pa.types.is_binary(kind))
    return (
        converter.class_name == STRING
        and bool(pa.types.is_string(kind))
        and ENCODINGS[str(converter.text("converter.encoding"))] == "UTF-8"
    )


def _row(topic: str, records: pa.RecordBatch, count: int) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema) as stream:
        stream.write_batch(records)
    return pa.RecordBatch.from_pylist(
        [{"topic": topic, "value": sink.getvalue().to_pybytes(), "records": count}], schema=_ROW
    )


def observed(packs: Any, topic: str) -> Any:
    """The packs, with the number of their records in the progress of the query."""
    from pyspark.sql import functions as f

    return packs.observe(f"{_OBSERVED}-{topic}", f.sum("records").alias("records"))


def packed_records(progress: Mapping[str, Any]) -> int | None:
    """How many records the packs of an epoch had; None if the query has no packs."""
    found = [
        row["records"] or 0
        for name, row in (progress.get("observedMetrics") or {}).items()
        if name.startswith(f"{_OBSERVED}-")
    ]
    return sum(found) if found else None


class PackedTopics(DataSource):  # type: ignore[misc]
    """The sink `headrace` for packs."""

    @classmethod
    def name(cls) -> str:
        return PACKS_FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return PackWriter(make_sink(self.options, schema, overwrite, streaming=True))


class PackWriter(StreamWriter):
    """Writes the records of packs."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        return super().write(_unpacked(iterator))


def _unpacked(packs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in packs:
        topics = batch.column("topic").to_pylist()
        for topic, pack in zip(topics, batch.column("value"), strict=True):
            with pa.ipc.open_stream(pack.as_buffer()) as stream:
                for records in stream:
                    names = pa.repeat(topic, len(records))
                    columns = [names, *records.columns]
                    yield pa.RecordBatch.from_arrays(columns, ["topic", *records.schema.names])
