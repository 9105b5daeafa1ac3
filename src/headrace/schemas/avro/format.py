"""Avro's entry in the table of formats."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.schemas.interface import (
    ColumnReader,
    ColumnWriter,
    LatestSchema,
    ParsedSchema,
    RegisteredSchema,
    SchemaDependency,
    ValueCodec,
)

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


class AvroFormat:
    """Avro, in its binary encoding."""

    name = "AVRO"
    file_suffix = ".avsc"
    is_json = True
    quick_characters = 20_000
    readable_form = ""

    def parse(self, text: str, dependencies: Sequence[SchemaDependency]) -> ParsedSchema:
        from headrace.schemas.avro.parsing import parse

        return parse(text, dependencies)

    def may_have_patterns(self, text: str) -> bool:
        return False

    def values(self, schema: RegisteredSchema) -> ValueCodec:
        from headrace.schemas.avro.values import AvroValues

        return AvroValues(schema)

    def column_reader(self, schema: RegisteredSchema, message: str | None) -> ColumnReader:
        from headrace.schemas.avro.column_reader import AvroColumnReader

        return AvroColumnReader(schema)

    def column_writer(
        self, schema: RegisteredSchema, message: str | None, kind: "DataType", column: str
    ) -> ColumnWriter:
        from headrace.schemas.avro.column_writer import AvroColumnWriter

        return AvroColumnWriter(schema, column)

    def derived(self, kind: "DataType", name: str, latest: LatestSchema) -> str:
        from headrace.schemas.avro.column_writer import derived

        return derived(kind, name)
