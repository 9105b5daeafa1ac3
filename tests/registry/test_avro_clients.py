"""confluent-kafka's registry client and Avro serializers, as they are."""

import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.registry.schemas import AGE, AGE_WITH_DEFAULT, user
from tests.support.headrace_registry import HeadraceRegistry
from tests.support.java import run_tool


def code_of(action: Callable[[], object]) -> int:
    with pytest.raises(SchemaRegistryError) as caught:
        action()
    return int(caught.value.error_code)


def test_the_client_finds_what_it_registered(client: SchemaRegistryClient, subject: str) -> None:
    schema = Schema(user(), "AVRO")
    schema_id = client.register_schema(subject, schema)
    assert client.register_schema(f"{subject}-2", schema) == schema_id
    assert json.loads(client.get_schema(schema_id).schema_str or "") == json.loads(user())
    found = client.lookup_schema(subject, schema)
    assert (found.schema_id, found.version, found.subject) == (schema_id, 1, subject)
    assert client.get_latest_version(subject).version == 1
    assert client.get_versions(subject) == [1]
    assert subject in client.get_subjects()
    assert client.get_subjects_by_schema_id(schema_id) == sorted([subject, f"{subject}-2"])
    assert code_of(lambda: client.get_latest_version("nowhere")) == 40401
    assert code_of(lambda: client.get_version(subject, 9)) == 40402


def test_the_client_evolves_a_schema_over_five_versions(
    client: SchemaRegistryClient, subject: str
) -> None:
    client.set_compatibility(subject, "FULL_TRANSITIVE")
    fields = [{"name": f"f{n}", "type": ["null", "int"], "default": None} for n in range(4)]
    for count in range(5):
        schema = Schema(user(*fields[:count]), "AVRO")
        assert client.test_compatibility(subject, schema)
        client.register_schema(subject, schema)
    assert client.get_versions(subject) == [1, 2, 3, 4, 5]
    assert not client.test_compatibility(subject, Schema(user(AGE), "AVRO"))
    assert code_of(lambda: client.register_schema(subject, Schema(user(AGE), "AVRO"))) == 409


def test_the_client_deletes_softly_and_for_good(client: SchemaRegistryClient, subject: str) -> None:
    client.register_schema(subject, Schema(user(), "AVRO"))
    client.register_schema(subject, Schema(user(AGE_WITH_DEFAULT), "AVRO"))
    assert client.delete_version(subject, 1) == 1
    assert client.delete_subject(subject) == [2]
    assert client.delete_subject(subject, permanent=True) == [1, 2]


def _full_in_groups() -> ServerConfig:
    return ServerConfig(compatibility=ConfigCompatibilityLevel.FULL, compatibility_group="major")


def test_the_client_reads_and_writes_settings(client: SchemaRegistryClient, subject: str) -> None:
    assert client.get_compatibility() == "BACKWARD"
    client.set_config(subject, _full_in_groups())
    assert client.get_config(subject).compatibility_level == "FULL"
    assert client.get_config(subject).compatibility_group == "major"


def test_references_are_followed(client: SchemaRegistryClient, subject: str) -> None:
    client.register_schema(f"{subject}-address", Schema(user(name="Address"), "AVRO"))
    order = {"type": "record", "name": "Order", "fields": [{"name": "to", "type": "shop.Address"}]}
    reference = SchemaReference("shop.Address", f"{subject}-address", 1)
    schema_id = client.register_schema(subject, Schema(json.dumps(order), "AVRO", [reference]))
    assert client.get_schema(schema_id).references == [reference]
    assert client.get_referenced_by(f"{subject}-address", 1) == [schema_id]


def test_records_of_five_versions_are_read_with_the_newest(
    client: SchemaRegistryClient, bootstrap: str
) -> None:
    topic = f"t-{uuid.uuid4().hex[:12]}"
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    context = SerializationContext(topic, MessageField.VALUE)
    fields = [{"name": f"f{n}", "type": "int", "default": n} for n in range(4)]
    for count in range(5):
        serializer = AvroSerializer(client, user(*fields[:count]))
        record = {"name": f"v{count}", **{f"f{n}": 100 for n in range(count)}}
        producer.produce(topic, value=serializer(record, context))
    assert producer.flush(60) == 0
    deserializer = AvroDeserializer(client, user(*fields))
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "x", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        found = [deserializer(consumer.poll(60).value(), context) for _ in range(5)]
    finally:
        consumer.close()
    assert found == [
        {"name": f"v{count}", **{f"f{n}": 100 if n < count else n for n in range(4)}}
        for count in range(5)
    ]


@pytest.mark.java
@pytest.mark.slow
def test_a_console_consumer_sees_the_id_before_each_value(bootstrap: str, tmp_path: Path) -> None:
    topic = f"t-{uuid.uuid4().hex[:12]}"
    context = SerializationContext(topic, MessageField.VALUE)
    with HeadraceRegistry(bootstrap, tmp_path, topic=f"{topic}-schemas") as registry:
        serializer = AvroSerializer(SchemaRegistryClient({"url": registry.url}), user())
        payload = serializer({"name": "ann"}, context)
    assert payload == b"\x00\x00\x00\x00\x01\x06ann"
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce(topic, value=payload)
    assert producer.flush(60) == 0
    shown = run_tool(
        "kafka-console-consumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"),
        *("--max-messages", "1"),
    )
    assert payload.decode() in shown.stdout
