"""Topics that take only records with a registered schema: our broker's work, so only on it."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.registry.schemas import user
from tests.support.headrace_broker import HeadraceBroker
from tests.support.headrace_registry import HeadraceRegistry


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceBroker]:
    with HeadraceBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def registry_here(
    broker: HeadraceBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HeadraceRegistry]:
    with HeadraceRegistry(broker.bootstrap, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def schemas(registry_here: HeadraceRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry_here.url}) as made:
        yield made


def make_topic(broker: HeadraceBroker, **config: str) -> str:
    name = f"t-{uuid.uuid4().hex[:10]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, config=config)])[name].result(60)
    return name


def outcomes(
    broker: HeadraceBroker, topic: str, *records: tuple[bytes | None, bytes | None], codec: str = ""
) -> list[str | None]:
    """The error of each (key, value), or None; all in one batch."""
    found: list[str | None] = []

    def report(error: KafkaError | None, _: object) -> None:
        found.append(None if error is None else error.name())

    settings: dict[str, object] = {"bootstrap.servers": broker.bootstrap, "linger.ms": 50}
    producer = Producer({**settings, "compression.type": codec or "none"})
    for key, value in records:
        producer.produce(topic, key=key, value=value, on_delivery=report)
    assert producer.flush(60) == 0
    return found


def framed(schema_id: int, body: bytes = b"x") -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + body


def test_only_values_with_a_registered_id_are_taken(
    broker: HeadraceBroker, schemas: SchemaRegistryClient
) -> None:
    topic = make_topic(broker, **{"value.schema.validation": "true"})
    serializer = AvroSerializer(schemas, user())
    context = SerializationContext(topic, MessageField.VALUE)
    good = serializer({"name": "ann"}, context)
    assert outcomes(broker, topic, (b"k", good), (b"k", None)) == [None, None]
    for bad in (b"plain", b"", b"\x00\x00", framed(9999), b"\x01" + good[1:]):
        assert outcomes(broker, topic, (b"k", bad)) == ["INVALID_RECORD"]
    # The batch is refused as a whole.
    assert outcomes(broker, topic, (b"k", good), (b"k", b"plain")) == ["INVALID_RECORD"] * 2


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd", "snappy"])
def test_compressed_batches_are_looked_into(
    broker: HeadraceBroker, schemas: SchemaRegistryClient, codec: str
) -> None:
    topic = make_topic(broker, **{"value.schema.validation": "true"})
    schema_id = schemas.register_schema(f"{topic}-value", Schema(user(), "AVRO"))
    good, bad = (None, framed(schema_id, b"x" * 200)), (None, b"y" * 200)
    assert outcomes(broker, topic, good, good, codec=codec) == [None, None]
    assert outcomes(broker, topic, bad, bad, codec=codec) == ["INVALID_RECORD"] * 2


def test_keys_have_a_setting_of_their_own(
    broker: HeadraceBroker, schemas: SchemaRegistryClient
) -> None:
    topic = make_topic(broker, **{"key.schema.validation": "true"})
    schema_id = schemas.register_schema(f"{topic}-key", Schema('"string"', "AVRO"))
    assert outcomes(broker, topic, (framed(schema_id), b"anything"), (None, b"any")) == [None] * 2
    assert outcomes(broker, topic, (b"plain", b"anything")) == ["INVALID_RECORD"]


def test_a_schema_counts_as_soon_as_it_is_registered_and_until_it_is_deleted_for_good(
    broker: HeadraceBroker, schemas: SchemaRegistryClient, registry_here: HeadraceRegistry
) -> None:
    topic = make_topic(broker, **{"value.schema.validation": "true"})
    name = uuid.uuid4().hex[:8]
    schema_id = schemas.register_schema(name, Schema(user(name=f"U{name}"), "AVRO"))
    assert outcomes(broker, topic, (None, framed(schema_id + 1))) == ["INVALID_RECORD"]
    following = schemas.register_schema(f"{name}-2", Schema(user(name=f"V{name}"), "AVRO"))
    assert following == schema_id + 1
    assert outcomes(broker, topic, (None, framed(following))) == [None]
    schemas.delete_subject(name)
    assert outcomes(broker, topic, (None, framed(schema_id))) == [None]
    schemas.delete_subject(name, permanent=True)
    # Another unknown id makes the broker read on; what it has read counts for all.
    assert outcomes(broker, topic, (None, framed(9999))) == ["INVALID_RECORD"]
    assert outcomes(broker, topic, (None, framed(schema_id))) == ["INVALID_RECORD"]


def test_the_setting_may_change_while_the_topic_is_in_use(
    broker: HeadraceBroker, schemas: SchemaRegistryClient
) -> None:
    topic = make_topic(broker)
    assert outcomes(broker, topic, (None, b"plain")) == [None]
    entry = ConfigEntry(
        "value.schema.validation", "true", incremental_operation=AlterConfigOpType.SET
    )
    change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([change])[change].result(60)
    assert outcomes(broker, topic, (None, b"plain")) == ["INVALID_RECORD"]


def test_without_a_registry_nothing_is_registered(tmp_path: Path) -> None:
    with HeadraceBroker(tmp_path) as alone:
        topic = make_topic(alone, **{"value.schema.validation": "true"})
        assert outcomes(alone, topic, (None, framed(1))) == ["INVALID_RECORD"]
        assert outcomes(alone, topic, (None, None)) == [None]


def test_a_restarted_broker_reads_the_ids_again(
    tmp_path: Path,
) -> None:
    with HeadraceBroker(tmp_path) as own:
        topic = make_topic(own, **{"value.schema.validation": "true"})
        with HeadraceRegistry(own.bootstrap, tmp_path) as registry:
            client = SchemaRegistryClient({"url": registry.url})
            schema_id = 0
            for number in range(30):
                fields = [{"name": f"f{n}", "type": "int"} for n in range(60)]
                text = user(*fields, name=f"U{number}")
                schema_id = client.register_schema(f"s{number}", Schema(text, "AVRO"))
        own.kill()
        own.start()
        assert outcomes(own, topic, (None, framed(schema_id))) == [None]
        assert outcomes(own, topic, (None, framed(schema_id + 1))) == ["INVALID_RECORD"]
