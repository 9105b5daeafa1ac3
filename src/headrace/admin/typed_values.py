"""Values with a schema: JSON text to encoded values and back.

Values begin with the id of their schema, as the serializers of schema registries write them.
"""

import base64
import datetime
import decimal
import json
import uuid
from collections.abc import Callable

from headrace.admin.errors import AdminError
from headrace.admin.record_text import BadLine
from headrace.schemas.errors import BadValue
from headrace.schemas.formats import FORMATS
from headrace.schemas.framing import HEADER, header, schema_id_of
from headrace.schemas.interface import RegisteredSchema, ValueCodec


class ValueEncoder:
    """Encodes JSON texts with one schema."""

    def __init__(self, schema: RegisteredSchema) -> None:
        self._id = schema.id
        self._codec = _codec(schema)

    def encode(self, text: bytes | None) -> bytes | None:
        """The encoded value; None for a tombstone."""
        if text is None:
            return None
        try:
            found = json.loads(text)
        except ValueError as error:
            raise BadLine(f"not JSON: {error}") from None
        try:
            return header(self._id) + self._codec.encode(found)
        except BadValue as error:
            raise BadLine(f"does not match schema {self._id}: {error}") from None


def _codec(schema: RegisteredSchema) -> ValueCodec:
    found = FORMATS.get(schema.kind)
    if found is None:
        raise AdminError(f"schema {schema.id} has the unknown type {schema.kind}")
    try:
        return found.values(schema)
    except ModuleNotFoundError as error:
        raise AdminError(
            f"schemas of type {schema.kind} need the package {error.name}",
            hint="pip install 'headrace[services]'",
        ) from None


class ValueDecoder:
    """Turns values with a schema id into JSON text; each schema is fetched once."""

    def __init__(self, schema_by_id: Callable[[int], RegisteredSchema]) -> None:
        self._schema_by_id = schema_by_id
        self._codecs: dict[int, ValueCodec] = {}

    def text(self, value: bytes | None) -> bytes | None:
        """JSON text; a value without a schema id stays as it is."""
        schema_id = None if value is None else schema_id_of(value)
        if value is None or schema_id is None:
            return value
        codec = self._codecs.get(schema_id)
        if codec is None:
            codec = self._codecs[schema_id] = _codec(self._schema_by_id(schema_id))
        try:
            found = codec.decode(value[HEADER.size :])
        except Exception as error:
            raise AdminError(
                f"a value does not match its schema {schema_id}: {error}", code="BAD_VALUE"
            ) from None
        return json.dumps(found, ensure_ascii=False, default=_plain).encode()


def _plain(value: object) -> object:
    """Values that JSON has no type for."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID | datetime.timedelta):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be shown")
