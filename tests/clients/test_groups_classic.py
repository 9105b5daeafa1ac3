"""Classic consumer groups as real clients form them: sharing, moving, fencing, restarts."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import kafka
import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.admin import KafkaAdminClient

from tests.support.headrace_broker import HeadraceBroker
from tests.support.java import QUICK_START, java_command, run_tool

PARTITIONS = 4
GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "5",
}


@pytest.fixture(scope="module")
def group_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceBroker | None]:
    if os.environ.get("HEADRACE_TEST_BOOTSTRAP"):
        yield None
        return
    with HeadraceBroker(tmp_path_factory.mktemp("groups"), settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def servers(group_broker: HeadraceBroker | None) -> str:
    if group_broker is None:
        return os.environ["HEADRACE_TEST_BOOTSTRAP"]
    return group_broker.bootstrap


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def filled(servers: str) -> str:
    """A topic with 100 records in four partitions."""
    return fill(servers)


def fill(servers: str, count: int = 100) -> str:
    topic = f"t-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    for n in range(count):
        producer.produce(topic, b"%d" % n, partition=n % PARTITIONS)
    assert producer.flush(60) == 0
    return topic


def consumer(servers: str, group: str, **options: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
            **options,
        }
    )


def poll_until(
    consumers: list[Consumer], done: Callable[[], bool], seconds: float = 60
) -> list[Any]:
    """Poll them in turn until `done`; the records that came."""
    records = []
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, [one.assignment() for one in consumers]
        for one in consumers:
            record = one.poll(0.05)
            if record is not None:
                assert record.error() is None, record.error()
                records.append(record)
    return records


def shares(consumers: list[Consumer]) -> list[int]:
    return sorted(len(one.assignment()) for one in consumers)


def each_once(consumers: list[Consumer]) -> bool:
    owned = [part.partition for one in consumers for part in one.assignment()]
    return sorted(owned) == list(range(PARTITIONS))


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_partitions_move_as_members_come_and_go(
    servers: str, filled: str, group: str, strategy: str
) -> None:
    options = {"partition.assignment.strategy": strategy}
    members = [consumer(servers, group, **options) for _ in range(3)]
    members[0].subscribe([filled])
    poll_until(members[:1], lambda: shares(members[:1]) == [4])
    for one in members[1:]:
        one.subscribe([filled])
    poll_until(members, lambda: shares(members) == [1, 1, 2] and each_once(members))
    members.pop().close()
    poll_until(members, lambda: shares(members) == [2, 2] and each_once(members))
    for one in members:
        one.close()


def test_a_lone_consumer_gets_its_partitions_without_waiting(
    servers: str, filled: str, group: str
) -> None:
    # The broker would wait for other members for as long as they may take to rejoin.
    one = consumer(servers, group, **{"max.poll.interval.ms": 120_000})
    one.subscribe([filled])
    poll_until([one], lambda: shares([one]) == [4], seconds=100)
    one.close()


def test_a_consumer_goes_on_where_its_group_stopped(servers: str, filled: str, group: str) -> None:
    first = consumer(servers, group)
    first.subscribe([filled])
    seen: list[Any] = []
    while len(seen) < 100:
        seen += poll_until([first], lambda: True) or [
            record for record in first.consume(100, 5) if record.error() is None
        ]
    assert len({record.value() for record in seen}) == 100
    first.commit(asynchronous=False)
    first.close()
    second = consumer(servers, group)
    positions = second.committed([TopicPartition(filled, n) for n in range(PARTITIONS)], 60)
    assert [position.offset for position in positions] == [25] * PARTITIONS
    second.close()


def test_a_pattern_subscription_finds_topics_that_come_later(servers: str, group: str) -> None:
    stem = uuid.uuid4().hex[:8]
    one = consumer(servers, group, **{"topic.metadata.refresh.interval.ms": 300})
    one.subscribe([f"^pattern-{stem}-.*"])
    one.poll(0.5)
    admin = AdminClient({"bootstrap.servers": servers})
    for share in (2, 4):
        name = f"pattern-{stem}-{share}"
        admin.create_topics([NewTopic(name, 2, 1)])[name].result(60)
        poll_until([one], partial(lambda wanted: shares([one]) == [wanted], share))
    one.close()


def test_the_older_of_two_with_one_instance_id_is_fenced(
    servers: str, filled: str, group: str
) -> None:
    options = {"group.instance.id": "worker-1"}
    older, newer = consumer(servers, group, **options), consumer(servers, group, **options)
    older.subscribe([filled])
    poll_until([older], lambda: shares([older]) == [4])
    newer.subscribe([filled])
    poll_until([newer], lambda: shares([newer]) == [4])
    # Its next heartbeat tells it, and every call from then on.
    deadline = time.monotonic() + 60
    codes: set[int] = set()
    fenced = {KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL}
    while not codes & fenced and time.monotonic() < deadline:
        record = older.poll(0.2)
        if record is not None and record.error() is not None:
            codes.add(record.error().code())
        try:
            older.commit(offsets=[TopicPartition(filled, 0, 1)], asynchronous=False)
        except KafkaException as error:
            codes.add(error.args[0].code())
    assert codes & fenced
    older.close()
    newer.close()


def test_a_static_member_that_restarts_moves_nothing(servers: str, filled: str, group: str) -> None:
    moves: list[str] = []
    other = consumer(servers, group, **{"group.instance.id": "other"})
    other.subscribe(
        [filled],
        on_assign=lambda *_: moves.append("assign"),
        on_revoke=lambda *_: moves.append("revoke"),
    )
    one = consumer(servers, group, **{"group.instance.id": "one", "session.timeout.ms": 20_000})
    one.subscribe([filled])
    poll_until([one, other], lambda: shares([one, other]) == [2, 2])
    mine = sorted(part.partition for part in one.assignment())
    moves.clear()
    one.close()
    again = consumer(servers, group, **{"group.instance.id": "one", "session.timeout.ms": 20_000})
    again.subscribe([filled])
    poll_until([again, other], lambda: shares([again]) == [2])
    assert sorted(part.partition for part in again.assignment()) == mine
    assert moves == []
    again.close()
    other.close()


def test_a_member_that_went_silent_cannot_commit_any_more(
    servers: str, filled: str, group: str
) -> None:
    program = (
        "import sys, time\n"
        "from confluent_kafka import Consumer\n"
        f"c = Consumer({{'bootstrap.servers': {servers!r}, 'group.id': {group!r},\n"
        "  'session.timeout.ms': 1500, 'heartbeat.interval.ms': 200,\n"
        "  'enable.auto.commit': False, 'auto.offset.reset': 'earliest'})\n"
        f"c.subscribe([{filled!r}])\n"
        "while len(c.assignment()) < 4: c.poll(0.1)\n"
        "record = None\n"
        "while record is None: record = c.poll(0.1)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "try:\n"
        "  c.commit(message=record, asynchronous=False); print('committed')\n"
        "except Exception as error: print(error.args[0].code())\n"
    )
    silent = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert silent.stdin is not None
    assert silent.stdout is not None
    assert silent.stdout.readline() == b"ready\n"
    silent.send_signal(signal.SIGSTOP)
    heir = consumer(servers, group)
    heir.subscribe([filled])
    poll_until([heir], lambda: shares([heir]) == [4])
    silent.stdin.write(b"\n")
    silent.stdin.flush()
    silent.send_signal(signal.SIGCONT)
    answer = silent.stdout.readline().strip()
    silent.kill()
    silent.wait()
    assert answer in (b"22", b"25"), answer
    heir.close()


def test_committed_offsets_never_go_back_when_the_broker_is_killed(tmp_path: Any) -> None:
    with HeadraceBroker(tmp_path, settings=SETTINGS) as broker:
        topic = fill(broker.bootstrap, 0)
        acknowledged = [-1]
        stop = threading.Event()

        def commit_upwards() -> None:
            one = consumer(broker.bootstrap, "steady", **{"socket.timeout.ms": 2000})
            offset = 0
            while not stop.is_set():
                try:
                    one.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
                except KafkaException:
                    time.sleep(0.02)
                    continue
                acknowledged.append(offset)
                offset += 1
            one.close()

        thread = threading.Thread(target=commit_upwards)
        thread.start()
        for _ in range(3):
            before = len(acknowledged)
            deadline = time.monotonic() + 60
            while len(acknowledged) < before + 50 and time.monotonic() < deadline:
                time.sleep(0.01)
            assert len(acknowledged) >= before + 50
            broker.kill()
            known = acknowledged[-1]
            broker.start()
            reader = consumer(broker.bootstrap, "steady")
            (found,) = reader.committed([TopicPartition(topic, 0)], 60)
            reader.close()
            assert found.offset >= known
        stop.set()
        thread.join(60)


def test_a_group_lives_on_when_the_broker_is_killed(tmp_path: Any) -> None:
    with HeadraceBroker(tmp_path, settings=SETTINGS) as broker:
        topic = fill(broker.bootstrap)
        members = [consumer(broker.bootstrap, "steady") for _ in range(2)]
        for one in members:
            one.subscribe([topic])
        poll_until(members, lambda: shares(members) == [2, 2])
        broker.kill()
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        described = admin.describe_consumer_groups(["steady"])["steady"].result(60)
        assert len(described.members) == 2
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for part in range(PARTITIONS):
            producer.produce(topic, b"after", partition=part)
        assert producer.flush(60) == 0
        records: list[Any] = []
        deadline = time.monotonic() + 60
        while sum(record.value() == b"after" for record in records) < PARTITIONS:
            assert time.monotonic() < deadline
            for one in members:
                records += [record for record in one.consume(50, 0.1) if record.error() is None]
        assert shares(members) == [2, 2]
        for one in members:
            one.close()


# --- Other clients --------------------------------------------------------------------------------


def test_kafka_python_consumes_commits_and_administers(
    servers: str, filled: str, group: str
) -> None:
    with kafka.KafkaConsumer(
        filled,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=60_000,
    ) as one:
        seen = [record.value for _, record in zip(range(100), one, strict=False)]
        assert len(set(seen)) == 100
        one.commit()
        partition = kafka.TopicPartition(filled, 0)
        assert one.committed(partition) == 25
    admin = KafkaAdminClient(bootstrap_servers=servers)
    assert admin.describe_groups([group])[group]["group_state"] == "Empty"
    offsets = admin.list_group_offsets([group])[group]
    assert offsets[kafka.TopicPartition(filled, 1)].offset == 25
    assert group in [listed["group_id"] for listed in admin.list_groups()]
    admin.delete_groups([group])
    assert group not in [listed["group_id"] for listed in admin.list_groups()]
    admin.close()


def test_aiokafka_members_share_a_topic(servers: str, filled: str, group: str) -> None:
    async def share() -> set[bytes]:
        options = {
            "bootstrap_servers": servers,
            "group_id": group,
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": 200,
            "session_timeout_ms": 6000,
        }
        members = [AIOKafkaConsumer(filled, **options) for _ in range(2)]
        seen: set[bytes] = set()
        for one in members:
            await one.start()
        while len(seen) < 100 or [len(one.assignment()) for one in members] != [2, 2]:
            for one in members:
                for records in (await one.getmany(timeout_ms=100)).values():
                    seen |= {record.value for record in records}
        for one in members:
            await one.stop()
        return seen

    assert len(asyncio.run(asyncio.wait_for(share(), 60))) == 100


@pytest.mark.skipif(shutil.which("kcat") is None, reason="install the Debian package kcat")
def test_kcat_reads_as_a_group(servers: str, filled: str, group: str) -> None:
    command = ["kcat", "-b", servers, "-G", group, "-X", "auto.offset.reset=earliest"]
    done = subprocess.run(
        [*command, "-e", "-q", "-c", "100", filled], capture_output=True, timeout=110, check=True
    )
    assert len(set(done.stdout.split())) == 100


def test_administration_by_confluent(servers: str, filled: str, group: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    one = consumer(servers, group)
    one.subscribe([filled])
    poll_until([one], lambda: shares([one]) == [4])
    listed = admin.list_consumer_groups().result(60).valid
    assert group in [each.group_id for each in listed]
    described = admin.describe_consumer_groups([group])[group].result(60)
    assert described.state.name == "STABLE"
    assert described.members[0].host == "/127.0.0.1"
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result(60)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    one.close()
    admin.delete_consumer_groups([group])[group].result(60)
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result(60)
    assert refused.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


# --- Kafka's own tools ----------------------------------------------------------------------------


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["RangeAssignor", "CooperativeStickyAssignor"])
def test_verifiable_consumers_share_a_topic(
    servers: str, filled: str, group: str, strategy: str
) -> None:
    command = java_command(
        VERIFIABLE_CONSUMER,
        *("--bootstrap-server", servers, "--group-id", group, "--topic", filled),
        *("--reset-policy", "earliest", "--session-timeout", "30000"),
        *("--assignment-strategy", f"org.apache.kafka.clients.consumer.{strategy}"),
        *("--max-messages", "50"),
        options=QUICK_START,
    )
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for _ in range(2)
    ]
    events = [
        json.loads(line) for one in running for line in one.communicate(timeout=90)[0].splitlines()
    ]
    consumed = [
        (part["partition"], offset)
        for event in events
        if event["name"] == "records_consumed"
        for part in event["partitions"]
        for offset in range(part["minOffset"], part["maxOffset"] + 1)
    ]
    assert sorted(consumed) == [(part, n) for part in range(PARTITIONS) for n in range(25)]
    commits = [event for event in events if event["name"] == "offsets_committed"]
    assert commits
    assert all(event["success"] for event in commits)


@pytest.mark.java
@pytest.mark.slow
def test_kafka_reads_our_offsets_and_groups(
    group_broker: HeadraceBroker | None, servers: str, filled: str, group: str
) -> None:
    if group_broker is None:
        pytest.skip("these are Kafka's own files")
    one = consumer(servers, group)
    one.subscribe([filled])
    poll_until([one], lambda: shares([one]) == [4])
    one.commit(offsets=[TopicPartition(filled, 2, 17, metadata="note")], asynchronous=False)
    one.close()
    logs = sorted(group_broker.data.glob("__consumer_offsets-*/*.log"))
    dumped = run_tool(
        "kafka-dump-log", "--files", ",".join(map(str, logs)), "--offsets-decoder"
    ).stdout
    mine = [line for line in dumped.splitlines() if f'"group":"{group}"' in line]
    assert any('"offset":17' in line and '"metadata":"note' in line for line in mine), mine
    assert any('"protocolType":"consumer"' in line and filled in line for line in mine), mine
    shown = run_tool(
        "kafka-console-consumer",
        *("--bootstrap-server", servers, "--topic", "__consumer_offsets", "--from-beginning"),
        *("--formatter", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"),
        *("--timeout-ms", "4000"),
        check=False,
    ).stdout
    assert any(group in line and '"offset":17' in line for line in shown.splitlines())
