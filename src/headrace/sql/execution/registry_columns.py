"""Columns of streams and tables whose statements leave them out: those of a registered schema."""

import asyncio
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError
from headrace.schemas.client import (
    NOT_FOUND_STATUS,
    UNPROCESSABLE_STATUS,
    RequestRefused,
    SchemaClient,
)
from headrace.sql.errors import NO_REGISTRY, StatementRefused
from headrace.sql.language.datatypes import quoted_field
from headrace.sql.sources import ColumnRole, Format, SqlColumn

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

KINDS = {Format.AVRO: "AVRO", Format.JSON_SR: "JSON", Format.PROTOBUF: "PROTOBUF"}
SINGLE = {ColumnRole.KEY: "ROWKEY", ColumnRole.VALUE: "ROWVAL"}
"""The name of the only column of a schema that is not a record."""


def need_registry(registry: SchemaClient | None) -> SchemaClient:
    """The registry; StatementRefused if the server has none."""
    if registry is None:
        raise StatementRefused(
            "The formats AVRO, JSON_SR and PROTOBUF need a schema registry. Start the server with "
            "--registry URL (schema.registry.url)",
            NO_REGISTRY,
        )
    return registry


async def registry_columns(
    registry: SchemaClient | None,
    topic: str,
    role: ColumnRole,
    encoding: Format,
    schema_id: int | None,
) -> list[SqlColumn]:
    """The columns of keys or values of a topic, by the latest schema of their subject."""
    client = need_registry(registry)
    part = role.value.lower()
    subject = f"{topic}-{part}"
    try:
        return await asyncio.to_thread(_columns, client, subject, role, encoding, schema_id)
    except RequestRefused as error:
        if error.status == UNPROCESSABLE_STATUS:
            raise StatementRefused(
                f"The schema of {subject} is not of the format {encoding}. Choose another "
                f"{part}_format"
            ) from None
        if error.status != NOT_FOUND_STATUS:
            raise StatementRefused(f"The schema of {subject} cannot be read: {error}") from error
        where = f"id {schema_id}" if schema_id is not None else f"subject {subject}"
        raise StatementRefused(
            f"The {part} columns are left out, and the schema registry has no schema with {where}. "
            f"Name the columns, or register a schema: headrace schemas register {subject}"
        ) from None
    except ClientError as error:
        raise StatementRefused(f"The schema of {subject} cannot be read: {error}") from error


def _columns(
    client: SchemaClient, subject: str, role: ColumnRole, encoding: Format, schema_id: int | None
) -> list[SqlColumn]:
    # PySpark's types and the libraries of the format; Java is not started.
    from pyspark.sql.types import StructType

    from headrace.schemas.formats import FORMATS

    kind = KINDS[encoding]
    if schema_id is None:
        schema = client.by_version(subject, "latest", kind)
    else:
        schema = client.by_id(schema_id, kind)
    if schema.kind != kind:
        raise StatementRefused(
            f"The schema of {subject} is {schema.kind}, and not of the format {encoding}"
        )
    found = FORMATS[kind].column_reader(schema, None).spark_type
    if isinstance(found, StructType):
        return [SqlColumn(each.name, _ddl(each.dataType), role) for each in found.fields]
    return [SqlColumn(SINGLE[role], _ddl(found), role)]


def _ddl(kind: "DataType") -> str:
    """Spark's DDL with quoted names, which `simpleString` does not have."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        fields = (f"{quoted_field(each.name)}: {_ddl(each.dataType)}" for each in kind.fields)
        return f"struct<{', '.join(fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{_ddl(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{_ddl(kind.keyType)}, {_ddl(kind.valueType)}>"
    text: str = kind.simpleString()
    return text
