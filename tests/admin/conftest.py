"""Administration against our broker and against a real Apache Kafka: the same tests for both."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest
from confluent_kafka import Producer

from headrace.client.cluster import Cluster, Shape
from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.client.groups import Committed, commit_offsets
from headrace.testing.running import RunningBroker
from headrace.types import TopicPartition
from tests.support.apache_kafka import ApacheKafka
from tests.support.topics import create_topic

MakeTopic = Callable[..., str]


class CountingCluster(Cluster):
    """A client that counts its requests."""

    requests = 0

    def ask(self, request: object, shape: type[Shape], broker: int | None = None) -> Shape:
        self.requests += 1
        return super().ask(request, shape, broker)


@pytest.fixture(scope="session", params=["headrace", pytest.param("kafka", marks=pytest.mark.java)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    if request.param == "headrace":
        broker: RunningBroker = request.getfixturevalue("headrace")
        return broker.bootstrap_servers
    kafka: ApacheKafka = request.getfixturevalue("apache_kafka")
    return kafka.bootstrap


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[CountingCluster]:
    config = ClientConfig(parse_bootstrap(bootstrap), total_timeout_s=60, retry_backoff_s=0.05)
    with CountingCluster(config) as made:
        yield made


@pytest.fixture
def make_topic(bootstrap: str) -> MakeTopic:
    def make(partitions: int = 1, **config: str) -> str:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        return create_topic(bootstrap, f"a-{uuid.uuid4().hex[:12]}", partitions, settings)

    return make


def produce(
    bootstrap: str,
    topic: str,
    timestamps_ms: Sequence[int],
    *,
    partition: int = 0,
    value_bytes: int = 10,
    compression: str = "none",
) -> None:
    """Write a record for each timestamp."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 50, "compression.type": compression}
    )
    for number, timestamp in enumerate(timestamps_ms):
        producer.produce(
            topic,
            key=b"%d" % number,
            value=b"x" * value_bytes,
            partition=partition,
            timestamp=timestamp,
        )
    assert producer.flush(60) == 0


def commit(bootstrap: str, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Commit offsets for a group without members; waits for a coordinator that is loading."""
    rows = {TopicPartition(*at): Committed(offset) for at, offset in offsets.items()}
    with Cluster(ClientConfig(parse_bootstrap(bootstrap))) as cluster:
        commit_offsets(cluster, group, rows)
