"""The key and the value of a source's records: columns, format, and whether they are wrapped."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError
from headrace.schemas.client import SchemaClient
from headrace.sql.records.types import ColumnType, parse_type
from headrace.sql.sources import Format, SqlColumn, SqlSource

if TYPE_CHECKING:
    from headrace.sql.records.registered import RegisteredPart


@dataclass(frozen=True, slots=True)
class Part:
    """The key or the value of the records of a source."""

    name: str
    """`key` or `value`."""
    format: Format
    columns: tuple[tuple[str, ColumnType], ...]
    wrapped: bool
    """Whether it has a field for each column, or is the only column itself."""
    schema_id: int | None

    def registered(self, source: SqlSource) -> "RegisteredPart":
        from headrace.sql.records.registered import RegisteredPart

        return RegisteredPart(
            self.name, source.topic, self.format, self.schema_id, self.columns, self.wrapped
        )

    def registry(self, client: SchemaClient | None) -> SchemaClient:
        """The registry, which formats with schemas need."""
        if client is None:
            raise ClientError(
                f"the {self.name} has the format {self.format}, which needs a schema registry: "
                "set schema.registry.url"
            )
        return client


def key_part(source: SqlSource) -> Part:
    """A single column of a key is not wrapped, but in Protobuf, which has messages only."""
    columns = _typed(source.keys)
    wrapped = len(columns) > 1 or source.key_format is Format.PROTOBUF
    return Part("key", source.key_format, columns, wrapped, source.key_schema_id)


def value_part(source: SqlSource) -> Part:
    """A single column of a value is wrapped, unless the source says otherwise."""
    columns = _typed(source.values)
    wrapped = (
        len(columns) != 1 or source.wrap_single_value or source.value_format is Format.PROTOBUF
    )
    return Part("value", source.value_format, columns, wrapped, source.value_schema_id)


def _typed(columns: Sequence[SqlColumn]) -> tuple[tuple[str, ColumnType], ...]:
    return tuple((each.name, parse_type(each.type)) for each in columns)
