"""Single values of an Avro schema, with fastavro."""

import io
import json
from typing import Any, cast

import fastavro
from fastavro.validation import ValidationError, validate

from headrace.schemas.errors import BadValue, InvalidSchema
from headrace.schemas.interface import RegisteredSchema


class AvroValues:
    """Values in fastavro's form, with logical types."""

    def __init__(self, schema: RegisteredSchema) -> None:
        self._schema = fastavro_schema(schema)

    def encode(self, value: object) -> bytes:
        out = io.BytesIO()
        try:
            validate(value, self._schema, raise_errors=True)
            fastavro.schemaless_writer(out, self._schema, cast(Any, value))
        except ValidationError as error:
            raise BadValue(" ".join(str(error).split())[:300]) from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadValue(str(error)) from None
        return out.getvalue()

    def decode(self, data: bytes) -> object:
        return fastavro.schemaless_reader(io.BytesIO(data), self._schema, None)


def fastavro_schema(schema: RegisteredSchema, *, logical: bool = True) -> Any:
    """The schema for fastavro. Without logical types, values are plain numbers and bytes."""
    names: dict[str, Any] = {}
    try:
        for text in (*(each.text for each in schema.dependencies), schema.text):
            data = json.loads(text)
            parsed = fastavro.parse_schema(
                data if logical else _without_logical(data), named_schemas=names
            )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidSchema(f"schema {schema.id} is not a valid Avro schema: {error}") from None
    return parsed


def _without_logical(data: Any) -> Any:
    if isinstance(data, list):
        return [_without_logical(each) for each in data]
    if isinstance(data, dict):
        return {
            name: _without_logical(each) for name, each in data.items() if name != "logicalType"
        }
    return data
