"""The client against our broker and against a real Apache Kafka: the same tests for both."""

import uuid
from collections.abc import Callable, Iterator

import pytest

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.testing.running import RunningBroker
from tests.support.apache_kafka import ApacheKafka
from tests.support.topics import create_topic

Connect = Callable[[str], Cluster]


@pytest.fixture(scope="session", params=["headrace", pytest.param("kafka", marks=pytest.mark.java)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    if request.param == "headrace":
        broker: RunningBroker = request.getfixturevalue("headrace")
        return broker.bootstrap_servers
    kafka: ApacheKafka = request.getfixturevalue("apache_kafka")
    return kafka.bootstrap


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Clients with little patience; they end with the test."""
    made: list[Cluster] = []

    def make(bootstrap: str) -> Cluster:
        config = ClientConfig(parse_bootstrap(bootstrap), total_timeout_s=60, retry_backoff_s=0.05)
        made.append(Cluster(config))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture
def cluster(connect: Connect, bootstrap: str) -> Cluster:
    return connect(bootstrap)


@pytest.fixture
def topic(bootstrap: str) -> str:
    return create_topic(bootstrap, f"c-{uuid.uuid4().hex[:12]}", 2)
