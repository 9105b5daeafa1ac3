"""A broker and a worker that tests share; each test uses connectors of its own."""

import uuid
from collections.abc import Iterator

import pytest

from tests.connect.running import RunningConnect, running_connect
from tests.support.headrace_broker import HeadraceBroker
from tests.support.message_brokers import (
    MosquittoServer,
    RabbitMqServer,
    mosquitto_program,
    rabbitmq_program,
)


@pytest.fixture(scope="session")
def connect_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with HeadraceBroker(tmp_path_factory.mktemp("connect"), settings=settings) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session")
def worker(connect_bootstrap: str) -> Iterator[RunningConnect]:
    with running_connect(connect_bootstrap) as running:
        yield running


@pytest.fixture
def name() -> str:
    return f"c-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def quiet_worker(connect_bootstrap: str) -> Iterator[RunningConnect]:
    """A worker without connectors of other tests, with the converters of Kafka's example."""
    json = "org.apache.kafka.connect.json.JsonConverter"
    with running_connect(connect_bootstrap, settings={"key.converter": json}) as running:
        yield running


@pytest.fixture(scope="session")
def mosquitto_server() -> Iterator[MosquittoServer]:
    if mosquitto_program() is None:
        pytest.skip("needs Mosquitto")
    with MosquittoServer() as running:
        yield running


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[RabbitMqServer]:
    if rabbitmq_program() is None:
        pytest.skip("needs RabbitMQ's server")
    with RabbitMqServer() as running:
        yield running
