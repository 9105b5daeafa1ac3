"""Share groups on three brokers: leaders and the share coordinator are killed."""

import time
import uuid
from pathlib import Path

from confluent_kafka import KafkaException, Message, Producer, ShareConsumer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from headrace.cluster.image import SHARE_STATE_TOPIC
from tests.support.cluster import PATIENCE_S, RunningCluster

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.min.record.lock.duration.ms": "1000",
    "min.insync.replicas": "2",
    "zookeeper.session.timeout.ms": "3000",
}
COUNT = 200


def start_from_the_beginning(cluster: RunningCluster, group: str) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in (
            ("share.auto.offset.reset", "earliest"),
            ("share.record.lock.duration.ms", "2000"),
        )
    ]
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=entries)
    admin = cluster.admin()
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(PATIENCE_S)


def replace_leader(cluster: RunningCluster, name: str) -> None:
    """Kill the leader of a partition, and start it again when another broker leads."""
    leader = cluster.leader(name)
    cluster.brokers[leader].kill()
    cluster.wait_for(name, lambda seen: seen.partitions[0].leader not in (-1, leader))
    cluster.brokers[leader].start()


class Worker:
    """A member that accepts what it gets, and notes what the cluster has confirmed."""

    def __init__(self, cluster: RunningCluster, topic: str, group: str) -> None:
        self.consumer = ShareConsumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": group,
                "share.acknowledgement.mode": "explicit",
                "max.poll.records": 10,
            }
        )
        self.consumer.subscribe([topic])
        self.got: list[int] = []
        self.confirmed: set[int] = set()

    def work(self) -> None:
        """Take some records and accept them; none of them may have been confirmed before."""
        taken: list[Message] = []
        for message in self.consumer.poll(0.5):
            if message.error() is None:
                self.consumer.acknowledge(message)
                taken.append(message)
        numbers = {int(message.value()) for message in taken}
        again = numbers & self.confirmed
        assert not again, f"{sorted(again)} were accepted and came again"
        self.got += numbers
        try:
            results = self.consumer.commit_sync(PATIENCE_S)
        except KafkaException:
            return
        if taken and results and all(error is None for error in results.values()):
            self.confirmed |= numbers


def test_accepted_records_stay_accepted_when_leaders_are_killed(tmp_path: Path) -> None:
    with RunningCluster(tmp_path / "cluster", settings=SETTINGS) as cluster:
        topic, group = "work", f"workers-{uuid.uuid4().hex[:8]}"
        cluster.create(topic)
        start_from_the_beginning(cluster, group)
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "linger.ms": 0}
        )
        for number in range(COUNT):
            producer.produce(topic, str(number))
            if number % 10 == 9:
                assert producer.flush(PATIENCE_S) == 0
        worker = Worker(cluster, topic, group)
        until = time.monotonic() + 3 * PATIENCE_S
        killed = 0
        while len(worker.confirmed) < COUNT:
            assert time.monotonic() < until, f"{len(worker.confirmed)} records were accepted"
            worker.work()
            if len(worker.confirmed) >= (killed + 1) * COUNT // 4 and killed < 2:
                name = (topic, SHARE_STATE_TOPIC)[killed]
                replace_leader(cluster, name)
                killed += 1
        assert set(worker.got) == set(range(COUNT))
        assert killed == 2
        worker.consumer.close()
