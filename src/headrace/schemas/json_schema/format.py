"""JSON Schema's entry in the table of formats."""

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


class JsonSchemaFormat:
    """JSON Schema; values are JSON documents."""

    name = "JSON"
    file_suffix = ".json"
    is_json = True
    quick_characters = 5_000
    readable_form = ""

    def parse(self, text: str, dependencies: Sequence[SchemaDependency]) -> ParsedSchema:
        from headrace.schemas.json_schema.parsing import parse

        return parse(text, dependencies)

    def may_have_patterns(self, text: str) -> bool:
        return '"pattern' in text or "\\u" in text

    def values(self, schema: RegisteredSchema) -> ValueCodec:
        from headrace.schemas.json_schema.values import JsonValues

        return JsonValues(schema)

    def column_reader(self, schema: RegisteredSchema, message: str | None) -> ColumnReader:
        from headrace.schemas.json_schema.column_reader import JsonColumnReader

        return JsonColumnReader(schema)

    def column_writer(
        self, schema: RegisteredSchema, message: str | None, kind: "DataType", column: str
    ) -> ColumnWriter:
        from headrace.schemas.json_schema.column_writer import JsonColumnWriter

        return JsonColumnWriter(kind, column)

    def derived(self, kind: "DataType", name: str, latest: LatestSchema) -> str:
        from headrace.schemas.json_schema.column_writer import derived

        return derived(kind, name)
