"""Converters that use a schema registry: what a source writes, clients and sinks can read."""

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession

from headrace.connect.converters.reading import read_records, source_options
from headrace.connect.converters.registry_options import writing_options
from headrace.connect.converters.writing import write_records
from headrace.connect.plugin import OptionError
from headrace.testing.running import RunningBroker
from tests.support.headrace_registry import HeadraceRegistry
from tests.support.topics import create_topic

pytestmark = pytest.mark.spark

CLASSES = {
    "avro": "io.confluent.connect.avro.AvroConverter",
    "json": "io.confluent.connect.json.JsonSchemaConverter",
    "protobuf": "io.confluent.connect.protobuf.ProtobufConverter",
}
STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
ROWS = "select 't' as topic, 'k' as key, struct(1 as id, 'é' as name, 2.5D as price) as value"


@pytest.fixture(scope="module")
def registry(
    headrace: RunningBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HeadraceRegistry]:
    folder = tmp_path_factory.mktemp("registry")
    with HeadraceRegistry(headrace.bootstrap_servers, folder) as running:
        yield running


def config(form: str, url: str, **more: str) -> dict[str, str]:
    given = {"key.converter": STRING_CONVERTER, "value.converter": CLASSES[form]}
    given["value.converter.schema.registry.url"] = url
    return given | {f"value.converter.{n.replace('_', '.')}": v for n, v in more.items()}


@pytest.mark.parametrize("form", CLASSES)
def test_records_of_a_source_are_read_by_a_sink(
    spark: SparkSession, headrace: RunningBroker, registry: HeadraceRegistry, form: str
) -> None:
    topic = f"registry-{uuid.uuid4().hex[:8]}"
    create_topic(headrace.bootstrap_servers, topic, 1)
    given = config(form, registry.url)
    written = write_records(spark.sql(ROWS), given, topic)
    assert written.schema["value"].dataType.typeName() == "binary"
    place = {"kafka.bootstrap.servers": headrace.bootstrap_servers}
    written.write.format("headrace").options(**place).option("topic", topic).mode("append").save()
    producer = Producer({"bootstrap.servers": headrace.bootstrap_servers})
    producer.produce(topic, b"bad", b"k2")
    producer.produce(topic, None, b"k3")
    assert producer.flush(60) == 0
    source = spark.read.format("headrace").options(**place, **source_options(given))
    records = read_records(source.option("subscribe", topic).load(), given, lambda _: None)
    found = records.orderBy("offset").collect()
    assert [row["key"] for row in found] == ["k", "k2", "k3"]
    assert found[0]["value"].asDict() == {"id": 1, "name": "é", "price": 2.5}
    assert [row["_error"] is None for row in found] == [True, False, True]
    assert (found[1]["_stage"], found[1]["_raw"]["value"]) == ("VALUE_CONVERTER", b"bad")
    assert found[2]["value"] is None
    assert [row["_raw"]["key"] for row in found] == [b"k", b"k2", b"k3"]
    assert bytes(found[0]["_raw"]["value"]).startswith(b"\x00")


def test_the_schema_is_registered_when_the_plan_is_built(
    spark: SparkSession, headrace: RunningBroker, registry: HeadraceRegistry
) -> None:
    topic = f"registry-{uuid.uuid4().hex[:8]}"
    create_topic(headrace.bootstrap_servers, topic, 1)
    written = write_records(spark.sql(ROWS), config("avro", registry.url), topic)
    with SchemaRegistryClient({"url": registry.url}) as client:
        assert client.get_latest_version(f"{topic}-value").version == 1
        (row,) = written.collect()
        context = SerializationContext(topic, MessageField.VALUE)
        value = AvroDeserializer(client)(bytes(row["value"]), context)
    assert value == {"id": 1, "name": "é", "price": 2.5}


def test_a_value_that_the_schema_does_not_permit_fails_alone(
    spark: SparkSession, headrace: RunningBroker, registry: HeadraceRegistry
) -> None:
    topic = f"registry-{uuid.uuid4().hex[:8]}"
    create_topic(headrace.bootstrap_servers, topic, 1)
    given = config("avro", registry.url, use_latest_version="true", auto_register_schemas="false")
    schema = '{"type":"record","name":"r","fields":[{"name":"id","type":"int"}]}'
    with SchemaRegistryClient({"url": registry.url}) as client:
        client.register_schema(f"{topic}-value", Schema(schema, "AVRO"))
    ids = spark.sql(
        "select 't' as topic, 'k' as key, struct(if(id = 3, null, int(id)) as id) as value "
        "from range(0, 10, 1, 1)"
    )
    found = write_records(ids, given, topic).collect()
    assert [place for place, row in enumerate(found) if row["_error"] is not None] == [3]
    assert [row["value"] is None for row in found].count(True) == 1
    assert found[3]["_stage"] == "VALUE_CONVERTER"
    assert found[3]["_error"].startswith("value: ")


def test_options_of_the_converter_become_those_of_typed_topics() -> None:
    url = "http://localhost:8081"
    given = config("avro", url, basic_auth_user_info="me:secret", use_latest_version="true")
    given["value.converter.auto.register.schemas"] = "false"
    given["value.converter.basic.auth.credentials.source"] = "USER_INFO"
    assert source_options(given) == {
        "includeHeaders": "true",
        "value.format": "avro",
        "schema.registry.url": url,
        "schema.registry.basic.auth.user.info": "me:secret",
        "raw.records": "all",
    }
    assert writing_options(given, "value", "t") == {
        "value.format": "avro",
        "schema.registry.url": url,
        "schema.registry.basic.auth.user.info": "me:secret",
        "value.subject": "t-value",
        "value.subject.version": "latest",
    }
    given["key.converter"] = CLASSES["avro"]
    given["key.converter.schema.registry.url"] = "http://elsewhere:8081"
    with pytest.raises(OptionError, match="different registries"):
        source_options(given)
