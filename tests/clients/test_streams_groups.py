"""Kafka Streams with the streams group protocol: results under kills, and Kafka's own tool.

The same program and the same checks run against Apache Kafka.
"""

import re
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from kio.schema.streams_group_describe.v0.request import StreamsGroupDescribeRequest
from kio.schema.streams_group_describe.v0.response import (
    DescribedGroup,
    StreamsGroupDescribeResponse,
)
from kio.schema.types import GroupId

from headrace.client.config import ClientConfig
from headrace.client.connection import Connection
from headrace.coordination.coordinator_topic import java_hash
from headrace.coordination.streams_records import STREAMS_KEY_TYPES
from headrace.types import Address
from tests.support.apache_kafka import ApacheKafka
from tests.support.headrace_broker import HeadraceBroker
from tests.support.java import QUICK_START, jars, missing, run_tool
from tests.support.topics import create_topic

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).parent / "streams" / "WordCount.java"
APPLICATION = "word-count"
CHANGELOG = f"{APPLICATION}-counts-changelog"
REPARTITION = f"{APPLICATION}-words-repartition"
PARTITIONS = 3
WAIT_S = 180

SETTINGS = {
    "group.streams.heartbeat.interval.ms": "300",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.num.standby.replicas": "1",
    "group.streams.initial.rebalance.delay.ms": "100",
    "group.streams.assignment.interval.ms": "100",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


class Instance:
    """A process of the application."""

    def __init__(self, bootstrap: str, folder: Path, number: int, *options: str) -> None:
        """`options` are the application id, the protocol and the topic of the results."""
        self._output: IO[bytes] = (folder / f"instance-{number}.txt").open("wb")
        self._path = folder / f"instance-{number}.txt"
        self._process = subprocess.Popen(
            ["java", *QUICK_START, "-cp", f"{jars()}/*", str(PROGRAM), bootstrap, *options,
             str(folder / f"state-{number}"), f"127.0.0.1:{9000 + number}"],
            stdin=subprocess.PIPE, stdout=self._output, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def stop(self) -> None:
        """Leave the group."""
        if self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._end()

    def output(self) -> str:
        return self._path.read_text()

    def _end(self) -> None:
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._output.close()


class Application:
    """The application on a broker: its instances, its input and its results."""

    def __init__(self, broker: HeadraceBroker | ApacheKafka, folder: Path, *options: str) -> None:
        self.broker = broker
        self._options = options
        self._folder = folder
        self._started = 0
        self.running: list[Instance] = []
        self.words: Counter[str] = Counter()
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})

    def start(self) -> Instance:
        self._started += 1
        instance = Instance(self.broker.bootstrap, self._folder, self._started, *self._options)
        self.running.append(instance)
        return instance

    def kill(self, instance: Instance) -> None:
        self.running.remove(instance)
        instance.kill()

    def stop(self) -> None:
        while self.running:
            self.running.pop().stop()

    def send(self, count: int) -> None:
        """Produce lines, each to the next partition."""
        for number in range(count):
            line = f"all w{number % 7} w{number % 3}"
            self.words.update(line.split())
            self._producer.produce("lines", line, partition=number % PARTITIONS)
        assert self._producer.flush(WAIT_S) == 0

    def totals(self) -> dict[str, list[int]]:
        """All committed results of each word, in order."""
        found: dict[str, list[int]] = defaultdict(list)
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": "totals-of-the-test",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        try:
            consumer.assign([TopicPartition(self._options[-1], 0, 0)])
            while True:
                message = consumer.poll(WAIT_S)
                assert message is not None, "no answer"
                if message.error() is not None:
                    return found
                key, value = message.key(), message.value()
                assert key is not None
                assert value is not None
                found[key.decode()].append(int.from_bytes(value, "big"))
        finally:
            consumer.close()

    def until_counted(self) -> None:
        """Wait for the results of everything that was sent; each was written exactly once."""

        def counted() -> bool:
            found = self.totals()
            for word, totals in found.items():
                assert totals == list(range(1, len(totals) + 1)), f"{word}: {totals}"
            return {word: len(totals) for word, totals in found.items()} == self.words

        self.until(counted, "all words are counted")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            said = "\n".join(one.output()[-3000:] for one in self.running)
            assert time.monotonic() < deadline, f"not in time: {what}\n{said}"
            time.sleep(0.5)

    def tool(self, *arguments: str) -> str:
        """What kafka-streams-groups prints."""
        return run_tool(
            "kafka-streams-groups", "--bootstrap-server", self.broker.bootstrap, *arguments
        ).stdout

    def rows(self, *arguments: str) -> list[list[str]]:
        """The cells of a description."""
        text = self.tool("--describe", "--group", APPLICATION, *arguments)
        return [line.split() for line in text.splitlines() if line.startswith(APPLICATION)]

    def describe(self) -> DescribedGroup:
        """The group as StreamsGroupDescribe shows it."""
        config = ClientConfig((Address("127.0.0.1", self.broker.port),))
        request = StreamsGroupDescribeRequest(
            group_ids=(GroupId(APPLICATION),), include_authorized_operations=False
        )
        with Connection(config.bootstrap[0], config) as connection:
            return connection.ask(request, StreamsGroupDescribeResponse).groups[0]

    def until_it_is(self, state: str, members: int) -> None:
        def reached() -> bool:
            found = self.describe()
            return (found.group_state, len(found.members)) == (state, members)

        self.until(reached, f"{state} with {members} members")


@pytest.fixture(
    scope="module", params=["headrace", pytest.param("kafka", marks=pytest.mark.endurance)]
)
def application(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Application]:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    modules = subprocess.run(["java", "--list-modules"], capture_output=True, check=True, text=True)
    if "jdk.compiler@" not in modules.stdout:
        pytest.skip("no Java compiler: install the Debian package openjdk-17-jdk-headless")
    folder = tmp_path_factory.mktemp("streams")
    broker: HeadraceBroker | ApacheKafka
    if request.param == "headrace":
        broker = HeadraceBroker(folder / "broker", settings=SETTINGS)
    else:
        broker = ApacheKafka(folder / "broker", settings=SETTINGS, quick=True)
    with broker:
        create_topic(broker.bootstrap, "lines", PARTITIONS)
        create_topic(broker.bootstrap, "totals")
        found = Application(broker, folder, APPLICATION, "streams", "totals")
        yield found
        found.stop()


def test_words_are_counted_exactly_once_while_an_instance_and_the_broker_are_killed(
    application: Application,
) -> None:
    application.start()
    second = application.start()
    application.send(30)
    application.until_it_is("Stable", 2)
    application.until_counted()
    application.send(30)
    application.kill(second)
    application.send(30)
    application.until_counted()
    application.until_it_is("Stable", 1)
    application.broker.kill()
    application.broker.start()
    application.start()
    application.send(30)
    application.until_counted()
    application.until_it_is("Stable", 2)


def test_the_broker_has_made_the_internal_topics(application: Application) -> None:
    admin = AdminClient({"bootstrap.servers": application.broker.bootstrap})
    topics = admin.list_topics(timeout=WAIT_S).topics
    assert {name for name in topics if name.startswith(APPLICATION)} == {CHANGELOG, REPARTITION}
    assert {len(topics[name].partitions) for name in (CHANGELOG, REPARTITION)} == {PARTITIONS}
    resources = [ConfigResource(ConfigResource.Type.TOPIC, one) for one in (CHANGELOG, REPARTITION)]
    found = {
        resource.name: future.result(WAIT_S)
        for resource, future in admin.describe_configs(resources).items()
    }
    assert found[CHANGELOG]["cleanup.policy"].value == "compact"
    assert found[REPARTITION]["cleanup.policy"].value == "delete"
    assert found[REPARTITION]["retention.ms"].value == "-1"
    assert found[CHANGELOG]["message.timestamp.type"].value == "CreateTime"


def test_kafkas_tool_describes_the_group(application: Application) -> None:
    assert application.tool("--list").split() == [APPLICATION]
    assert application.tool("--list", "--state").split()[-2:] == [APPLICATION, "Stable"]
    assert application.tool("--list", "--state", "Empty").split()[-1] != APPLICATION
    members = application.rows("--members", "--verbose")
    text = application.tool("--describe", "--group", APPLICATION, "--members", "--verbose")
    assert len(members) == 2
    active = [cell for row in members for cell in row if cell.startswith("ACTIVE")]
    assert len(active) == 2, text
    assert "STANDBY" in text, text
    offsets = application.rows("--offsets")
    topics = Counter(row[1] for row in offsets)
    assert topics == {"lines": PARTITIONS, REPARTITION: PARTITIONS}, offsets


def test_kafkas_tool_reads_the_records_of_the_group(application: Application) -> None:
    index = java_hash(APPLICATION) % int(SETTINGS["offsets.topic.num.partitions"])
    folder = application.broker.partition_folder("__consumer_offsets", index)
    files = ",".join(map(str, sorted(folder.glob("*.log"))))
    text = run_tool("kafka-dump-log", "--offsets-decoder", "--files", files).stdout
    found = {int(kind) for kind in re.findall(r'"type":"?(\d+)', text)}
    assert found >= STREAMS_KEY_TYPES, text[-4000:]
    assert f'"stateChangelogTopics":[{{"name":"{CHANGELOG}"' in text, text[-4000:]


def test_kafkas_tool_deletes_the_empty_group_with_its_internal_topics(
    application: Application,
) -> None:
    refused = run_tool(
        "kafka-streams-groups", "--bootstrap-server", application.broker.bootstrap,
        "--delete", "--group", APPLICATION, check=False,
    )  # fmt: skip
    assert "NON_EMPTY_GROUP" in refused.text or "not EMPTY" in refused.text, refused.text
    application.stop()
    application.until_it_is("Empty", 0)
    application.tool("--reset-offsets", "--group", APPLICATION, "--to-earliest", "--execute",
                     "--input-topic", "lines")  # fmt: skip
    application.tool("--delete", "--group", APPLICATION)
    assert application.tool("--list").split() == []


def test_the_classic_protocol_counts_the_same_words(
    application: Application, tmp_path: Path
) -> None:
    create_topic(application.broker.bootstrap, "classic-totals")
    classic = Application(application.broker, tmp_path, "classic", "classic", "classic-totals")
    classic.words.update(application.words)
    try:
        classic.start()
        classic.until_counted()
    finally:
        classic.stop()
