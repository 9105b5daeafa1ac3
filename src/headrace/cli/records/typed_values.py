"""Values with a schema: JSON text into encoded values for `produce`, and back for `consume`."""

import base64
import datetime
import decimal
import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.failures import Failure, bad_usage
from headrace.cli.records.record_text import BadLine
from headrace.cli.schemas.registry_option import as_dict, schema_client
from headrace.schemas.errors import BadValue
from headrace.schemas.formats import FORMATS
from headrace.schemas.framing import HEADER, header, schema_id_of
from headrace.schemas.interface import RegisteredSchema, ValueCodec

if TYPE_CHECKING:
    from confluent_kafka import Message

    from headrace.schemas.client import SchemaClient


class ValueEncoder:
    """Encodes JSON texts with one schema."""

    def __init__(self, registry: str, topic: str, choice: str) -> None:
        with schema_client(registry) as client:
            schema = _chosen(client, topic, choice)
            self._codec = _codec(schema)
        self._id = schema.id

    def encode(self, text: bytes | None) -> bytes | None:
        """The encoded value; a tombstone stays one."""
        if text is None:
            return None
        try:
            found = json.loads(text)
        except ValueError as error:
            raise BadLine(f"not JSON: {error}") from None
        try:
            return header(self._id) + self._codec.encode(found)
        except BadValue as error:
            raise BadLine(f"not of schema {self._id}: {error}") from None


def _chosen(client: "SchemaClient", topic: str, choice: str) -> RegisteredSchema:
    """The schema that --schema means: `latest`, an id, or a file that is registered first."""
    subject = f"{topic}-value"
    if choice.isdecimal():
        return client.by_id(int(choice))
    if choice == "latest":
        return client.by_version(subject, "latest")
    if not Path(choice).exists():
        raise bad_usage(f"--schema {choice!r} is neither latest nor an id nor a file")
    from headrace.cli.schemas.schemas import submission

    made = client.post("subjects", subject, "versions", body=submission(choice, None, None))
    return client.by_id(int(str(as_dict(made)["id"])))


def _codec(schema: RegisteredSchema) -> ValueCodec:
    found = FORMATS.get(schema.kind)
    if found is None:
        raise Failure(f"schema {schema.id} has the unknown type {schema.kind}")
    try:
        return found.values(schema)
    except ModuleNotFoundError as error:
        raise Failure(
            f"schemas of type {schema.kind} need the package {error.name}",
            hint="pip install 'headrace[services]'",
        ) from None


class ValueDecoder:
    """Turns values with a schema id into JSON text; each schema is fetched once."""

    def __init__(self, registry: str) -> None:
        self._registry = registry
        self._codecs: dict[int, ValueCodec] = {}

    def text(self, value: bytes | None) -> bytes | None:
        """JSON text; a value without a schema id stays as it is."""
        schema_id = None if value is None else schema_id_of(value)
        if value is None or schema_id is None:
            return value
        codec = self._codecs.get(schema_id)
        if codec is None:
            with schema_client(self._registry) as client:
                codec = self._codecs[schema_id] = _codec(client.by_id(schema_id))
        try:
            found = codec.decode(value[HEADER.size :])
        except Exception as error:
            raise Failure(
                f"a value is not of its schema {schema_id}: {error}", code="BAD_VALUE"
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


class TypedMessage:
    """A message whose key and value are shown as JSON where they have a schema."""

    def __init__(self, message: "Message", decoder: ValueDecoder) -> None:
        self._message = message
        self._decoder = decoder

    def key(self) -> bytes | None:
        return self._decoder.text(self._message.key())

    def value(self) -> bytes | None:
        return self._decoder.text(self._message.value())

    def __getattr__(self, name: str) -> object:
        return getattr(self._message, name)
