"""What a worker keeps for its next task, and how tasks notice that it is out of date."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.client import cluster as client_cluster
from headrace.client import fetching, layout
from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, Security, parse_bootstrap
from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.errors import ErrorCode
from headrace.pipelines.source import kept_clusters
from headrace.pipelines.source.kept_clusters import MAX_CLUSTERS, task_cluster
from headrace.pipelines.source.options import parse_options
from headrace.pipelines.source.ranges import OffsetRange
from headrace.pipelines.source.readers import read_ranges
from headrace.pipelines.worker_memory import REUSED
from headrace.testing.plugin import BrokerFactory
from headrace.testing.running import RunningBroker
from headrace.types import Address, TopicPartition, encode_uuid
from tests.support.cluster import RunningCluster
from tests.support.topics import create_topic, recreate_topic

CONFIG = ClientConfig((Address("127.0.0.1", 1),))
NO_PATIENCE = "600000"
"""As `retry.backoff.ms`: a task that waits before it tries again gives up instead."""


@pytest.fixture(autouse=True)
def _worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(REUSED, "1")
    # The modules of a test run are not to be frozen.
    monkeypatch.setattr("headrace.pipelines.worker_memory._frozen", True)
    assert not kept_clusters._kept
    yield
    for kept in kept_clusters._kept.values():
        kept.cluster.close()
    kept_clusters._kept.clear()


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    """The connections that are made in a test."""
    made: list[Connection] = []

    def connect(address: Address, config: ClientConfig) -> Connection:
        made.append(Connection(address, config))
        return made[-1]

    monkeypatch.setattr(client_cluster, "Connection", connect)
    return made


@pytest.fixture
def broker(headrace_factory: BrokerFactory) -> RunningBroker:
    return headrace_factory()


def produce(bootstrap: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(60) == 0


def read(
    bootstrap: str, topic: str, start: int, stop: int, topic_id: str | None = None, **options: str
) -> list[int]:
    """What a task reads."""
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    given |= {name.replace("__", "."): value for name, value in options.items()}
    ranges = (OffsetRange(TopicPartition(topic, 0), start, stop, topic_id),)
    batches = read_ranges(parse_options(given, streaming=True), ranges)
    return [int(value.as_py()) for batch in batches for value in batch.column("value")]


def test_the_next_task_uses_the_connections_of_the_last(
    broker: RunningBroker, connections: list[Connection]
) -> None:
    where = broker.bootstrap_servers
    topic = create_topic(where, "t")
    produce(where, topic, range(20))
    assert read(where, topic, 0, 10) == list(range(10))
    first = len(connections)
    assert read(where, topic, 10, 20) == list(range(10, 20))
    assert read(where, topic, 5, 15) == list(range(5, 15))
    assert len(connections) == first


def test_the_ranges_of_a_task_share_a_connection(
    broker: RunningBroker, connections: list[Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(REUSED)
    where = broker.bootstrap_servers
    topic = create_topic(where, "t", 3)
    produce(where, topic, range(5))
    options = parse_options({"kafka.bootstrap.servers": where, "subscribe": topic}, streaming=True)
    ranges = tuple(OffsetRange(TopicPartition(topic, 0), n, n + 1) for n in range(5))
    assert sum(batch.num_rows for batch in read_ranges(options, ranges)) == 5
    assert len(connections) == 2  # one for questions, one to fetch
    assert all(each.fileno() < 0 for each in connections), "a worker that is not reused closes them"


def test_a_broker_that_restarted_between_tasks_costs_no_record(broker: RunningBroker) -> None:
    where = broker.bootstrap_servers
    topic = create_topic(where, "t")
    produce(where, topic, range(20))
    assert read(where, topic, 0, 10, kafka__retry__backoff__ms=NO_PATIENCE) == list(range(10))
    broker.kill()
    broker.start()
    read_again = read(where, topic, 10, 20, kafka__retry__backoff__ms=NO_PATIENCE)
    assert read_again == list(range(10, 20))


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    ],
)
def test_an_error_from_a_kept_leader_is_believed_only_from_a_new_one(
    broker: RunningBroker, connections: list[Connection], error: ErrorCode
) -> None:
    where = broker.bootstrap_servers
    topic = create_topic(where, "t")
    produce(where, topic, range(20))
    options = {"kafka__retry__backoff__ms": NO_PATIENCE}
    assert read(where, topic, 0, 10, **options) == list(range(10))
    first = len(connections)
    broker.fail("Fetch", error, 1)
    assert read(where, topic, 10, 20, **options) == list(range(10, 20))
    assert len(connections) == 2 * first


def test_a_connection_that_dies_in_the_middle_of_a_task_costs_no_record(
    broker: RunningBroker,
) -> None:
    where = broker.bootstrap_servers
    topic = create_topic(where, "t")
    for first in range(0, 50, 5):
        produce(where, topic, range(first, first + 5))
    options = {"kafka__retry__backoff__ms": NO_PATIENCE, "kafka__max__partition__fetch__bytes": "1"}
    assert read(where, topic, 0, 10, **options) == list(range(10))
    broker.cut("Fetch", 1)
    assert read(where, topic, 10, 50, **options) == list(range(10, 50))


def test_a_task_follows_a_leader_that_has_moved_since_the_last_task(tmp_path: Path) -> None:
    with RunningCluster(tmp_path / "metadata", 2) as running:
        running.create("t", 1, 1)
        where = running.bootstrap_servers
        produce(where, "t", range(10))
        options = {"kafka__retry__backoff__ms": NO_PATIENCE}
        assert read(where, "t", 0, 10, **options) == list(range(10))
        (kept,) = kept_clusters._kept.values()
        at = TopicPartition("t", 0)
        old = kept.cluster.leader(at)
        with Cluster(ClientConfig(parse_bootstrap(where))) as admin:
            layout.move(admin, {at: (3 - old,)})
        running.wait_for("t", lambda topic: topic.partitions[0].replicas == (3 - old,))
        produce(where, "t", range(10, 20))
        assert kept.cluster.leader(at) == old, "the next task would not have to follow"
        assert read(where, "t", 5, 20, **options) == list(range(5, 20))
        assert kept.cluster.leader(at) == 3 - old


def test_a_topic_that_was_created_again_since_the_last_task_is_read(broker: RunningBroker) -> None:
    where = broker.bootstrap_servers
    topic = create_topic(where, "t")
    produce(where, topic, range(10))
    assert read(where, topic, 0, 10) == list(range(10))
    recreate_topic(where, topic)
    produce(where, topic, range(100, 110))
    assert read(where, topic, 0, 10) == list(range(100, 110))


def test_a_broker_that_does_not_compare_topic_ids_is_not_trusted_with_a_kept_one(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "BY_ID", 99)  # no broker has this version of Fetch
    monkeypatch.setattr(fetching, "NEW_TOPIC_PATIENCE_S", 0.2)
    where = broker.bootstrap_servers
    topic = create_topic(where, "t")
    produce(where, topic, range(10))
    with Cluster(ClientConfig(parse_bootstrap(where))) as cluster:
        found = cluster.topics([topic])[topic].topic_id
    assert found is not None
    old_id = encode_uuid(found)
    assert read(where, topic, 0, 10, old_id) == list(range(10))
    recreate_topic(where, topic)
    produce(where, topic, range(100, 120))
    with pytest.raises(ClientError, match="deleted and created again"):
        read(where, topic, 10, 20, old_id)


def test_records_that_are_really_gone_are_reported(broker: RunningBroker) -> None:
    where = broker.bootstrap_servers
    topic = create_topic(where, "t")
    produce(where, topic, range(10))
    assert read(where, topic, 0, 10) == list(range(10))
    with pytest.raises(ClientError, match="ends at offset 10, before 50"):
        read(where, topic, 50, 60)
    assert not kept_clusters._kept


@pytest.mark.parametrize(
    "other",
    [
        replace(CONFIG, client_id="another"),
        replace(CONFIG, bootstrap=(Address("127.0.0.1", 2),)),
        replace(CONFIG, security=Security("SASL_SSL", username="u", password="p")),
    ],
)
def test_only_the_very_same_configuration_shares(other: ClientConfig) -> None:
    with task_cluster(CONFIG) as first:
        pass
    with task_cluster(other) as second:
        assert second is not first
    with task_cluster(CONFIG) as again:
        assert again is first


def test_another_password_means_other_connections() -> None:
    def login(password: str) -> ClientConfig:
        security = Security("SASL_PLAINTEXT", username="u", password=password)
        return replace(CONFIG, security=security)

    with task_cluster(login("right")) as first:
        pass
    with task_cluster(login("wrong")) as second:
        assert second is not first
        assert not second.kept


def test_a_configuration_with_a_tls_context_of_its_own_shares_with_none() -> None:
    import ssl

    config = replace(CONFIG, security=Security("SSL", context=ssl.create_default_context()))
    with task_cluster(config):
        pass
    assert not kept_clusters._kept


def test_a_task_that_fails_or_is_cut_short_leaves_nothing(broker: RunningBroker) -> None:
    with pytest.raises(ZeroDivisionError), task_cluster(CONFIG):
        raise ZeroDivisionError
    assert not kept_clusters._kept
    where = broker.bootstrap_servers
    topic = create_topic(where, "t")
    produce(where, topic, range(10))
    options = parse_options({"kafka.bootstrap.servers": where, "subscribe": topic}, streaming=True)
    batches = read_ranges(options, (OffsetRange(TopicPartition(topic, 0), 0, 10),))
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert not kept_clusters._kept


def test_tasks_at_the_same_time_do_not_share() -> None:
    with task_cluster(CONFIG) as first, task_cluster(CONFIG) as second:
        assert first is not second
    assert len(kept_clusters._kept) == 1


def test_a_worker_keeps_a_few_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(MAX_CLUSTERS + 2):
        with task_cluster(replace(CONFIG, client_id=f"c{number}")) as last:
            pass
    assert len(kept_clusters._kept) == MAX_CLUSTERS
    newest = replace(CONFIG, client_id=f"c{MAX_CLUSTERS + 1}")
    with task_cluster(newest) as again:
        assert again is last
    monkeypatch.setattr(kept_clusters, "MAX_AGE_S", -1.0)
    with task_cluster(newest) as later:
        assert later is not last


def test_a_process_that_a_task_forks_has_none_of_them() -> None:
    with task_cluster(CONFIG):
        pass
    assert len(kept_clusters._kept) == 1
    child = os.fork()
    if not child:
        os._exit(len(kept_clusters._kept))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(kept_clusters._kept) == 1
