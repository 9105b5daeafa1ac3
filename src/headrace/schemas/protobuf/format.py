"""Protobuf's entry in the table of formats."""

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


class ProtobufFormat:
    """Protobuf; a value begins with the indexes of its message in the file."""

    name = "PROTOBUF"
    file_suffix = ".proto"
    is_json = False
    quick_characters = 10_000
    readable_form = "serialized"

    def parse(self, text: str, dependencies: Sequence[SchemaDependency]) -> ParsedSchema:
        from headrace.schemas.protobuf.parsing import parse

        return parse(text, dependencies)

    def may_have_patterns(self, text: str) -> bool:
        return False

    def values(self, schema: RegisteredSchema) -> ValueCodec:
        from headrace.schemas.protobuf.values import ProtobufValues

        return ProtobufValues(schema)

    def column_reader(self, schema: RegisteredSchema, message: str | None) -> ColumnReader:
        from headrace.schemas.protobuf.column_reader import ProtobufColumnReader

        return ProtobufColumnReader(schema, message)

    def column_writer(
        self, schema: RegisteredSchema, message: str | None, kind: "DataType", column: str
    ) -> ColumnWriter:
        from headrace.schemas.protobuf.column_writer import ProtobufColumnWriter

        return ProtobufColumnWriter(schema, message, column)

    def derived(self, kind: "DataType", name: str, latest: LatestSchema) -> str:
        from headrace.schemas.protobuf.column_writer import derived

        return derived(kind, name, latest())
