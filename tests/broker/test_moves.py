"""Replicas that move between a real broker's data folders, under real clients."""

import errno
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from headrace.cli.broker.verification import Verification
from headrace.disk import RealDisk
from headrace.errors import ErrorCode
from headrace.testing.running import RunningBroker
from tests.broker.test_data_folders import create, homes
from tests.support.cluster import RunningCluster
from tests.support.committed import committed_values
from tests.support.java import run_tool
from tests.support.messages import item, part
from tests.support.raw import RawClient
from tests.support.raw_producer import request, response
from tests.testing.test_running import send

Factory = Callable[..., RunningBroker]

ALTER, DESCRIBE = 34, 35
TOPIC = "orders"
SLOW = {"replica.alter.log.dirs.io.max.bytes.per.second": "20000"}
VALUE = b"x" * 1000


def until(happened: Callable[[], bool]) -> None:
    """Wait for something; the test's own time limit ends it."""
    while not happened():
        time.sleep(0.01)


def ask(broker: RunningBroker, api: int, version: int, /, **values: object) -> Any:
    with RawClient(broker.bootstrap_servers) as client:
        return response(api, version, client.ask(request(api, version, **values)))


def move(broker: RunningBroker, folder: int, index: int = 0) -> int:
    """Ask for a partition to lie in a folder; the error code."""
    topic = item(type(part(ALTER, 2, "dirs")), "topics", name=TOPIC, partitions=(index,))
    wanted = part(ALTER, 2, "dirs", path=str(broker.data_dirs[folder]), topics=(topic,))
    answer = ask(broker, ALTER, 2, dirs=(wanted,))
    return int(answer.results[0].partitions[0].error_code)


def described(broker: RunningBroker) -> list[tuple[int, bool, int]]:
    """Folder, whether it is a copy on its way and its lag, of each replica of partition 0."""
    answer = ask(broker, DESCRIBE, 4, topics=None)
    paths = [str(path) for path in broker.data_dirs]
    return [
        (paths.index(folder.log_dir), partition.is_future_key, partition.offset_lag)
        for folder in answer.results
        for topic in folder.topics
        for partition in topic.partitions
        if topic.name == TOPIC and partition.partition_index == 0
    ]


def wait_until_moved(broker: RunningBroker, folder: int) -> None:
    until(lambda: described(broker) == [(folder, False, 0)])


@contextmanager
def writing(broker: RunningBroker | RunningCluster, **options: object) -> Iterator[list[bytes]]:
    """Somebody who writes numbered records all the time; what was acknowledged so far."""
    acknowledged: list[bytes] = []
    stop = threading.Event()

    def delivered(error: object, message: Any) -> None:
        assert error is None, error
        acknowledged.append(message.value())

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 1,
            "log_level": 0,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.max.ms": 100,
            **options,
        }
    )

    def write() -> None:
        number = 0
        while not stop.is_set():
            producer.produce(TOPIC, b"%d " % number + VALUE, partition=0, callback=delivered)
            producer.poll(0.005)
            number += 1
        producer.flush(60)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield acknowledged
    finally:
        stop.set()
        thread.join()


def wait_for_more(acknowledged: list[bytes]) -> None:
    before = len(acknowledged)
    until(lambda: len(acknowledged) >= before + 20)


def findings(broker: RunningBroker) -> list[object]:
    verification = Verification(RealDisk())
    for folder in broker.data_dirs:
        verification.folder(str(folder))
    return [*verification.findings]


def folders(broker: RunningBroker) -> list[str]:
    """The folders of partition 0, whatever their names."""
    return [
        f"{number}/{path.name}"
        for number, data in enumerate(broker.data_dirs)
        for path in sorted(data.glob(f"{TOPIC}-0*"))
    ]


def test_a_replica_moves_while_it_is_written_to(headrace_factory: Factory) -> None:
    broker = headrace_factory(folders=2)
    create(broker, TOPIC, 1, segment_bytes=str(1 << 20))
    (first,) = homes(broker, TOPIC, 1)
    with writing(broker) as acknowledged:
        for target in (1 - first, first, 1 - first):
            assert move(broker, target) == 0
            wait_until_moved(broker, target)
            wait_for_more(acknowledged)
    assert committed_values(broker.bootstrap_servers, TOPIC) == acknowledged
    broker.kill()
    broker.start()
    assert committed_values(broker.bootstrap_servers, TOPIC) == acknowledged
    broker.stop()
    assert folders(broker) == [f"{1 - first}/{TOPIC}-0"]
    assert findings(broker) == []
    broker.start()


def set_pace(broker: RunningBroker, bytes_per_second: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    entry = ConfigEntry(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        str(bytes_per_second),
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(60)


def fill(broker: RunningBroker, count: int = 300) -> list[bytes]:
    with writing(broker) as acknowledged:
        until(lambda: len(acknowledged) >= count)
    return acknowledged


def lag(broker: RunningBroker) -> int:
    """What the copy lacks; KeyError if there is none."""
    return {is_future: offsets for _, is_future, offsets in described(broker)}[True]


def test_a_move_goes_on_after_a_restart_where_it_was(headrace_factory: Factory) -> None:
    broker = headrace_factory(SLOW, folders=2)
    create(broker, TOPIC, 1)
    (first,) = homes(broker, TOPIC, 1)
    acknowledged = fill(broker)
    assert move(broker, 1 - first) == 0
    until(lambda: 0 <= lag(broker) < len(acknowledged))
    left = lag(broker)
    broker.restart()
    until(lambda: lag(broker) >= 0)  # -1 while the copy is not opened
    assert lag(broker) <= left
    assert described(broker)[first] == (first, False, 0)
    set_pace(broker, 1 << 30)
    wait_until_moved(broker, 1 - first)
    assert committed_values(broker.bootstrap_servers, TOPIC) == acknowledged


@pytest.mark.parametrize(
    ("point", "side", "fault"),
    [
        ("pwrite .log", "to", {"written": 100}),
        (f"rename {TOPIC}-0", "to", {}),
        (f"rename {TOPIC}-0", "to", {"after": 1}),
        ("rename deleted", "from", {"after": 1}),
        *(
            pytest.param(*case, marks=pytest.mark.endurance)
            for case in (
                ("make_folder future", "to", {"after": 1}),
                ("fdatasync .log", "to", {}),
                ("rename moved-from", "to", {"after": 1}),
                ("rename recovery-point-offset-checkpoint", "to", {"skip": 1}),
                ("rename deleted", "from", {}),
                ("remove moved-from", "to", {"after": 1}),
                ("remove .log", "from", {"after": 1}),
            )
        ),
    ],
)
def test_a_kill_in_the_middle_of_a_move_loses_nothing(
    headrace_factory: Factory, point: str, side: str, fault: dict[str, int]
) -> None:
    broker = headrace_factory({"log.flush.offset.checkpoint.interval.ms": "200"}, folders=2)
    create(broker, TOPIC, 1)
    (first,) = homes(broker, TOPIC, 1)
    earlier = fill(broker, 20)
    delete_before(broker, 5)
    with writing(broker, **{"message.timeout.ms": 60_000}) as acknowledged:
        wait_for_more(acknowledged)
        under = broker.data_dirs[1 - first if side == "to" else first]
        broker.spoil_disk(point, kill=1, under=str(under), **fault)
        with suppress(ConnectionError):
            move(broker, 1 - first)
        assert broker.wait_until_dead() < 0
        broker.start()
        if described(broker) == [(first, False, 0)]:
            move(broker, 1 - first)  # it had not begun
        wait_until_moved(broker, 1 - first)
        wait_for_more(acknowledged)
    values = committed_values(broker.bootstrap_servers, TOPIC)
    assert values == earlier[5:] + acknowledged
    broker.stop()
    assert findings(broker) == []
    broker.start()
    assert committed_values(broker.bootstrap_servers, TOPIC) == values
    until(lambda: folders(broker) == [f"{1 - first}/{TOPIC}-0"])


def delete_before(broker: RunningBroker, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for done in admin.delete_records([TopicPartition(TOPIC, 0, offset)]).values():
        assert done.result(60).low_watermark == offset


def test_naming_the_folder_where_it_lies_stops_a_move(headrace_factory: Factory) -> None:
    broker = headrace_factory(SLOW, folders=3)
    create(broker, TOPIC, 1)
    (first,) = homes(broker, TOPIC, 1)
    acknowledged = fill(broker)
    assert move(broker, (first + 1) % 3) == 0
    assert move(broker, (first + 2) % 3) == 0
    wanted = {(first, False), ((first + 2) % 3, True)}
    until(lambda: {replica[:2] for replica in described(broker)} == wanted)
    assert move(broker, first) == 0
    wait_until_moved(broker, first)
    assert committed_values(broker.bootstrap_servers, TOPIC) == acknowledged
    until(lambda: folders(broker) == [f"{first}/{TOPIC}-0"])


def test_a_topic_that_is_deleted_while_it_moves_leaves_nothing(headrace_factory: Factory) -> None:
    broker = headrace_factory(SLOW, folders=2)
    create(broker, TOPIC, 1)
    (first,) = homes(broker, TOPIC, 1)
    fill(broker)
    assert move(broker, 1 - first) == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics([TOPIC])[TOPIC].result(60)
    until(lambda: not folders(broker))
    create(broker, TOPIC, 1)
    assert send(broker, TOPIC, "new") == [0]


def test_a_folder_that_fails_while_it_receives_a_replica_affects_no_other(
    headrace_factory: Factory,
) -> None:
    broker = headrace_factory(folders=2)
    create(broker, TOPIC, 1)
    assert homes(broker, TOPIC, 1) == [0]
    with writing(broker) as acknowledged:
        wait_for_more(acknowledged)
        broker.spoil_disk("fdatasync", code=errno.EIO, under=str(broker.data_dirs[1]))
        assert move(broker, 1) == 0
        until(lambda: move(broker, 1) == ErrorCode.KAFKA_STORAGE_ERROR)
        wait_for_more(acknowledged)
    assert committed_values(broker.bootstrap_servers, TOPIC) == acknowledged
    broker.stop()
    broker.start()
    wait_until_moved(broker, 1)
    assert committed_values(broker.bootstrap_servers, TOPIC) == acknowledged


def test_transactions_and_acknowledged_syncs_do_not_notice_a_move(
    headrace_factory: Factory,
) -> None:
    broker = headrace_factory(folders=2)
    create(broker, TOPIC, 1, flush_messages="1", segment_bytes=str(1 << 20))
    (first,) = homes(broker, TOPIC, 1)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "writer"}
    )
    producer.init_transactions(60)
    committed: list[bytes] = []

    def transaction(number: int) -> None:
        producer.begin_transaction()
        values = [b"%d-%d" % (number, n) for n in range(3)]
        for value in values:
            producer.produce(TOPIC, value, partition=0)
        if number % 3:
            producer.commit_transaction(60)
            committed.extend(values)
        else:
            producer.abort_transaction(60)

    for target in (1 - first, first):
        for number in range(5):
            transaction(number)
        producer.begin_transaction()
        producer.produce(TOPIC, b"open", partition=0)
        producer.flush(60)
        assert move(broker, target) == 0
        wait_until_moved(broker, target)
        producer.abort_transaction(60)
        transaction(100)
    assert committed_values(broker.bootstrap_servers, TOPIC) == committed
    broker.kill()
    broker.start()
    assert committed_values(broker.bootstrap_servers, TOPIC) == committed
    broker.stop()
    assert findings(broker) == []
    broker.start()


@pytest.mark.slow
def test_replicas_of_a_cluster_move_whether_they_lead_or_follow(tmp_path: Path) -> None:
    with RunningCluster(tmp_path / "metadata", folders=2) as cluster:
        cluster.create(TOPIC, 1, min_insync_replicas="2", segment_bytes=str(1 << 20))
        leader = cluster.leader(TOPIC)
        with writing(cluster) as acknowledged:
            wait_for_more(acknowledged)
            for number, broker in cluster.brokers.items():
                if number != leader % 3 + 1:  # one of the followers stays where it is
                    (home,) = homes(broker, TOPIC, 1)
                    assert move(broker, 1 - home) == 0
                    wait_until_moved(broker, 1 - home)
                    wait_for_more(acknowledged)
            cluster.brokers[leader].kill()
            wait_for_more(acknowledged)
            cluster.brokers[leader].start()
            cluster.wait_for(TOPIC, lambda topic: len(topic.partitions[0].isrs) == 3)
        assert committed_values(cluster.bootstrap_servers, TOPIC) == acknowledged
        for broker in cluster.brokers.values():
            broker.stop()
        first, *others = [
            b"".join(
                path.read_bytes()
                for data in broker.data_dirs
                for path in sorted((data / f"{TOPIC}-0").glob("*.log"))
            )
            for broker in cluster.brokers.values()
        ]
        assert others == [first, first]
        for broker in cluster.brokers.values():
            broker.start()


@pytest.mark.java
def test_kafkas_own_tools_move_a_replica_and_see_it_move(
    headrace_factory: Factory, tmp_path: Path
) -> None:
    broker = headrace_factory(SLOW, folders=2)
    create(broker, TOPIC, 1)
    (first,) = homes(broker, TOPIC, 1)
    acknowledged = fill(broker)
    wanted = {
        "version": 1,
        "partitions": [
            {
                "topic": TOPIC,
                "partition": 0,
                "replicas": [1],
                "log_dirs": [str(broker.data_dirs[1 - first])],
            }
        ],
    }
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(wanted))
    tool = (
        "kafka-reassign-partitions", "--bootstrap-server", broker.bootstrap_servers,
        "--reassignment-json-file", str(plan),
    )  # fmt: skip
    started = run_tool(*tool, "--execute").text
    assert "Successfully started moving log directory" in started, started
    shown = run_tool("kafka-log-dirs", "--bootstrap-server", broker.bootstrap_servers, "--describe")
    (found,) = json.loads(shown.stdout.splitlines()[-1])["brokers"]
    replicas = [
        (Path(folder["logDir"]) == broker.data_dirs[1 - first], one["isFuture"])
        for folder in found["logDirs"]
        for one in folder["partitions"]
        if one["partition"] == f"{TOPIC}-0"
    ]
    assert sorted(replicas) == [(False, False), (True, True)]
    assert "is still in progress" in run_tool(*tool, "--verify", "--preserve-throttles").text
    set_pace(broker, 1 << 30)
    wait_until_moved(broker, 1 - first)
    assert "completed successfully" in run_tool(*tool, "--verify").text
    assert committed_values(broker.bootstrap_servers, TOPIC) == acknowledged
