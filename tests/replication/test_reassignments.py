"""Partitions move between real brokers as Kafka's own tools ask for it, and clients go on."""

import json
import subprocess
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Offset
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from headrace.client import layout
from headrace.client.cluster import Cluster
from headrace.client.config import client_config
from headrace.errors import ErrorCode
from headrace.types import TopicPartition
from tests.support import java
from tests.support.cluster import PATIENCE_S, RunningCluster, TopicSeen
from tests.support.stores import eventually
from tests.support.traffic import Writer, read_all

BROKERS = (1, 2, 3, 4)
java_tools = pytest.mark.java


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with RunningCluster(tmp_path_factory.mktemp("moves") / "metadata", 4) as running:
        yield running


@pytest.fixture
def topic(cluster: RunningCluster) -> str:
    """Three partitions, each on two of four brokers."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    cluster.create(name, 3, 2, min_insync_replicas="1")
    return name


@pytest.fixture
def tool(cluster: RunningCluster, tmp_path: Path) -> "Tool":
    if reason := java.missing():
        pytest.skip(reason)
    return Tool(cluster, tmp_path)


class Tool:
    """Kafka's tools, with a file of what to move."""

    def __init__(self, cluster: RunningCluster, folder: Path) -> None:
        self._cluster = cluster
        self._file = folder / "moves.json"

    def run(self, name: str, *arguments: str) -> str:
        servers = self._cluster.bootstrap_servers
        return java.run_tool(name, "--bootstrap-server", servers, *arguments).text

    def refused(self, name: str, *arguments: str) -> str:
        servers = self._cluster.bootstrap_servers
        result = java.run_tool(name, "--bootstrap-server", servers, *arguments, check=False)
        assert result.code != 0, result.text
        return result.text

    def reassign(self, wanted: dict[int, list[int]], topic: str, *arguments: str) -> str:
        rows = [
            {"topic": topic, "partition": index, "replicas": replicas}
            for index, replicas in wanted.items()
        ]
        self._file.write_text(json.dumps({"version": 1, "partitions": rows}))
        file = ("--reassignment-json-file", str(self._file))
        return self.run("kafka-reassign-partitions", *file, *arguments)


class JavaWriter:
    """Kafka's VerifiableProducer, which is idempotent.

    Not librdkafka: when several partitions change their leaders at once, that one may send a later
    batch before an earlier one, bump its epoch for it, and write once more what it had written.
    """

    def __init__(self, cluster: RunningCluster, topic: str) -> None:
        command = java.java_command(
            java.TOOLS["kafka-verifiable-producer"],
            *("--bootstrap-server", cluster.bootstrap_servers),
            *("--topic", topic, "--throughput", "2000"),
            options=java.QUICK_START,
        )
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.acknowledged: list[int] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            row = json.loads(line)
            if row["name"] == "producer_send_success":
                self.acknowledged.append(int(row["value"]))

    def wait_for_more(self, records: int = 500) -> None:
        target = len(self.acknowledged) + records
        deadline = time.monotonic() + PATIENCE_S
        while len(self.acknowledged) < target:
            assert time.monotonic() < deadline, f"{len(self.acknowledged)} of {target}"
            time.sleep(0.02)

    def stop(self) -> None:
        self._process.terminate()
        self._thread.join()
        self._process.wait()


def replicas(topic: TopicSeen) -> dict[int, list[int]]:
    return {index: list(part.replicas) for index, part in topic.partitions.items()}


def others(found: list[int]) -> list[int]:
    return [broker for broker in BROKERS if broker not in found]


def ask(
    cluster: RunningCluster, wanted: Mapping[TopicPartition, tuple[int, ...] | None]
) -> dict[TopicPartition, ErrorCode]:
    """Asks for moves as Kafka's tool does, which knows no broker that is dead; the refusals."""
    config = client_config({"bootstrap.servers": cluster.bootstrap_servers})
    with Cluster(config) as connected:
        return {partition: e.code for partition, e in layout.move(connected, wanted).items()}


def wait_until_gone(cluster: RunningCluster, topic: str, index: int, broker: int) -> None:
    """Until a broker has deleted its replica's folder."""
    folder = cluster.brokers[broker].data_dir / f"{topic}-{index}"
    deadline = time.monotonic() + PATIENCE_S
    while folder.exists():
        assert time.monotonic() < deadline, f"{folder} is still there"
        time.sleep(0.05)


def test_a_new_replica_follows_a_log_that_starts_inside_a_batch(cluster: RunningCluster) -> None:
    """DeleteRecords may move the start there, and a follower begins with the whole batch."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    cluster.create(name, 1, 1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 500})
    for n in range(10):
        producer.produce(name, b"%d" % n, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    admin = cluster.admin()
    (deleted,) = admin.delete_records([Offset(name, 0, 5)]).values()
    assert deleted.result(PATIENCE_S).low_watermark == 5
    (old,) = cluster.topic(name).partitions[0].replicas
    new = others([old])[0]
    assert ask(cluster, {TopicPartition(name, 0): (new,)}) == {}
    cluster.wait_for(name, lambda seen: seen.partitions[0].isrs == (new,))
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": name})
    assert consumer.get_watermark_offsets(Offset(name, 0), PATIENCE_S) == (5, 10)
    consumer.assign([Offset(name, 0, 5)])
    values = [consumer.poll(PATIENCE_S) for _ in range(5)]
    assert [message and message.value() for message in values] == [b"%d" % n for n in range(5, 10)]
    consumer.close()


@java_tools
def test_a_move_with_kafkas_tool_loses_nothing_while_records_come(
    cluster: RunningCluster, topic: str, tool: Tool
) -> None:
    before = replicas(cluster.topic(topic))
    wanted = {index: others(old) for index, old in before.items()}
    writer = JavaWriter(cluster, topic)
    writer.wait_for_more(500)
    shown = tool.reassign(wanted, topic, "--execute", "--throttle", "50000000")
    assert "Successfully started partition reassignments" in shown
    cluster.wait_for(topic, lambda found: replicas(found) == wanted)
    writer.wait_for_more()
    writer.stop()
    found = read_all(cluster, topic)
    assert set(writer.acknowledged) <= {*found[0], *found[1], *found[2]}
    for values in found.values():
        assert values == sorted(set(values)), "twice, or out of order"
    after = cluster.topic(topic).partitions
    assert all(part.leader in wanted[index] for index, part in after.items())
    assert all(sorted(part.isrs) == sorted(wanted[index]) for index, part in after.items())
    for index, old in before.items():
        for broker in old:
            wait_until_gone(cluster, topic, index, broker)
    shown = tool.reassign(wanted, topic, "--verify")
    assert shown.count("is completed.") == 3
    assert "throttle" in shown


@java_tools
def test_a_move_to_a_dead_broker_waits_and_can_be_stopped(
    cluster: RunningCluster, topic: str, tool: Tool
) -> None:
    before = replicas(cluster.topic(topic))
    dead = others(before[0])[0]
    cluster.brokers[dead].stop()
    try:
        wanted = {0: [before[0][0], dead]}
        assert ask(cluster, {TopicPartition(topic, 0): tuple(wanted[0])}) == {}
        # Until whoever the tool asks has heard of it.
        assert replicas(cluster.topic(topic))[0] == [*wanted[0], before[0][1]]
        assert "is still in progress" in tool.reassign(wanted, topic, "--verify")
        under = tool.run("kafka-topics", "--describe", "--under-replicated-partitions")
        assert f"Topic: {topic}\tPartition: 0" not in under
        # Clearing throttles would wait for the dead broker.
        tool.reassign(wanted, topic, "--cancel", "--preserve-throttles")
        cluster.wait_for(topic, lambda found: replicas(found) == before)
        listed = tool.run("kafka-reassign-partitions", "--list")
        assert "No partition reassignments found." in listed
        wanted_again = {1: [dead, *others([dead])[:1]]}
        assert ask(cluster, {TopicPartition(topic, 1): tuple(wanted_again[1])}) == {}
    finally:
        cluster.brokers[dead].start()
    cluster.wait_for(topic, lambda found: replicas(found)[1] == wanted_again[1])


@java_tools
def test_kafkas_tools_elect_leaders_and_see_who_is_out_of_sync(
    cluster: RunningCluster, topic: str, tool: Tool
) -> None:
    first = replicas(cluster.topic(topic))[0][0]
    cluster.brokers[first].stop()
    cluster.wait_for(topic, lambda found: found.partitions[0].leader not in (first, -1))
    under = tool.run("kafka-topics", "--describe", "--under-replicated-partitions")
    assert f"Topic: {topic}\tPartition: 0" in under
    elect = ("kafka-leader-election", "--topic", topic, "--partition", "0", "--election-type")
    assert "PreferredLeaderNotAvailable" in tool.refused(*elect, "preferred")
    assert "already" in tool.run(*elect, "unclean")
    cluster.brokers[first].start()
    cluster.wait_for(topic, lambda found: len(found.partitions[0].isrs) == 2)
    assert "Successfully completed leader election" in tool.run(*elect, "preferred")
    cluster.wait_for(topic, lambda found: found.partitions[0].leader == first)


def set_rate(cluster: RunningCluster, brokers: Iterable[int], rate: int) -> None:
    """How many bytes a second these brokers copy of throttled replicas."""
    name = "follower.replication.throttled.rate"
    entry = ConfigEntry(name, str(rate), incremental_operation=AlterConfigOpType.SET)
    for broker in brokers:
        resource = ConfigResource(
            ConfigResource.Type.BROKER, str(broker), incremental_configs=[entry]
        )
        admin = cluster.admin()
        admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


def test_a_throttled_move_outlives_its_leader_and_loses_nothing(cluster: RunningCluster) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    throttled = {"follower.replication.throttled.replicas": "*"}
    cluster.create(topic, 3, 2, **throttled)
    filler = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(300):
        filler.produce(topic, b"%d" % -number + b" " * 10_000, partition=0)
    assert filler.flush(PATIENCE_S) == 0
    before = replicas(cluster.topic(topic))[0]
    new = others(before)
    set_rate(cluster, new, 1)
    wanted = {TopicPartition(topic, 0): tuple(new)}
    assert ask(cluster, wanted) == {}
    writer = Writer(cluster, topic)
    files = [cluster.brokers[one].data_dir / f"{topic}-0" / f"{0:020}.log" for one in new]
    eventually(lambda: all(one.exists() and one.stat().st_size for one in files), "copying")
    leader = cluster.leader(topic)
    cluster.brokers[leader].kill()
    writer.wait_for_more()
    cluster.brokers[leader].start()
    writer.wait_for_more()
    cluster.wait_for(topic, lambda found: len(found.partitions[0].isrs) == 2)
    assert sorted(replicas(cluster.topic(topic))[0]) == list(BROKERS), "held up by the throttle"
    assert all(one.stat().st_size < 3_000_000 for one in files)
    set_rate(cluster, new, 100_000_000)
    cluster.wait_for(topic, lambda found: replicas(found)[0] == new)
    writer.wait_for_more()
    writer.stop()
    assert writer.failed == []
    found = read_all(cluster, topic)
    for partition, acknowledged in writer.acknowledged.items():
        assert acknowledged <= set(found[partition])
    assert {-number for number in range(300)} <= set(found[0])
