"""The table of schema formats. No other module lists them."""

from collections.abc import Mapping, Sequence

from headrace.schemas.avro.format import AvroFormat
from headrace.schemas.errors import InvalidSchema
from headrace.schemas.interface import ParsedSchema, SchemaDependency, SchemaFormat
from headrace.schemas.json_schema.format import JsonSchemaFormat
from headrace.schemas.protobuf.format import ProtobufFormat

_ALL: tuple[SchemaFormat, ...] = (JsonSchemaFormat(), ProtobufFormat(), AvroFormat())
FORMATS: Mapping[str, SchemaFormat] = {each.name: each for each in _ALL}


def format_named(name: str) -> SchemaFormat:
    """The format of this name; raises InvalidSchema."""
    found = FORMATS.get(name)
    if found is None:
        raise InvalidSchema(f"Invalid schema type {name!r}; known are {', '.join(sorted(FORMATS))}")
    return found


def parse(kind: str, text: str, dependencies: Sequence[SchemaDependency] = ()) -> ParsedSchema:
    """Parses a schema of this format; raises InvalidSchema."""
    return format_named(kind).parse(text, dependencies)
