"""A cluster whose ZooKeeper is not reachable for some time, for all brokers or for one."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from headrace.testing.running import RunningBroker
from tests.replication.test_cluster import all_in_sync
from tests.support import zookeeper
from tests.support.cluster import PATIENCE_S, QUICK, RunningCluster, TopicSeen
from tests.support.link import Link
from tests.support.ports import free_port
from tests.support.stores import eventually
from tests.support.traffic import Writer, check
from tests.support.zookeeper import ZooKeeper

pytestmark = pytest.mark.java


@pytest.fixture
def running(tmp_path: Path) -> Iterator[ZooKeeper]:
    if reason := zookeeper.missing():
        pytest.skip(reason)
    with ZooKeeper(tmp_path / "zookeeper") as running:
        yield running


def outcome(bootstrap_servers: str, topic: str) -> KafkaError | None:
    """What becomes of one record."""
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "message.timeout.ms": 1000})
    producer.produce(topic, b"0", partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    return errors[0]


def nothing_more(cluster: RunningCluster, writer: Writer) -> bool:
    """Whether nobody hears of an acknowledgement while one record waits for it in vain."""
    before = writer.count()
    return outcome(cluster.bootstrap_servers, "other") is not None and writer.count() == before


def leaders(topic: TopicSeen) -> set[int]:
    return {partition.leader for partition in topic.partitions.values()}


def test_without_zookeeper_nothing_is_acknowledged_and_all_goes_on_when_it_is_back(
    running: ZooKeeper, tmp_path: Path
) -> None:
    where = running.address("/headrace")
    with RunningCluster(tmp_path / "brokers", metadata=where) as cluster:
        cluster.create("orders", 3, min_insync_replicas="2")
        cluster.create("other")
        writer = Writer(cluster, "orders", **{"queue.buffering.max.messages": "10000000"})
        writer.wait_for_more()
        running.kill()
        logs = [broker.log_file for broker in cluster.brokers.values()]
        eventually(
            lambda: all("leads no partitions" in log.read_text() for log in logs), "all step down"
        )
        # What was acknowledged before that may be on its way to the writer yet.
        eventually(lambda: nothing_more(cluster, writer), "nothing is acknowledged")
        assert nothing_more(cluster, writer)
        for number in cluster.brokers:
            seen = cluster.seen_by(number, "orders")
            assert seen is not None, "brokers tell what they know"
            assert len(seen.partitions) == 3
        running.servers[0].start()
        writer.wait_for_more()
        writer.stop()
        check(cluster, "orders", writer)
        all_in_sync(cluster, "orders")


def test_a_leader_cut_off_from_zookeeper_is_replaced_and_rejoins(
    running: ZooKeeper, tmp_path: Path
) -> None:
    where = running.address("/headrace")
    with (
        Link(running.servers[0].port) as link,
        RunningCluster(tmp_path / "brokers", 2, metadata=where) as cluster,
    ):
        through = {"headrace.metadata": f"zookeeper://127.0.0.1:{link.port}/headrace"}
        cluster.brokers[3] = RunningBroker({**QUICK, **through}, node_id=3)
        cluster.wait_until_all_know_each_other()
        cluster.create("orders", 3, min_insync_replicas="2")
        assert 3 in leaders(cluster.topic("orders"))
        writer = Writer(cluster, "orders")
        writer.wait_for_more()
        link.cut()
        cluster.wait_for("orders", lambda topic: leaders(topic) <= {1, 2}, at=(1, 2))
        writer.wait_for_more()
        link.hang_up()
        link.heal()
        all_in_sync(cluster, "orders")
        writer.stop()
        check(cluster, "orders", writer)


def health(port: int) -> tuple[int, str]:
    """The status and the body of `/health`."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_broker_out_of_the_cluster_reports_it_and_redirects_clients(
    running: ZooKeeper, tmp_path: Path
) -> None:
    where = running.address("/headrace")
    with (
        Link(running.servers[0].port) as link,
        RunningCluster(tmp_path / "brokers", 2, metadata=where) as cluster,
    ):
        page = free_port()
        own = {
            "headrace.metadata": f"zookeeper://127.0.0.1:{link.port}/headrace",
            "headrace.metrics.address": f"127.0.0.1:{page}",
        }
        out = cluster.brokers[3] = RunningBroker({**QUICK, **own}, node_id=3)
        cluster.wait_until_all_know_each_other()
        cluster.create("orders", 3, min_insync_replicas="2")
        partitions = cluster.topic("orders").partitions
        led = [index for index, one in partitions.items() if one.leader == 3]
        assert health(page)[0] == 200
        link.cut()
        eventually(lambda: health(page)[0] == 503, "it is out, and says so")
        assert "this broker is not in the cluster" in health(page)[1]
        # Whoever knows this broker alone finds the others through it.
        producer = Producer({"bootstrap.servers": out.bootstrap_servers})
        errors: list[KafkaError | None] = []
        for index in led:
            told = lambda error, _: errors.append(error)  # noqa: E731
            producer.produce("orders", b"0", partition=index, on_delivery=told)
        assert producer.flush(PATIENCE_S) == 0
        assert errors == [None] * len(led)
        assert health(page)[0] == 503, "it was out all the while"
        link.hang_up()
        link.heal()
        eventually(lambda: health(page)[0] == 200, "it is back")
