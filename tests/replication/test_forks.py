"""Forks on real brokers: under running producers, with kills, and on several brokers."""

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from headrace.testing.running import RunningBroker
from tests.support.cluster import PATIENCE_S, RunningCluster
from tests.support.stores import eventually
from tests.support.traffic import Writer

PARTITIONS = 3
SMALL_SEGMENTS = {"internal.segment.bytes": "20000", "retention.ms": "-1"}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    running = RunningBroker()
    yield running
    running.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with RunningCluster(tmp_path_factory.mktemp("forks") / "metadata", 3) as running:
        yield running


class Topics:
    """A client of one test: a topic and its forks."""

    def __init__(self, bootstrap: str, replicas: int = 1) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self.parent = f"orders-{uuid.uuid4().hex[:8]}"
        self.fork = f"{self.parent}.fork"
        self.create(self.parent, replicas, SMALL_SEGMENTS)

    def create(self, name: str, replicas: int, configs: dict[str, str]) -> None:
        new = NewTopic(name, PARTITIONS, replicas, config=configs)
        self._admin.create_topics([new])[name].result(PATIENCE_S)

    def create_fork(self, offsets: list[int], name: str = "", **configs: str) -> None:
        of = {"fork.of": self.parent, "fork.offsets": ",".join(map(str, offsets)), **configs}
        self.create(name or self.fork, -1, of)

    def delete(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(PATIENCE_S)

    def alter(self, operation: AlterConfigOpType, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource("TOPIC", self.fork, incremental_configs=[entry])
        for altered in self._admin.incremental_alter_configs([resource]).values():
            altered.result(PATIENCE_S)

    def produce(self, name: str, count: int, first: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "batch.num.messages": 20})
        for number in range(first, first + count):
            value = b"%d " % number + b"x" * 100
            producer.produce(name, value, partition=number % PARTITIONS)
        assert producer.flush(PATIENCE_S) == 0

    def ends(self, name: str) -> list[int]:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "ends"})
        found = []
        for index in range(PARTITIONS):
            _, end = consumer.get_watermark_offsets(TopicPartition(name, index), PATIENCE_S)
            found.append(end)
        consumer.close()
        return found

    def wait_for_fork(self, offsets: list[int]) -> None:
        """Until all replicas have the fork: the high watermark is at its end."""

        def complete() -> bool:
            try:
                return self.ends(self.fork) >= offsets
            except KafkaException:
                return False

        eventually(complete, "the fork is complete")

    def read(self, name: str, ends: list[int]) -> list[list[tuple[int, bytes]]]:
        """Offset and value of all records below these offsets, by partition."""
        consumer = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "reads", "fetch.wait.max.ms": 20}
        )
        found: list[list[tuple[int, bytes]]] = []
        for index, end in enumerate(ends):
            records: list[tuple[int, bytes]] = []
            consumer.assign([TopicPartition(name, index, 0)])
            while len(records) < end:
                message = consumer.poll(PATIENCE_S)
                assert message is not None
                assert message.error() is None
                value, offset = message.value(), message.offset()
                assert value is not None
                assert offset is not None
                if offset < end:
                    records.append((offset, value))
            found.append(records)
        consumer.close()
        return found


def in_sync(cluster: RunningCluster, name: str) -> None:
    """Wait until all brokers are in sync with the leaders."""
    cluster.wait_for(
        name,
        lambda seen: all(
            len(one.isrs) == 3 and one.leader >= 0 for one in seen.partitions.values()
        ),
    )


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(KafkaException) as caught:
        call()
    return str(caught.value)


def test_a_fork_has_the_parents_records_and_both_continue(broker: RunningBroker) -> None:
    topics = Topics(broker.bootstrap_servers)
    topics.produce(topics.parent, 3000)
    cut = [1000, 400, 0]
    topics.create_fork(cut)
    topics.wait_for_fork(cut)
    ends = topics.ends(topics.fork)
    assert ends == [1000, ends[1], 0]
    assert 400 <= ends[1] < 420
    topics.produce(topics.fork, 30, first=5000)
    topics.produce(topics.parent, 60, first=7000)
    assert topics.ends(topics.parent) == [1020, 1020, 1020]
    of_fork = topics.read(topics.fork, topics.ends(topics.fork))
    of_parent = topics.read(topics.parent, [1020] * PARTITIONS)
    for one, other, end in zip(of_fork, of_parent, ends, strict=True):
        assert one[:end] == other[:end]
        assert [value.split()[0] >= b"5000" for _, value in one[end:]] == [True] * 10
    topics.delete(topics.parent)
    assert topics.read(topics.fork, topics.ends(topics.fork)) == of_fork


def test_what_cannot_be_a_fork_is_refused(broker: RunningBroker) -> None:
    topics = Topics(broker.bootstrap_servers)
    topics.produce(topics.parent, 30)
    ends = [10, 10, 10]
    assert "no such topic" in refusal(lambda: topics.create_fork(ends, **{"fork.of": "nothing"}))
    assert "an offset for each" in refusal(lambda: topics.create_fork([10, 10]))
    assert "after 10" in refusal(lambda: topics.create_fork([10, 10, 11]))
    assert "replicas of its parent" in refusal(
        lambda: topics.create(topics.fork, 2, {"fork.of": topics.parent, "fork.offsets": "1,1,1"})
    )
    assert "needs fork.of" in refusal(
        lambda: topics.create(topics.fork, 1, {"fork.offsets": "1,1,1"})
    )
    topics.create_fork(ends)
    never = "never altered"
    assert never in refusal(lambda: topics.alter(AlterConfigOpType.SET, "fork.offsets", "1,1,1"))
    assert never in refusal(lambda: topics.alter(AlterConfigOpType.DELETE, "fork.of", ""))
    topics.alter(AlterConfigOpType.SET, "retention.ms", "1000000")


@pytest.mark.parametrize(
    "point",
    [
        "link .index",
        "rename leader-epoch-checkpoint",
        "rename recovery-point-offset-checkpoint",
    ],
)
def test_a_broker_that_is_killed_while_it_builds_a_fork_builds_it_again(
    broker: RunningBroker, point: str
) -> None:
    topics = Topics(broker.bootstrap_servers)
    topics.produce(topics.parent, 3000)
    broker.spoil_disk(point, kill=True)
    with suppress(KafkaException):  # the broker may be dead before it responds
        topics.create_fork([1000, 1000, 999])
    broker.wait_until_dead()
    broker.start()
    topics.wait_for_fork([1000, 1000, 999])
    ends = topics.ends(topics.fork)
    assert topics.read(topics.fork, ends) == topics.read(topics.parent, ends)
    broker.kill()
    broker.start()
    assert topics.read(topics.fork, ends) == topics.read(topics.parent, ends)
    broker.stop()
    verify = [sys.executable, "-m", "headrace.cli", "log", "verify", str(broker.data_dir)]
    verified = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    broker.start()
    assert topics.read(topics.fork, ends) == topics.read(topics.parent, ends)


def test_every_broker_builds_its_replica_and_another_can_lead(cluster: RunningCluster) -> None:
    topics = Topics(cluster.bootstrap_servers, replicas=3)
    in_sync(cluster, topics.parent)
    topics.produce(topics.parent, 3000)  # several segments
    writer = Writer(cluster, topics.parent, **{"batch.num.messages": "50"})
    writer.wait_for_more()
    cut = topics.ends(topics.parent)
    topics.create_fork(cut)
    topics.wait_for_fork(cut)
    in_sync(cluster, topics.fork)
    for broker in cluster.brokers.values():
        for index in range(PARTITIONS):
            first = "00000000000000000000.log"
            of_parent, of_fork = (
                broker.data_dir / f"{name}-{index}" / first for name in (topics.parent, topics.fork)
            )
            assert of_parent.samefile(of_fork), "the records were not sent to followers"
    expected = topics.read(topics.parent, cut)
    killed = cluster.leader(topics.fork)
    cluster.brokers[killed].kill()
    cluster.wait_for(topics.fork, lambda seen: seen.partitions[0].leader not in (killed, -1))
    topics.produce(topics.fork, 300, first=1_000_000)
    cluster.brokers[killed].start()
    in_sync(cluster, topics.fork)
    in_sync(cluster, topics.parent)
    writer.stop()
    assert writer.failed == []
    assert topics.read(topics.fork, cut) == expected
    assert topics.ends(topics.fork) == [end + 100 for end in cut]
