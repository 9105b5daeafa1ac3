"""The quotas of authenticated clients, on every broker and over TLS."""

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.metadata.v12.response import MetadataResponse

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, Security, parse_bootstrap
from headrace.client.connection import Connection
from headrace.client.quotas import alter_quotas, list_quotas
from tests.security.secured import SecuredBroker
from tests.support.cluster import RunningCluster
from tests.support.raw import RawClient, batch_of, frame, produce, produce_error

TINY = {"request_percentage": 0.000001}
PLENTY = {"request_percentage": 1_000_000.0}
USERS = {"alice": "a-secret", "bob": "b-secret"}
METADATA = frame(3, 4, struct.pack(">i", 0) + b"\0")
PATIENCE_S = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured"), USERS) as running:
        yield running


@pytest.fixture
def cluster(broker: SecuredBroker) -> Iterator[Cluster]:
    config = ClientConfig(parse_bootstrap(broker.addresses["PLAINTEXT"]))
    with Cluster(config) as connected:
        yield connected
        for found in list_quotas(connected, {}):
            alter_quotas(connected, found.entity, {}, found.values)


def config(broker: SecuredBroker, protocol: str, user: str, client_id: str) -> ClientConfig:
    security = Security(
        protocol, broker.ca, mechanism="SCRAM-SHA-256", username=user, password=USERS[user]
    )
    bootstrap = parse_bootstrap(broker.addresses[protocol])
    return ClientConfig(bootstrap, client_id=client_id, security=security)


def is_throttled(
    broker: SecuredBroker, user: str, client_id: str, protocol: str = "SASL_PLAINTEXT"
) -> bool:
    """Whether the second of two requests is; the first one's time is not known before."""
    settings = config(broker, protocol, user, client_id)
    request = MetadataRequest(topics=(), include_topic_authorized_operations=False)
    with Connection(settings.bootstrap[0], settings) as connection:
        connection.ask(request, MetadataResponse)
        response = connection.ask(request, MetadataResponse)
    return response.throttle_time.total_seconds() > 0


def test_the_quota_of_a_user_counts_for_all_its_clients(
    broker: SecuredBroker, cluster: Cluster
) -> None:
    alter_quotas(cluster, {"user": "alice"}, TINY)
    assert is_throttled(broker, "alice", "one")
    assert is_throttled(broker, "alice", "two")
    assert not is_throttled(broker, "bob", "one")


def test_the_most_specific_quota_counts(broker: SecuredBroker, cluster: Cluster) -> None:
    alter_quotas(cluster, {"client-id": None}, TINY)
    assert is_throttled(broker, "alice", "one")
    alter_quotas(cluster, {"client-id": "one"}, PLENTY)
    assert not is_throttled(broker, "alice", "one")
    alter_quotas(cluster, {"user": None}, TINY)
    assert is_throttled(broker, "alice", "one")
    alter_quotas(cluster, {"user": None, "client-id": "one"}, PLENTY)
    assert not is_throttled(broker, "alice", "one")
    alter_quotas(cluster, {"user": "alice"}, TINY)
    assert is_throttled(broker, "alice", "one")
    assert not is_throttled(broker, "bob", "one")
    alter_quotas(cluster, {"user": "alice", "client-id": None}, PLENTY)
    assert not is_throttled(broker, "alice", "one")
    alter_quotas(cluster, {"user": "alice", "client-id": "one"}, TINY)
    assert is_throttled(broker, "alice", "one")
    assert not is_throttled(broker, "alice", "two")


def test_a_throttled_connection_with_tls_is_read_again(
    broker: SecuredBroker, cluster: Cluster
) -> None:
    alter_quotas(cluster, {"client-id": "three"}, TINY)
    settings = config(broker, "SASL_SSL", "alice", "three")
    request = MetadataRequest(topics=(), include_topic_authorized_operations=False)
    with Connection(settings.bootstrap[0], settings) as connection:
        for _ in range(4):
            connection.send(request)
        answers = [connection.receive() for _ in range(4)]
        throttles = [struct.unpack_from(">i", one.data, one.start)[0] for one in answers]
    assert any(throttles), "the connection was throttled, and went on"


def test_a_quota_counts_on_every_broker(tmp_path: Path) -> None:
    with RunningCluster(tmp_path, 2) as cluster:
        with cluster.client(1) as first:
            alter_quotas(first, {"client-id": "raw"}, TINY)
        with RawClient(cluster.brokers[2].bootstrap_servers) as client:
            deadline = time.monotonic() + PATIENCE_S
            while not struct.unpack_from(">i", client.ask(METADATA), 4)[0]:
                assert time.monotonic() < deadline, "the other broker has not heard of the quota"


def test_replication_continues_with_default_quotas(tmp_path: Path) -> None:
    with RunningCluster(tmp_path, 2) as cluster:
        cluster.create("orders", factor=2)
        with cluster.client(1) as connected:
            for entity in ({"user": None}, {"client-id": None}):
                alter_quotas(connected, entity, {"consumer_byte_rate": 1, **TINY})
        leader = cluster.brokers[cluster.leader("orders")]
        with RawClient(leader.bootstrap_servers) as client:
            for _ in range(3):
                answer = client.ask(produce("orders", batch_of(b"x" * 10_000), acks=-1))
                assert produce_error(answer, "orders")[0] == 0
        assert sorted(cluster.topic("orders").partitions[0].isrs) == [1, 2]
