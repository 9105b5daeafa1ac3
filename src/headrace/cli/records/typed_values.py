"""The schemas of --registry, for `produce --schema` and `consume --schema`."""

from pathlib import Path
from typing import TYPE_CHECKING

from headrace.admin.typed_values import ValueDecoder, ValueEncoder
from headrace.cli.failures import bad_usage
from headrace.cli.schemas.registry_client import as_dict, schema_client
from headrace.schemas.interface import RegisteredSchema

if TYPE_CHECKING:
    from confluent_kafka import Message

    from headrace.schemas.client import SchemaClient


def value_encoder(registry: str, topic: str, choice: str) -> ValueEncoder:
    """An encoder with the schema of --schema."""
    with schema_client(registry) as client:
        return ValueEncoder(_chosen(client, topic, choice))


def value_decoder(registry: str) -> ValueDecoder:
    """A decoder with the schemas of the registry."""

    def schema_by_id(schema_id: int) -> RegisteredSchema:
        with schema_client(registry) as client:
            return client.by_id(schema_id)

    return ValueDecoder(schema_by_id)


def _chosen(client: "SchemaClient", topic: str, choice: str) -> RegisteredSchema:
    """The schema of --schema: `latest`, an id, or a file that is registered first."""
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


class TypedMessage:
    """A message whose key and value are JSON if they have a schema."""

    def __init__(self, message: "Message", decoder: ValueDecoder) -> None:
        self._message = message
        self._decoder = decoder

    def key(self) -> bytes | None:
        return self._decoder.text(self._message.key())

    def value(self) -> bytes | None:
        return self._decoder.text(self._message.value())

    def __getattr__(self, name: str) -> object:
        return getattr(self._message, name)
