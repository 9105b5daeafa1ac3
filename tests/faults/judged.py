"""The common part of fault tests: running clients, and the checker at the end."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, TopicPartition

from headrace.cluster.image import PartitionState
from headrace.errors import ErrorCode
from headrace.testing.running import RunningBroker
from tests.checker.verdict import judge
from tests.checker.workload import TOPICS, Workload
from tests.support.cluster import PATIENCE_S, RunningCluster
from tests.support.raw import RawClient, batch_of, produce, produce_error


def place(number: int) -> str:
    """A broker's place in the network."""
    return f"b{number}"


@contextmanager
def judged(
    cluster: RunningCluster, folder: Path, *struck: str, clients: int = 2, **configs: str
) -> Iterator[Workload]:
    """Clients at work within; afterwards their history is judged and the replicas compared."""
    given = {"min.insync.replicas": "2"} | {
        key.replace("_", "."): value for key, value in configs.items()
    }
    folder = folder / "history"
    folder.mkdir()
    with Workload(
        cluster.bootstrap_servers, folder, clients=clients, replicas=3, configs=given
    ) as workload:
        workload.go_on(2)
        yield workload
        workload.go_on(2)
        verdict = judge(workload.finish(), struck)
        assert verdict.clean, verdict
        cluster.wait_until_in_sync(*TOPICS)
    same_replicas(cluster, *TOPICS)


def same_replicas(cluster: RunningCluster, *topics: str) -> None:
    """Every replica has the same bytes, now that nobody writes."""
    partitions = {
        f"{topic}-{index}": 0
        for topic in topics
        for index in range(len(cluster.image().topics[topic].partitions))
    }
    deadline = time.monotonic() + PATIENCE_S
    while True:
        different = [name for name in partitions if len(set(replicas(cluster, name))) != 1]
        if not different:
            return
        assert time.monotonic() < deadline, f"the replicas of {different} differ"
        time.sleep(0.1)


def replicas(cluster: RunningCluster, partition: str) -> list[bytes]:
    """The bytes of each broker's log of a partition."""
    return [log_bytes(broker, partition) for broker in cluster.brokers.values()]


def log_bytes(broker: RunningBroker, partition: str) -> bytes:
    segments = sorted((broker.data_dir / partition).glob("*.log"))
    return b"".join(path.read_bytes() for path in segments)


def wait_for(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.05)


def led_by_another(before: PartitionState) -> Callable[[PartitionState], bool]:
    """Whether somebody else leads, in a later epoch."""

    def holds(state: PartitionState) -> bool:
        return state.leader_epoch > before.leader_epoch and state.leader not in (-1, before.leader)

    return holds


def values(cluster: RunningCluster, topic: str) -> list[bytes]:
    """All records of a topic's only partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "audit",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.append(message.value() or b"")
        elif error.code() == KafkaError._PARTITION_EOF:
            consumer.close()
            return found
    raise AssertionError(f"the end of {topic} was not reached")


class Writer:
    """A connection to one broker, which writes there whoever leads."""

    def __init__(self, broker: RunningBroker, timeout_s: float = PATIENCE_S) -> None:
        self._client = RawClient(broker.bootstrap_servers, timeout_s)

    def send(self, topic: str, *values: bytes, acks: int = -1) -> None:
        """One batch, without waiting for the answer."""
        self._client.send(produce(topic, batch_of(*values), acks=acks))

    def answer(self, topic: str) -> tuple[ErrorCode, int]:
        """Error code and offset of the oldest batch that was not answered yet."""
        code, offset = produce_error(self._client.answer(), topic)
        return ErrorCode(code), offset

    def write(self, topic: str, *values: bytes, acks: int = -1) -> tuple[ErrorCode, int]:
        """One batch; error code and offset."""
        self.send(topic, *values, acks=acks)
        return self.answer(topic)

    def write_as_new_leader(self, topic: str, *values: bytes) -> tuple[ErrorCode, int]:
        """Write as soon as the broker knows that it leads, which ZooKeeper knows before it."""
        deadline = time.monotonic() + PATIENCE_S
        while (written := self.write(topic, *values))[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            assert time.monotonic() < deadline, topic
            time.sleep(0.05)
        return written

    def close(self) -> None:
        self._client.socket.close()
