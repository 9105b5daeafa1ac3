"""A flipped bit in one replica: never served, and fetched again from a replica that is whole."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaError, Producer, TopicPartition

from headrace.testing.running import RunningBroker
from headrace.wire.batch import OVERHEAD, read_header
from tests.support.cluster import PATIENCE_S, RunningCluster

COUNT = 300
VALUES = [b"%06d" % number + b"v" * 10_000 for number in range(COUNT)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    racks = {number: {"broker.rack": f"rack-{number}"} for number in (1, 2, 3)}
    folder = tmp_path_factory.mktemp("damage") / "metadata"
    with RunningCluster(
        folder, settings={"replica.selector.class": selector}, each=racks
    ) as running:
        yield running


def fill(cluster: RunningCluster, topic: str) -> int:
    """A topic whose only partition has three segments at least; its leader."""
    cluster.create(topic, 1, min_insync_replicas="2", segment_bytes="1048576")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "batch.size": 50_000})
    for value in VALUES:
        producer.produce(topic, value, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    return cluster.leader(topic)


def segments(broker: RunningBroker, topic: str) -> list[Path]:
    return sorted((broker.data_dir / f"{topic}-0").glob("*.log"))


def flip_a_bit(broker: RunningBroker, topic: str) -> None:
    """In the middle of the log, while its broker is stopped."""
    broker.stop()
    _, second, *_ = segments(broker, topic)
    content = bytearray(second.read_bytes())
    content[len(content) // 2] ^= 1
    second.write_bytes(content)
    broker.start()


def read_all(cluster: RunningCluster, topic: str, rack: str = "") -> list[bytes]:
    """Everything, in its order, as a consumer gets it; errors on the way are its to retry."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "audit",
            "client.rack": rack,
            "enable.partition.eof": True,
            "check.crcs": True,
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
        elif error.code() == KafkaError._PARTITION_EOF and len(found) >= COUNT:
            break
    consumer.close()
    return found


def wait_until_the_same(cluster: RunningCluster, topic: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        logs = {
            number: b"".join(path.read_bytes() for path in segments(broker, topic))
            for number, broker in cluster.brokers.items()
        }
        if len(set(logs.values())) == 1:
            return
        assert time.monotonic() < deadline, {number: len(log) for number, log in logs.items()}
        time.sleep(0.1)


def in_sync(cluster: RunningCluster, topic: str) -> None:
    cluster.wait_for(topic, lambda found: len(found.partitions[0].isrs) == 3)


def test_a_leader_with_a_flipped_bit_hands_over_and_fetches_again(cluster: RunningCluster) -> None:
    leader = fill(cluster, "led")
    rotten = cluster.brokers[leader]
    flip_a_bit(rotten, "led")
    in_sync(cluster, "led")
    admin = cluster.admin()
    admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("led", 0)]).result(PATIENCE_S)
    cluster.wait_for("led", lambda found: found.partitions[0].leader == leader)
    assert read_all(cluster, "led") == VALUES
    cluster.wait_for("led", lambda found: found.partitions[0].leader not in (-1, leader))
    in_sync(cluster, "led")
    wait_until_the_same(cluster, "led")
    assert "led-0 is damaged at offset" in rotten.log_file.read_text()


def test_a_follower_with_a_flipped_bit_fetches_again(cluster: RunningCluster) -> None:
    leader = fill(cluster, "followed")
    follower = leader % 3 + 1
    rotten = cluster.brokers[follower]
    flip_a_bit(rotten, "followed")
    in_sync(cluster, "followed")
    assert read_all(cluster, "followed", f"rack-{follower}") == VALUES
    wait_until_the_same(cluster, "followed")
    in_sync(cluster, "followed")
    said = rotten.log_file.read_text()
    assert "followed-0 is damaged at offset" in said
    assert read_all(cluster, "followed", f"rack-{follower}") == VALUES


def flip_the_newest_base_offset(broker: RunningBroker, topic: str) -> None:
    """Its top byte, in the newest batch of the active segment, while the broker is stopped."""
    broker.stop()
    newest = segments(broker, topic)[-1]
    content = bytearray(newest.read_bytes())
    position = at = 0
    while at < len(content):
        position = at
        at += read_header(content, at)[1] + OVERHEAD
    content[position] ^= 0x40
    newest.write_bytes(content)
    broker.start()


def test_a_replica_with_a_damaged_header_holds_up_no_other_partition(
    cluster: RunningCluster,
) -> None:
    leader = fill(cluster, "struck")
    cluster.create("healthy", 3, min_insync_replicas="2")
    follower = leader % 3 + 1
    struck = cluster.brokers[follower]
    flip_the_newest_base_offset(struck, "struck")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(300):
        producer.produce("healthy", b"%d" % number, partition=number % 3)
    assert producer.flush(PATIENCE_S) == 0
    cluster.wait_for(
        "healthy", lambda found: all(len(one.isrs) == 3 for one in found.partitions.values())
    )
    in_sync(cluster, "struck")
    wait_until_the_same(cluster, "struck")
    assert read_all(cluster, "struck", f"rack-{follower}") == VALUES
    said = struck.log_file.read_text()
    assert "Traceback" not in said
    assert said.count("cannot follow struck-0") <= 3, "once, and not at every attempt"


def wrong_length(log: list[Path]) -> None:
    """In the header of the newest segment's first batch."""
    content = bytearray(log[-1].read_bytes())
    content[9] ^= 1
    log[-1].write_bytes(content)


def zeroed(log: list[Path]) -> None:
    log[1].write_bytes(bytes(log[1].stat().st_size))


def cut(log: list[Path]) -> None:
    log[1].write_bytes(log[1].read_bytes()[: log[1].stat().st_size // 2])


def test_a_broker_that_died_with_damaged_files_fetches_them_again(cluster: RunningCluster) -> None:
    damages = {"wrong-length": wrong_length, "zeroed": zeroed, "cut": cut}
    for topic in damages:
        fill(cluster, topic)
    died = cluster.brokers[2]
    died.kill()
    for topic, damage in damages.items():
        damage(segments(died, topic))
    died.start()
    for topic in damages:
        in_sync(cluster, topic)
        wait_until_the_same(cluster, topic)
        assert read_all(cluster, topic, "rack-2") == VALUES
    assert "Traceback" not in died.log_file.read_text()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def garbled(path: Path) -> None:
    path.write_bytes(bytes(byte ^ 0x55 for byte in path.read_bytes()))


def test_a_broker_with_damaged_side_files_serves_what_was_written(cluster: RunningCluster) -> None:
    damages = {
        "index": ("*.index", garbled),
        "timeindex": ("*.timeindex", garbled),
        "snapshot": ("*.snapshot", garbled),
        "epochs": ("leader-epoch-checkpoint", emptied),
    }
    for topic in damages:
        fill(cluster, topic)
    struck = cluster.brokers[3]
    struck.stop()
    for topic, (pattern, damage) in damages.items():
        paths = list((struck.data_dir / f"{topic}-0").glob(pattern))
        assert paths
        for path in paths:
            damage(path)
    garbled(struck.data_dir / "recovery-point-offset-checkpoint")
    struck.start()
    for topic in damages:
        in_sync(cluster, topic)
        assert read_all(cluster, topic, "rack-3") == VALUES
        wait_until_the_same(cluster, topic)
    assert "Traceback" not in struck.log_file.read_text()
