"""A broker, a registry, and topics that are read as Spark's processes do it, without Spark."""

import pickle
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.testing.running import RunningBroker
from pyspark_headrace import DefaultSource
from tests.support import java
from tests.support.apache_kafka import ApacheKafka
from tests.support.counting_proxy import CountingProxy
from tests.support.headrace_registry import HeadraceRegistry
from tests.support.topics import create_topic


@dataclass(slots=True)
class Topic:
    """A typed topic of a test's own."""

    bootstrap: str
    registry_url: str
    name: str = field(default_factory=lambda: f"typed-{uuid.uuid4().hex[:10]}")

    def __post_init__(self) -> None:
        create_topic(self.bootstrap, self.name, 1)

    @property
    def subject(self) -> str:
        return f"{self.name}-value"

    @property
    def context(self) -> SerializationContext:
        return SerializationContext(self.name, MessageField.VALUE)

    @property
    def key_context(self) -> SerializationContext:
        return SerializationContext(self.name, MessageField.KEY)

    def produce(self, *values: bytes | None, key: bytes | None = None) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for value in values:
            producer.produce(self.name, value, key)
        assert producer.flush(60) == 0

    def options(self, **more: str) -> dict[str, str]:
        given = {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.name,
            "schema.registry.url": self.registry_url,
        }
        return given | {name.replace("__", "."): value for name, value in more.items()}

    def source(self, **more: str) -> DefaultSource:
        return DefaultSource(options=self.options(**more))

    def read(self, **more: str) -> pa.Table:
        """The whole topic, with the batches checked as Spark does."""
        return read_source(self.source(**more))

    def values(self, **more: str) -> Sequence[object]:
        """What the column `value` has, where nothing may be bad."""
        found = self.read(**more)
        assert found.column("_error").to_pylist() == [None] * len(found)
        values: list[object] = found.column("value").to_pylist()
        return values


def read_source(source: DefaultSource) -> pa.Table:
    schema = source.schema()
    # Spark sends the source to another process when it has its schema, and the reader to tasks.
    source = pickle.loads(pickle.dumps(source))
    reader = source.reader(schema)
    partitions = reader.partitions()
    expected = to_arrow_schema(schema, timezone="UTC")
    batches = []
    for partition in partitions:
        for batch in pickle.loads(pickle.dumps(reader)).read(partition):
            assert expected.equals(batch.schema), f"{batch.schema}\n--\n{expected}"
            batch.validate(full=True)
            batches.append(batch)
    return pa.Table.from_batches(batches, expected)


KAFKA = pytest.param("kafka", marks=[pytest.mark.java, pytest.mark.slow])


@pytest.fixture(scope="session", params=["headrace", KAFKA])
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Our broker and a real Apache Kafka: what passes here must pass there."""
    if request.param == "headrace":
        broker: RunningBroker = request.getfixturevalue("headrace")
        yield broker.bootstrap_servers
        return
    if reason := java.missing():
        pytest.skip(reason)
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), quick=True) as kafka:
        yield kafka.bootstrap


@pytest.fixture(scope="session")
def registry(
    bootstrap: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HeadraceRegistry]:
    with HeadraceRegistry(bootstrap, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def proxy(registry: HeadraceRegistry) -> Iterator[CountingProxy]:
    with CountingProxy(registry.url) as running:
        yield running


@pytest.fixture
def client(registry: HeadraceRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as made:
        yield made


@pytest.fixture
def topic(bootstrap: str, proxy: CountingProxy) -> Topic:
    return Topic(bootstrap, proxy.url)
