"""confluent-kafka's JSON and Protobuf serializers, as they are, over five versions of a schema."""

import json
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

VERSIONS = 5


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


class Pipe:
    """Bytes through a topic of the real cluster."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.context = SerializationContext(topic, MessageField.VALUE)
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "x", "log_level": 0})

    def send(self, payload: bytes) -> None:
        self._producer.produce(self._topic, value=payload)

    def receive(self, count: int) -> Iterator[bytes]:
        assert self._producer.flush(60) == 0
        self._consumer.assign([TopicPartition(self._topic, 0, 0)])
        try:
            for _ in range(count):
                yield self._consumer.poll(60).value()
        finally:
            self._consumer.close()


def json_schema(fields: int) -> str:
    properties = {f"f{n}": {"type": "integer"} for n in range(fields)}
    return json.dumps(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": "Thing",
            "type": "object",
            "properties": {"name": {"type": "string"}, **properties},
            "required": ["name"],
            "additionalProperties": False,
        }
    )


def test_json_of_five_versions_goes_through(
    client: SchemaRegistryClient, bootstrap: str, topic: str
) -> None:
    pipe = Pipe(bootstrap, topic)
    things = []
    for count in range(VERSIONS):
        things.append({"name": f"v{count}", **{f"f{n}": n for n in range(count)}})
        pipe.send(JSONSerializer(json_schema(count), client)(things[-1], pipe.context))
    deserializer = JSONDeserializer(json_schema(VERSIONS), schema_registry_client=client)
    assert [deserializer(each, pipe.context) for each in pipe.receive(VERSIONS)] == things
    assert client.get_versions(f"{topic}-value") == [1, 2, 3, 4, 5]
    smaller = Schema(json_schema(1).replace("Thing", "Other"), "JSON")
    with pytest.raises(SchemaRegistryError, match="field 'f1'"):
        client.register_schema(f"{topic}-value", smaller)


def proto_class(fields: int, package: str) -> type:
    """A generated message class, made here instead of by protoc."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
    )  # fmt: skip
    message = file.message_type.add(name="Thing")
    kind = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="name", number=1, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
    message.field.add(
        name="at", number=2, type=kind.TYPE_MESSAGE, label=kind.LABEL_OPTIONAL,
        type_name=".google.protobuf.Timestamp",
    )  # fmt: skip
    for n in range(fields):
        message.field.add(name=f"f{n}", number=n + 3, type=kind.TYPE_INT32, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    found = pool.FindMessageTypeByName(f"{package}.Thing")
    made: type = message_factory.GetMessageClass(found)
    return made


def test_protobuf_of_five_versions_goes_through(
    client: SchemaRegistryClient, bootstrap: str, topic: str
) -> None:
    pipe = Pipe(bootstrap, topic)
    package = topic.replace("-", "_")
    for count in range(VERSIONS):
        kind = proto_class(count, package)
        thing = kind(name=f"v{count}", **{f"f{n}": n + 1 for n in range(count)})
        thing.at.seconds = 7
        pipe.send(ProtobufSerializer(kind, client)(thing, pipe.context))
    newest = proto_class(VERSIONS, package)
    deserializer = ProtobufDeserializer(newest, {}, client)
    found = [deserializer(each, pipe.context) for each in pipe.receive(VERSIONS)]
    assert [each.name for each in found] == [f"v{count}" for count in range(VERSIONS)]
    assert [each.at.seconds for each in found] == [7] * VERSIONS
    assert [each.f0 for each in found] == [0, 1, 1, 1, 1]
    assert client.get_versions(f"{topic}-value") == [1, 2, 3, 4, 5]
    shown = client.get_latest_version(f"{topic}-value").schema.schema_str or ""
    assert "message Thing {" in shown


def test_an_incompatible_message_is_refused_by_its_field(
    client: SchemaRegistryClient, subject: str
) -> None:
    old = 'syntax = "proto3"; message M { int32 a = 1; }'
    client.register_schema(subject, Schema(old, "PROTOBUF"))
    with pytest.raises(SchemaRegistryError, match=r"field 'M\.a' \(1\)"):
        client.register_schema(subject, Schema(old.replace("int32", "string"), "PROTOBUF"))


def test_imported_files_are_references(client: SchemaRegistryClient, subject: str) -> None:
    part = 'syntax = "proto3"; package p; message P { int32 a = 1; }'
    client.register_schema(f"{subject}-part", Schema(part, "PROTOBUF"))
    whole = 'syntax = "proto3"; import "p.proto"; message W { p.P p = 1; }'
    reference = SchemaReference("p.proto", f"{subject}-part", 1)
    schema_id = client.register_schema(subject, Schema(whole, "PROTOBUF", [reference]))
    assert client.get_schema(schema_id).references == [reference]
    with pytest.raises(SchemaRegistryError, match=r"p\.proto"):
        client.register_schema(f"{subject}-2", Schema(whole, "PROTOBUF"))
