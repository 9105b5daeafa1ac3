"""Three brokers with real clients: nothing acknowledged is lost, and clients continue."""

import errno
import itertools
import time
import uuid
from collections.abc import Callable, Iterator, Set
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse

from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.client.connection import Connection
from headrace.wire.primitives import TopicName, i8, i32, i64, milliseconds
from tests.support import zookeeper
from tests.support.cluster import PATIENCE_S, RunningCluster, TopicSeen
from tests.support.stores import eventually
from tests.support.traffic import Writer, check, read_all


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zookeeper.ZooKeeper]:
    if reason := zookeeper.missing():
        pytest.skip(reason)
    with zookeeper.ZooKeeper(tmp_path_factory.mktemp("zookeeper"), 3) as running:
        yield running


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningCluster]:
    metadata = None
    if getattr(request, "param", "sqlite") == "zookeeper":
        metadata = request.getfixturevalue("ensemble").address(f"/{uuid.uuid4().hex[:8]}")
    with RunningCluster(tmp_path / "metadata", metadata=metadata) as running:
        yield running


both_stores = pytest.mark.parametrize(
    "cluster", ["sqlite", pytest.param("zookeeper", marks=pytest.mark.java)], indirect=True
)


@pytest.fixture
def topic(cluster: RunningCluster) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    cluster.create(name, 3, min_insync_replicas="2")
    return name


def dumps(cluster: RunningCluster, topic: str) -> list[dict[int, bytes]]:
    """The bytes of each replica's segments, by partition, for each broker."""
    return [
        {
            part: b"".join(
                path.read_bytes()
                for path in sorted((broker.data_dir / f"{topic}-{part}").glob("*.log"))
            )
            for part in range(3)
        }
        for broker in cluster.brokers.values()
    ]


def all_in_sync(cluster: RunningCluster, topic: str) -> None:
    cluster.wait_for(topic, lambda found: all(len(p.isrs) == 3 for p in found.partitions.values()))


@both_stores
def test_killed_leaders_lose_and_repeat_nothing(cluster: RunningCluster, topic: str) -> None:
    writer = Writer(cluster, topic)
    for number in (1, 2, 3):
        writer.wait_for_more()
        victim = cluster.leader(topic, number % 3)
        cluster.brokers[victim].kill()
        writer.wait_for_more()
        cluster.brokers[victim].start()
        all_in_sync(cluster, topic)
    writer.stop()
    check(cluster, topic, writer)
    all_in_sync(cluster, topic)
    for broker in cluster.brokers.values():
        broker.stop()
    first, *others = dumps(cluster, topic)
    assert all(other == first for other in others)


@both_stores
def test_all_killed_at_once_lose_nothing(cluster: RunningCluster, topic: str) -> None:
    writer = Writer(cluster, topic)
    writer.wait_for_more(1000)
    for broker in cluster.brokers.values():
        broker.kill()
    for broker in cluster.brokers.values():
        broker.start()
    writer.wait_for_more()
    writer.stop()
    check(cluster, topic, writer)


def led_by(brokers: Set[int], topic: TopicSeen) -> bool:
    """Whether only these lead; the others' word for it may be a moment old."""
    return {part.leader for part in topic.partitions.values()} <= brokers


@both_stores
def test_a_rolling_restart_is_not_noticed(cluster: RunningCluster, topic: str) -> None:
    writer = Writer(cluster, topic)
    for number, broker in cluster.brokers.items():
        writer.wait_for_more()
        broker.stop()
        others = cluster.brokers.keys() - {number}
        cluster.wait_for(topic, partial(led_by, others))
        writer.wait_for_more()
        broker.start()
        all_in_sync(cluster, topic)
    writer.stop()
    check(cluster, topic, writer)


def test_too_few_in_sync_refuse_what_must_not_be_lost(cluster: RunningCluster, topic: str) -> None:
    leader = cluster.leader(topic)
    others = [number for number in cluster.brokers if number != leader]
    for number in others:
        cluster.brokers[number].kill()
    cluster.wait_for(topic, lambda found: len(found.partitions[0].isrs) == 1)
    where = cluster.brokers[leader].bootstrap_servers
    producer = Producer({"bootstrap.servers": where, "retries": 0})
    outcome: list[KafkaError | None] = []
    producer.produce(topic, b"x", partition=0, on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert [error and error.code() for error in outcome] == [KafkaError.NOT_ENOUGH_REPLICAS]
    for number in others:
        cluster.brokers[number].start()
    all_in_sync(cluster, topic)
    writer = Writer(cluster, topic)
    writer.wait_for_more()
    writer.stop()
    check(cluster, topic, writer)


def test_a_group_goes_on_where_it_was_when_its_coordinator_dies(
    cluster: RunningCluster, topic: str
) -> None:
    writer = Writer(cluster, topic)
    writer.wait_for_more(500)
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "audit",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 10_000,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    seen: dict[int, int] = {}

    def read(records: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while records > 0:
            assert time.monotonic() < deadline, "no more records came"
            message = consumer.poll(1)
            if message is None or message.error() is not None:
                continue
            part, offset = message.partition() or 0, message.offset() or 0
            # Not committed yet may come twice; committed never comes again.
            assert offset <= seen.get(part, -1) + 1
            seen[part] = max(offset, seen.get(part, -1))
            records -= 1

    def commit() -> dict[int, int]:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                done = consumer.commit(asynchronous=False)
                return {row.partition: row.offset for row in done or []}
            except KafkaException:
                assert time.monotonic() < deadline
                consumer.poll(0.2)

    read(200)
    before = commit()
    admin = cluster.admin()
    described = admin.describe_consumer_groups(["audit"])["audit"].result(PATIENCE_S)
    cluster.brokers[described.coordinator.id].kill()
    read(200)
    after = commit()
    assert all(after[part] >= offset for part, offset in before.items())
    cluster.brokers[described.coordinator.id].start()
    all_in_sync(cluster, topic)
    committed = consumer.committed([TopicPartition(topic, part) for part in range(3)], PATIENCE_S)
    assert {row.partition: row.offset for row in committed} == after
    consumer.close()
    writer.stop()


@both_stores
def test_the_configs_of_a_group_count_at_every_broker_and_stay_after_a_restart(
    cluster: RunningCluster,
) -> None:
    name = "consumer.heartbeat.interval.ms"

    def seen_by(number: int) -> str | None:
        resource = DescribeConfigsResource(
            resource_type=i8(32), resource_name="a/b", configuration_keys=(name,)
        )
        request = DescribeConfigsRequest(
            resources=(resource,), include_synonyms=False, include_documentation=False
        )
        with cluster.client(number) as client:
            (result,) = client.ask(request, DescribeConfigsResponse).results
        return result.configs[0].value

    change = AlterableConfig(name=name, config_operation=i8(0), value="6000")
    resource = AlterConfigsResource(resource_type=i8(32), resource_name="a/b", configs=(change,))
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    with cluster.client(1) as client:
        (answer,) = client.ask(request, IncrementalAlterConfigsResponse).responses
    assert answer.error_code == 0, answer.error_message
    eventually(lambda: {seen_by(n) for n in (1, 2, 3)} == {"6000"}, "all brokers know of it")
    cluster.brokers[3].restart()
    eventually(lambda: seen_by(3) == "6000", "it was kept")


@both_stores
def test_transactions_span_brokers_and_survive_their_coordinator(
    cluster: RunningCluster, topic: str
) -> None:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "copy"}
    )
    producer.init_transactions(PATIENCE_S)
    committed: list[int] = []
    for number in range(12):
        producer.begin_transaction()
        for part in range(3):
            producer.produce(topic, b"%d" % (number * 3 + part), partition=part)
        if number % 3 == 2:
            producer.abort_transaction(PATIENCE_S)
            continue
        producer.flush(PATIENCE_S)
        if number == 6:
            admin = cluster.admin()
            found = admin.describe_cluster(request_timeout=60).result()
            # Whoever coordinates it: each broker dies once, and comes back.
            for victim in [node.id for node in found.nodes]:
                cluster.brokers[victim].kill()
                cluster.brokers[victim].start()
                all_in_sync(cluster, topic)
        producer.commit_transaction(PATIENCE_S)
        committed += [number * 3 + part for part in range(3)]
    found = read_all(cluster, topic)
    assert sorted(itertools.chain(*found.values())) == committed


def test_a_clean_stop_logs_no_errors(cluster: RunningCluster, topic: str) -> None:
    writer = Writer(cluster, topic)
    writer.wait_for_more()
    broker = cluster.brokers[cluster.leader(topic)]
    broker.stop()
    writer.stop()
    said = broker.log_file.read_text()
    assert "stopping" in said
    assert " ERROR " not in said
    assert "never awaited" not in said


def test_a_leader_whose_disk_fails_gives_up_what_others_can_lead(tmp_path: Path) -> None:
    with RunningCluster(tmp_path / "metadata", folders=2) as cluster:
        cluster.create("t", 3, min_insync_replicas="2")
        writer = Writer(cluster, "t")
        writer.wait_for_more()
        leader = cluster.leader("t")
        broker = cluster.brokers[leader]
        (folder,) = [one for one in broker.data_dirs if (one / "t-0").exists()]
        broker.spoil_disk("pwrite .log", code=errno.EIO, count=-1, under=f"{folder}/")
        found = cluster.wait_for("t", lambda topic: topic.partitions[0].leader not in (-1, leader))
        assert leader not in found.partitions[0].isrs
        writer.wait_for_more()
        writer.stop()
        check(cluster, "t", writer)


def test_what_a_group_of_another_broker_has_not_read_is_kept(tmp_path: Path) -> None:
    settings = {"log.retention.check.interval.ms": "200", "offsets.topic.num.partitions": "12"}
    with RunningCluster(tmp_path / "metadata", settings=settings) as cluster:
        cluster.create(
            "logs", cleanup_policy="consumed", segment_bytes="1048576", file_delete_delay_ms="0"
        )
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})
        for _ in range(60):
            producer.produce("logs", b"x" * 200_000, partition=0)
            assert producer.flush(PATIENCE_S) == 0
        admin = cluster.admin()
        slow = {"bootstrap.servers": cluster.bootstrap_servers, "enable.auto.commit": False}
        groups: dict[int, str] = {}
        for number in itertools.count():
            if len(groups) == 3:
                break
            name = f"readers-{number}"
            commit(slow, name, 20)
            found = admin.describe_consumer_groups([name])[name].result(PATIENCE_S)
            if groups.setdefault(found.coordinator.id, name) != name:
                commit(slow, name, 60)
        bound = wait_for_start(cluster, lambda start: start > 0)
        assert bound <= 20
        for name in groups.values():
            commit(slow, name, 60)
        wait_for_start(cluster, lambda start: start > 20)
        # Those that follow delete what their leader has deleted.
        deadline = time.monotonic() + PATIENCE_S
        folders = [broker.data_dir / "logs-0" for broker in cluster.brokers.values()]
        while any((folder / f"{0:020d}.log").exists() for folder in folders):
            assert time.monotonic() < deadline
            time.sleep(0.1)


def commit(settings: dict[str, Any], group: str, offset: int) -> None:
    consumer = Consumer({**settings, "group.id": group})
    consumer.commit(offsets=[TopicPartition("logs", 0, offset)], asynchronous=False)
    consumer.close()


def wait_for_start(cluster: RunningCluster, holds: Callable[[int], bool]) -> int:
    """Until the log begins where it shall; where that is."""
    admin = cluster.admin()
    deadline = time.monotonic() + PATIENCE_S
    while True:
        asked = {TopicPartition("logs", 0): OffsetSpec.earliest()}
        (future,) = admin.list_offsets(asked).values()
        start: int = future.result(PATIENCE_S).offset
        if holds(start):
            return start
        assert time.monotonic() < deadline, f"the log begins at {start}"
        time.sleep(0.1)


def test_consumers_read_from_the_replica_in_their_rack(tmp_path: Path) -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    racks = {number: {"broker.rack": f"rack-{number}"} for number in (1, 2, 3)}
    with RunningCluster(
        tmp_path / "metadata", settings={"replica.selector.class": selector}, each=racks
    ) as cluster:
        cluster.create("t", 3)
        writer = Writer(cluster, "t")
        writer.wait_for_more(300)
        writer.stop()
        leader = cluster.leader("t")
        near = leader % 3 + 1
        for isolation in (0, 1):
            answer = fetch(cluster, leader, "t", f"rack-{near}", isolation)
            assert (answer.preferred_read_replica, answer.records) == (near, b"")
            assert fetch(cluster, leader, "t", "rack-x", isolation).records
            assert fetch(cluster, near, "t", f"rack-{near}", isolation).records
        # As librdkafka's consumer does it: it is sent there, and misses nothing.
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "audit",
                "auto.offset.reset": "earliest",
                "client.rack": f"rack-{near}",
            }
        )
        consumer.assign([TopicPartition("t", 0, 0)])
        read: set[int] = set()
        deadline = time.monotonic() + PATIENCE_S
        while read < writer.acknowledged[0]:
            assert time.monotonic() < deadline, "records are missing"
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                read.add(int(message.value() or b"-1"))
        consumer.close()


def fetch(cluster: RunningCluster, broker: int, topic: str, rack: str, isolation: int) -> Any:
    """What one broker answers to a consumer in a rack, for the first partition."""
    from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
    from kio.schema.fetch.v12.response import FetchResponse

    request = FetchRequest(
        max_wait=milliseconds(1000),
        min_bytes=i32(1),
        max_bytes=i32(1_000_000),
        isolation_level=i8(isolation),
        topics=(
            FetchTopic(
                topic=TopicName(topic),
                partitions=(
                    FetchPartition(
                        partition=i32(0), fetch_offset=i64(0), partition_max_bytes=i32(1_000_000)
                    ),
                ),
            ),
        ),
        forgotten_topics_data=(),
        rack_id=rack,
    )
    where = parse_bootstrap(cluster.brokers[broker].bootstrap_servers)
    with Connection(where[0], ClientConfig(where)) as connection:
        answer = connection.ask(request, FetchResponse)
    (found,) = answer.responses[0].partitions
    return found
