"""Groups of the new consumer protocol with real clients: librdkafka's and Kafka's own."""

import json
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.headrace_broker import HeadraceBroker
from tests.support.java import QUICK_START, java_command, run_tool

GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SETTINGS = {
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture(scope="module")
def groups_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceBroker]:
    """A broker whose members hurry, with all groups in one partition."""
    with HeadraceBroker(tmp_path_factory.mktemp("groups"), settings=SETTINGS) as running:
        yield running


class Place:
    """A topic and a group of their own, on a broker."""

    def __init__(self, broker: HeadraceBroker, partitions: int = 4) -> None:
        self.broker = broker
        self.topic = f"t-{uuid.uuid4().hex[:12]}"
        self.group = f"g-{uuid.uuid4().hex[:12]}"
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        self.create(self.topic, partitions)
        self.partitions = partitions
        self.sent = 0

    def create(self, topic: str, partitions: int) -> None:
        self.admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)

    def produce(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for number in range(count):
            value = str(self.sent + number).encode()
            producer.produce(self.topic, value, partition=number % self.partitions)
        assert producer.flush(60) == 0
        self.sent += count

    def described(self) -> tuple[ConsumerGroupState, dict[str, set[int]]]:
        """The group's state, and the partitions of each client id."""
        found = self.admin.describe_consumer_groups([self.group])[self.group].result(60)
        return found.state, {
            one.client_id: {each.partition for each in one.assignment.topic_partitions}
            for one in found.members
        }


class Member(threading.Thread):
    """A consumer that polls until it is stopped, and keeps the values it saw."""

    def __init__(self, place: Place, name: str, protocol: str = "consumer", **more: object) -> None:
        super().__init__(name=name, daemon=True)
        self.values: list[int] = []
        self._over = threading.Event()
        topics = more.pop("topics", [place.topic])
        session = {} if protocol == "consumer" else {"session.timeout.ms": 6000,
                                                     "heartbeat.interval.ms": 300}  # fmt: skip
        self._consumer = Consumer(
            {
                "bootstrap.servers": place.broker.bootstrap,
                "group.id": place.group,
                "group.protocol": protocol,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 500,
                **session,
                **more,
            }
        )
        self._consumer.subscribe(topics)
        self.start()

    def run(self) -> None:
        while not self._over.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.values.append(int(message.value()))
        self._consumer.close()

    def stop(self) -> None:
        self._over.set()
        self.join(60)


def until(question: Callable[[], bool], timeout_s: float = 60) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + timeout_s
    while not question():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def shared(place: Place, *members: Member) -> bool:
    """Whether the group is at rest with just these members, and each has its part."""
    state, owned = place.described()
    return (
        state is ConsumerGroupState.STABLE
        and owned.keys() == {one.name for one in members}
        and sorted(n for part in owned.values() for n in part) == list(range(place.partitions))
        and max(map(len, owned.values())) - min(map(len, owned.values())) <= 1
    )


def test_members_share_the_partitions_and_every_record_is_seen_once(
    groups_broker: HeadraceBroker,
) -> None:
    place = Place(groups_broker)
    place.produce(40)
    first = Member(place, "one")
    until(lambda: len(first.values) == 40)
    second = Member(place, "two")
    until(lambda: shared(place, first, second))
    place.produce(40)
    until(lambda: len(first.values) + len(second.values) == 80)
    second.stop()
    until(lambda: shared(place, first))
    place.produce(40)
    until(lambda: len(first.values) + len(second.values) == 120)
    first.stop()
    assert sorted(first.values + second.values) == list(range(120))


def test_a_group_goes_on_after_its_broker_was_killed(tmp_path: Path) -> None:
    with HeadraceBroker(tmp_path, settings=SETTINGS) as broker:
        place = Place(broker)
        first, second = Member(place, "one"), Member(place, "two")
        until(lambda: shared(place, first, second))
        place.produce(40)
        until(lambda: len(first.values) + len(second.values) == 40)
        before = place.described()
        broker.kill()
        broker.start()
        until(lambda: shared(place, first, second))
        assert place.described() == before
        place.produce(40)
        until(lambda: set(first.values + second.values) == set(range(80)))
        first.stop()
        second.stop()


def test_an_expression_brings_topics_that_are_created_later(groups_broker: HeadraceBroker) -> None:
    place = Place(groups_broker)
    name = place.topic
    member = Member(place, "one", topics=[f"^{name}.*"])
    place.produce(4)
    until(lambda: len(member.values) == 4)
    place.topic = f"{name}-more"
    place.create(place.topic, place.partitions)
    place.produce(4)
    until(lambda: len(member.values) == 8)
    member.stop()


def test_a_static_member_comes_back_to_its_partitions(groups_broker: HeadraceBroker) -> None:
    place = Place(groups_broker)
    first = Member(place, "one", **{"group.instance.id": "instance-1"})
    second = Member(place, "two", **{"group.instance.id": "instance-2"})
    until(lambda: shared(place, first, second))
    before = place.described()
    second.stop()
    again = Member(place, "two", **{"group.instance.id": "instance-2"})
    place.produce(40)
    until(lambda: len(first.values) + len(again.values) == 40)
    assert place.described() == before
    first.stop()
    again.stop()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_changes_its_protocol_and_back_while_it_works(
    groups_broker: HeadraceBroker, strategy: str
) -> None:
    place = Place(groups_broker, 6)
    classic = {"partition.assignment.strategy": strategy}
    members = [Member(place, "old-1", "classic", **classic)]
    members.append(Member(place, "old-2", "classic", **classic))
    until(lambda: shared(place, *members))

    members.append(Member(place, "new", "consumer"))
    until(lambda: shared(place, *members))
    place.produce(60)
    until(lambda: sum(len(one.values) for one in members) == 60)

    members[2].stop()
    until(lambda: shared(place, *members[:2]))
    place.produce(60)
    until(lambda: sum(len(one.values) for one in members) == 120)
    for one in members[:2]:
        one.stop()
    assert sorted(value for one in members for value in one.values) == list(range(120))


@pytest.mark.java
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_kafkas_own_consumer_and_tools_see_the_group_as_it_is(
    groups_broker: HeadraceBroker, tmp_path: Path, assignor: str
) -> None:
    place = Place(groups_broker)
    place.produce(40)
    address = ("--bootstrap-server", groups_broker.bootstrap)
    command = java_command(
        "org.apache.kafka.tools.VerifiableConsumer", *address, "--topic", place.topic,
        "--group-id", place.group, "--group-protocol", "consumer",
        "--group-remote-assignor", assignor, options=QUICK_START,
    )  # fmt: skip
    outputs = [tmp_path / "one", tmp_path / "two"]
    running = []
    for output in outputs:
        with output.open("w") as file:
            running.append(subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL))
    try:
        until(
            lambda: (
                len(
                    place.admin.describe_consumer_groups([place.group])[place.group]
                    .result(60)
                    .members
                )
                == 2
            )
        )
        until(lambda: place.described()[0] is ConsumerGroupState.STABLE)
        until(lambda: sum(_consumed(output) for output in outputs) >= 40)
        members = run_tool(
            GROUPS_TOOL, *address, "--describe", "--group", place.group, "--members", "--verbose"
        ).stdout
        for number in ("0,1", "2,3"):
            assert members.count(f"{place.topic}:{number}") == 2, "it owns what it should own"
        state = run_tool(GROUPS_TOOL, *address, "--describe", "--group", place.group, "--state")
        assert f" {assignor} " in state.stdout
        assert " Stable " in state.stdout
        listed = run_tool(GROUPS_TOOL, *address, "--list", "--type", "consumer", "--state")
        assert any(
            line.split() == [place.group, "Consumer", "Stable"]
            for line in listed.stdout.splitlines()
        )
    finally:
        for process in running:
            process.terminate()
            process.wait(60)
    until(lambda: place.described()[0] is ConsumerGroupState.EMPTY)
    offsets = run_tool(GROUPS_TOOL, *address, "--describe", "--group", place.group, "--offsets")
    lags = [line.split()[3:6] for line in offsets.stdout.splitlines() if place.topic in line]
    assert lags == [["10", "10", "0"]] * 4
    deleted = run_tool(GROUPS_TOOL, *address, "--delete", "--group", place.group)
    assert "successful" in deleted.stdout


def _consumed(output: Path) -> int:
    events = [json.loads(line) for line in output.read_text().splitlines() if line.startswith("{")]
    return sum(one["count"] for one in events if one["name"] == "records_consumed")


@pytest.mark.java
def test_kafkas_log_dump_reads_every_record_of_a_group(groups_broker: HeadraceBroker) -> None:
    place = Place(groups_broker)
    old = Member(place, "old", "classic")
    until(lambda: shared(place, old))
    new = Member(place, "new", topics=[f"^{place.topic}.*"])
    until(lambda: shared(place, old, new))
    (segment,) = groups_broker.data.glob("**/__consumer_offsets-0/*.log")
    dump = run_tool("kafka-dump-log", "--offsets-decoder", "--files", str(segment)).stdout
    new.stop()
    old.stop()
    mine = [line for line in dump.splitlines() if place.group in line]
    for kind in ("3", "5", "6", "7", "8", "16"):
        assert any(f'key: {{"type":"{kind}","data":' in line for line in mine), kind
    assert not [line for line in mine if "Unknown" in line or "payload: <EMPTY>" in line]
    assert any('"classicMemberMetadata":{"sessionTimeoutMs":6000' in line for line in mine)
    assert any(f'"topics":["{place.topic}"]' in line for line in mine)
