"""Real brokers that run out of disk space or file descriptors for a while, and recover."""

import errno
import os
import re
import resource
import socket
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.client.groups import Committed, commit_offsets
from headrace.client.producing import init_producer
from headrace.errors import KafkaError
from headrace.testing.running import RunningBroker
from headrace.types import TopicPartition
from tests.support.cluster import RunningCluster
from tests.support.headrace_broker import HeadraceBroker
from tests.support.mounts import small_disk
from tests.support.ports import free_port
from tests.testing.test_running import read, send

Factory = Callable[..., RunningBroker]

FEW = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
PATIENCE_S = 60


def client(bootstrap: str, total_timeout_s: float = PATIENCE_S) -> Cluster:
    return Cluster(
        ClientConfig(
            parse_bootstrap(bootstrap), request_timeout_s=30, total_timeout_s=total_timeout_s
        )
    )


def fill(folder: Path) -> Path:
    """Write a file that takes all the room there is."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65_536, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return ballast


@pytest.mark.parametrize("metadata", ["on the full disk", "elsewhere"])
def test_coordinators_whose_topics_were_first_asked_for_on_a_full_disk_work_when_there_is_room(
    tmp_path: Path, metadata: str
) -> None:
    settings = dict(FEW)
    if metadata == "elsewhere":
        (tmp_path / "metadata").mkdir()
        settings["headrace.metadata"] = f"sqlite:{tmp_path / 'metadata'}"
    offsets = {TopicPartition("orders", 0): Committed(7)}
    with small_disk(tmp_path / "small", 4000) as small:
        broker = HeadraceBroker(tmp_path / "broker", settings=settings)
        broker.data = small / "data"
        with broker, client(broker.bootstrap, 2) as hasty, client(broker.bootstrap) as patient:
            create_with(patient, "orders")
            ballast = fill(small)
            with pytest.raises(KafkaError):
                commit_offsets(hasty, "g", offsets)
            with pytest.raises(KafkaError):
                init_producer(hasty, "copier")
            ballast.unlink()
            commit_offsets(patient, "g", offsets)
            init_producer(patient, "copier")


def test_a_broker_without_descriptors_serves_those_who_are_connected_and_recovers(
    headrace_factory: Factory,
) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    broker = headrace_factory(
        {"log.cleaner.backoff.ms": "2000", "headrace.metrics.address": metrics}
    )
    address = parse_bootstrap(broker.bootstrap_servers)[0]
    with client(broker.bootstrap_servers) as connected:
        create_with(connected, "payments")  # what the broker imports for that is imported now
        limits = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
        used = len(os.listdir(f"/proc/{broker.pid}/fd"))
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (used, limits[1]))
        waiting = [socket.create_connection((address.host, address.port)) for _ in range(10)]
        create_with(connected, "orders")
        until = time.monotonic() + 3
        while time.monotonic() < until:
            assert connected.brokers()
        lines = broker.log_file.read_text().count("cannot accept")
        assert 1 <= lines <= 3
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, limits)
        assert send(broker, "orders", "after") == [0]
        assert read(broker, "orders", 1) == ["after"]
        wait_for_compaction(metrics)  # it would have started while there were no descriptors
        for one in waiting:
            one.close()


def wait_for_compaction(metrics: str) -> None:
    """Until the broker has looked for logs to compact."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        if re.search(r"^headrace_compaction_last_look_timestamp_seconds [1-9]", text, re.M):
            return
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_leader_that_could_not_open_its_log_leads_when_it_can(tmp_path: Path) -> None:
    with RunningCluster(tmp_path / "metadata", 2) as cluster:
        cluster.create("orders", factor=2)
        leader = cluster.leader("orders")
        broker = cluster.brokers[leader]
        assert send(broker, "orders", "before") == [0]
        cluster.brokers[3 - leader].kill()
        cluster.wait_for("orders", lambda seen: seen.partitions[0].isrs == (leader,))
        broker.stop()
        folder = str(broker.data_dir / "orders-0")
        broker.start([{"point": "open .log", "code": errno.EMFILE, "count": 2, "under": folder}])
        assert send(broker, "orders", "after") == [1]


def create_with(cluster: Cluster, name: str) -> None:
    """Create a topic over a connection that is open already."""
    from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
    from kio.schema.create_topics.v7.response import CreateTopicsResponse

    from headrace.wire.primitives import TopicName, i16, i32

    topic = CreatableTopic(
        name=TopicName(name),
        num_partitions=i32(1),
        replication_factor=i16(1),
        assignments=(),
        configs=(),
    )
    answer = cluster.ask(CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse)
    assert answer.topics[0].error_code == 0, answer.topics[0].error_message
