"""A registry on our broker and on a real Apache Kafka: what passes here must pass there."""

import uuid
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from tests.support.apache_kafka import ApacheKafka
from tests.support.headrace_broker import HeadraceBroker
from tests.support.headrace_registry import HeadraceRegistry

KAFKA = pytest.param("kafka", marks=[pytest.mark.java, pytest.mark.slow])


@pytest.fixture(scope="session", params=["headrace", KAFKA])
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A cluster."""
    if request.param == "kafka":
        kafka: ApacheKafka = request.getfixturevalue("apache_kafka")
        yield kafka.bootstrap
        return
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with HeadraceBroker(tmp_path_factory.mktemp("cluster"), settings=settings) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session")
def registry(
    bootstrap: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HeadraceRegistry]:
    """A registry that all tests share; each uses subjects of its own."""
    with HeadraceRegistry(bootstrap, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def http(registry: HeadraceRegistry) -> Iterator[httpx.Client]:
    # Reading the certificates of authorities would take longer than most tests.
    with httpx.Client(base_url=registry.url, timeout=60, verify=False) as client:
        yield client


@pytest.fixture
def client(registry: HeadraceRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as made:
        yield made


@pytest.fixture
def subject() -> str:
    return f"s-{uuid.uuid4().hex[:12]}-value"
