"""Kafka's own group tools with every option, and its consumers as members that come and go."""

import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import groups
from tests.support.headrace_broker import HeadraceBroker
from tests.support.java import QUICK_START, ToolResult, java_command, run_tool

pytestmark = [pytest.mark.java, pytest.mark.slow]

PARTITIONS = 4
EACH = 25
COMMITTED = 10
MINUTE_MS = 60_000
GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
EVERY_TYPE_TOOL = "org.apache.kafka.tools.GroupsCommand"
VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
ASSIGNORS = "org.apache.kafka.clients.consumer"
SETTINGS = {
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "3",
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker whose groups hurry, or of a foreign one to compare with."""
    if foreign := os.environ.get("HEADRACE_TEST_BOOTSTRAP"):
        yield foreign
        return
    with HeadraceBroker(tmp_path_factory.mktemp("groups"), settings=SETTINGS) as running:
        yield running.bootstrap


@pytest.fixture
def topic(servers: str) -> str:
    return new_topic(servers)


@pytest.fixture
def group() -> str:
    return new_group()


def new_group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


def new_topic(servers: str) -> str:
    """A topic with 25 records in each partition, a minute apart, the last one 25 minutes ago."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)
    produce(servers, name, EACH, first_ms=time.time_ns() // 1_000_000 - 50 * MINUTE_MS)
    return name


def produce(servers: str, topic: str, each: int, first_ms: int = 0) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(each):
        stamp = {"timestamp": first_ms + number * MINUTE_MS} if first_ms else {}
        for partition in range(PARTITIONS):
            producer.produce(topic, f"{partition}/{number}", partition=partition, **stamp)
    assert producer.flush(60) == 0


def commit(servers: str, topic: str, group: str, offset: int = COMMITTED) -> None:
    """Offsets of a group that has no members."""
    one = Consumer({"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False})
    parts = [TopicPartition(topic, part, offset) for part in range(PARTITIONS)]
    one.commit(offsets=parts, asynchronous=False)
    one.close()


def committed(servers: str, topic: str, group: str) -> list[int]:
    found = groups.committed(servers, group)
    assert {name for name, _ in found} <= {topic}
    return [offset for _, offset in sorted(found.items())]


def tool(servers: str, *arguments: str, **options: Any) -> ToolResult:
    return run_tool(GROUPS_TOOL, "--bootstrap-server", servers, *arguments, **options)


def table(text: str) -> list[dict[str, str]]:
    """The rows of all tables in what the tool printed, by the titles of their columns."""
    rows: list[dict[str, str]] = []
    titles: list[str] = []
    for line in text.splitlines():
        # One title has a space in it, and so have the values under it.
        words = line.replace("COORDINATOR (ID)", "COORDINATOR ID").split()
        if words[:1] in (["GROUP"], ["TOPIC"]):
            titles = words
        elif titles and len(words) == len(titles):
            rows.append(dict(zip(titles, words, strict=True)))
    return rows


def column(text: str, title: str, key: str = "PARTITION") -> dict[str, str]:
    return {row[key]: row[title] for row in table(text)}


def until(question: Callable[[], bool], timeout_s: float = 60) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + timeout_s
    while not question():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


# --- kafka-consumer-groups ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def members(servers: str) -> Iterator[dict[str, tuple[str, Consumer]]]:
    """For each protocol a group and its one member, which owns a topic and has committed."""
    running = {}
    topic = new_topic(servers)
    for protocol in ("classic", "consumer"):
        group = new_group()
        one = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "group.protocol": protocol,
                "client.id": f"client-{protocol}",
                "enable.auto.commit": False,
            }
        )
        one.subscribe([topic])
        end = time.monotonic() + 60
        while len(one.assignment()) < PARTITIONS:
            one.poll(0.1)
            assert time.monotonic() < end
        parts = [TopicPartition(topic, part, COMMITTED) for part in range(PARTITIONS)]
        one.commit(offsets=parts, asynchronous=False)
        running[protocol] = (group, one)
    yield running
    for _, one in running.values():
        one.close()


@pytest.fixture
def both(members: dict[str, tuple[str, Consumer]]) -> tuple[str, ...]:
    return tuple(word for group, _ in members.values() for word in ("--group", group))


def test_offsets_are_described_with_their_lag_and_owner(
    servers: str, members: dict[str, tuple[str, Consumer]], both: tuple[str, ...]
) -> None:
    plain = table(tool(servers, "--describe", *both).stdout)
    verbose = table(tool(servers, "--describe", "--offsets", "--verbose", *both).stdout)
    assert len(plain) == 2 * PARTITIONS
    for row in plain:
        assert (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) == ("10", "25", "15")
        assert row["HOST"] == "/127.0.0.1"
    clients = {(row["GROUP"], row["CLIENT-ID"]) for row in plain}
    assert clients == {(group, f"client-{name}") for name, (group, _) in members.items()}
    assert all(row.pop("LEADER-EPOCH") in ("-", "0") for row in verbose)
    assert verbose == plain


def test_members_are_described_with_what_they_own_and_should_own(
    servers: str, members: dict[str, tuple[str, Consumer]], both: tuple[str, ...]
) -> None:
    plain = table(tool(servers, "--describe", "--members", *both).stdout)
    assert [row["#PARTITIONS"] for row in plain] == ["4", "4"]
    rows = table(tool(servers, "--describe", "--members", "--verbose", *both).stdout)
    by_group = {row["GROUP"]: row for row in rows}
    (classic, one), (new, _) = members["classic"], members["consumer"]
    owned = f"{one.assignment()[0].topic}:0,1,2,3"
    assert by_group[classic]["CURRENT-ASSIGNMENT"] == owned
    assert (by_group[classic]["CURRENT-EPOCH"], by_group[classic]["TARGET-EPOCH"]) == ("-", "-")
    assert by_group[new]["CURRENT-ASSIGNMENT"] == by_group[new]["TARGET-ASSIGNMENT"] == owned
    assert by_group[new]["CURRENT-EPOCH"] == by_group[new]["TARGET-EPOCH"]
    assert int(by_group[new]["CURRENT-EPOCH"]) > 0


def test_the_state_is_described_with_coordinator_and_assignor(
    servers: str, members: dict[str, tuple[str, Consumer]], both: tuple[str, ...]
) -> None:
    rows = table(tool(servers, "--describe", "--state", *both).stdout)
    assert [(row["COORDINATOR"], row["STATE"], row["#MEMBERS"]) for row in rows] == [
        (servers, "Stable", "1")
    ] * 2
    assert {row["ASSIGNMENT-STRATEGY"] for row in rows} == {"range", "uniform"}
    verbose = table(tool(servers, "--describe", "--state", "--verbose", *both).stdout)
    epochs = {row["GROUP"]: (row["GROUP-EPOCH"], row["TARGET-ASSIGNMENT-EPOCH"]) for row in verbose}
    assert epochs[members["classic"][0]] == ("-", "-")
    assert int(epochs[members["consumer"][0]][0]) > 0


def test_groups_are_listed_by_state_and_by_type(
    servers: str, members: dict[str, tuple[str, Consumer]], topic: str, group: str
) -> None:
    commit(servers, topic, group)
    classic, new = members["classic"][0], members["consumer"][0]

    def listed(*options: str) -> list[dict[str, str]]:
        return table(tool(servers, "--list", *options).stdout)

    assert {classic, new, group} <= set(tool(servers, "--list").stdout.split())
    kinds = {row["GROUP"]: row["TYPE"] for row in listed("--type")}
    assert (kinds[classic], kinds[new], kinds[group]) == ("Classic", "Consumer", "Classic")
    states = {row["GROUP"]: row["STATE"] for row in listed("--state")}
    assert (states[classic], states[new], states[group]) == ("Stable", "Stable", "Empty")
    only_empty = {row["GROUP"] for row in listed("--state", "empty")}
    assert group in only_empty
    assert not only_empty & {classic, new}
    assert [row["GROUP"] for row in listed("--state", "stable", "--type", "consumer")] == [new]


def test_kafka_groups_lists_every_type(
    servers: str, members: dict[str, tuple[str, Consumer]]
) -> None:
    def rows(*options: str) -> dict[str, list[str]]:
        shown = run_tool(EVERY_TYPE_TOOL, "--bootstrap-server", servers, "--list", *options).stdout
        return {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line.strip()}

    classic, new = members["classic"][0], members["consumer"][0]
    everything = rows()
    assert everything[classic] == ["Classic", "consumer"]
    assert everything[new] == ["Consumer", "consumer"]
    some = rows("--group-type", "consumer")
    assert new in some
    assert classic not in some


def test_a_group_with_members_is_neither_reset_nor_deleted(
    servers: str, members: dict[str, tuple[str, Consumer]], both: tuple[str, ...]
) -> None:
    group, one = members["consumer"]
    topic = one.assignment()[0].topic
    reset = ("--reset-offsets", "--topic", topic, "--to-earliest", "--execute")
    refused = tool(servers, *reset, *both).text
    assert refused.count("inactive, but the current state is Stable") == 2
    kept = tool(servers, "--delete-offsets", "--group", group, "--topic", topic).text
    assert kept.count("GroupSubscribedToTopicException") == PARTITIONS
    deleted = tool(servers, "--delete", *both, "--group", "nobody").text
    assert deleted.count("GroupNotEmptyException") == 2
    assert deleted.count("GroupIdNotFoundException") == 1
    for name, _ in members.values():
        assert committed(servers, topic, name) == [COMMITTED] * PARTITIONS


def _at(minutes_ago: float) -> str:
    moment = datetime.fromtimestamp(time.time() - minutes_ago * 60, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000")


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (["--to-earliest"], [0, 0, 0, 5]),
        (["--to-latest"], [25, 25, 25, 25]),
        (["--to-current"], [10, 10, 10, 10]),
        (["--to-offset", "7"], [7, 7, 7, 7]),
        (["--to-offset", "3"], [3, 3, 3, 5]),
        (["--shift-by", "-4"], [6, 6, 6, 6]),
        (["--shift-by", "100"], [25, 25, 25, 25]),
        (["--to-datetime", "38.5 minutes ago"], [12, 12, 12, 12]),
        (["--by-duration", "PT29M30S"], [21, 21, 21, 21]),
        (["--by-duration", "PT1M"], [25, 25, 25, 25]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value[0], str) else "",
)
def test_each_form_of_reset_shows_its_plan_and_then_does_it(
    servers: str, group: str, topic: str, form: list[str], expected: list[int]
) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for deletion in admin.delete_records([TopicPartition(topic, 3, 5)]).values():
        deletion.result(60)
    if form[0] == "--to-datetime":
        form = [form[0], _at(float(form[1].split()[0]))]
    commit(servers, topic, group)
    reset = ("--reset-offsets", "--group", group, "--topic", topic, *form)
    plan = {str(part): str(offset) for part, offset in enumerate(expected)}
    assert column(tool(servers, *reset, "--dry-run").stdout, "NEW-OFFSET") == plan
    assert committed(servers, topic, group) == [COMMITTED] * PARTITIONS
    assert column(tool(servers, *reset, "--execute").stdout, "NEW-OFFSET") == plan
    assert committed(servers, topic, group) == expected


def test_a_plan_is_exported_edited_and_executed_from_its_file(
    servers: str, group: str, topic: str, tmp_path: Path
) -> None:
    commit(servers, topic, group)
    plan = tmp_path / "plan.csv"
    reset = ("--reset-offsets", "--group", group)
    exported = tool(servers, *reset, "--topic", f"{topic}:0,2", "--to-latest", "--export")
    lines = sorted(line for line in exported.stdout.splitlines() if line.startswith(topic))
    assert lines == [f"{topic},0,25", f"{topic},2,25"]
    plan.write_text("\n".join(lines).replace(",2,25", ",2,17") + "\n")
    tool(servers, *reset, "--from-file", str(plan), "--dry-run")
    assert committed(servers, topic, group) == [10, 10, 10, 10]
    tool(servers, *reset, "--from-file", str(plan), "--execute")
    assert committed(servers, topic, group) == [25, 10, 17, 10]


def test_offsets_are_deleted_by_partition_and_by_topic(
    servers: str, group: str, topic: str
) -> None:
    commit(servers, topic, group)
    delete = ("--delete-offsets", "--group", group, "--topic")
    assert column(tool(servers, *delete, f"{topic}:1,2").stdout, "STATUS") == {
        "1": "Successful",
        "2": "Successful",
    }
    left = column(tool(servers, "--describe", "--group", group).stdout, "CURRENT-OFFSET")
    assert {part for part, offset in left.items() if offset == "10"} == {"0", "3"}
    assert "UnknownTopicOrPartitionException" in tool(servers, *delete, "no-such-topic").text
    tool(servers, *delete, topic)
    assert committed(servers, topic, group) == []


def test_all_groups_at_once_are_described_reset_and_deleted(tmp_path: Path) -> None:
    with HeadraceBroker(tmp_path, settings=SETTINGS) as broker:
        servers = broker.bootstrap
        topic = new_topic(servers)
        groups = [new_group(), new_group()]
        for group in groups:
            commit(servers, topic, group)
        described = table(tool(servers, "--describe", "--all-groups").stdout)
        assert sorted(row["GROUP"] for row in described) == sorted(groups * PARTITIONS)
        reset = ("--reset-offsets", "--all-groups", "--all-topics", "--to-offset", "20")
        tool(servers, *reset, "--execute")
        for group in groups:
            assert committed(servers, topic, group) == [20] * PARTITIONS
        deleted = tool(servers, "--delete", "--all-groups", "--timeout", "20000").stdout
        assert all(f"'{group}'" in deleted for group in groups)
        assert not tool(servers, "--list").stdout.split()


# --- Consumers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_console_consumer_goes_on_where_its_group_stopped(
    servers: str, group: str, topic: str, protocol: str
) -> None:
    def read(count: int) -> list[str]:
        return run_tool(
            "kafka-console-consumer",
            *("--bootstrap-server", servers, "--topic", topic, "--group", group),
            *("--command-property", f"group.protocol={protocol}"),
            *("--from-beginning", "--max-messages", str(count), "--timeout-ms", "20000"),
        ).stdout.split()

    first = read(30)
    assert len(first) == 30
    second = read(70)
    every = [f"{part}/{number}" for part in range(PARTITIONS) for number in range(EACH)]
    assert sorted(first + second) == sorted(every)
    assert committed(servers, topic, group) == [EACH] * PARTITIONS


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consumer_performance_reads_everything(
    servers: str, group: str, topic: str, tmp_path: Path, protocol: str
) -> None:
    produce(servers, topic, 500)
    config = tmp_path / "consumer.properties"
    config.write_text(f"group.protocol={protocol}\n")
    done = run_tool(
        "kafka-consumer-perf-test",
        *("--bootstrap-server", servers, "--topic", topic, "--group", group),
        *("--num-records", "2100", "--command-config", str(config)),
        *("--timeout", "20000", "--print-metrics"),
    )
    assert "Exception" not in done.text
    titles, values = (line.split(", ") for line in done.stdout.splitlines()[:2])
    assert dict(zip(titles, values, strict=True))["data.consumed.in.nMsg"] == "2100"
    assert "records-consumed-total:{client-id=perf-consumer-client}" in done.stdout
    assert committed(servers, topic, group) == [EACH + 500] * PARTITIONS


def test_the_formatter_of_groups_reads_our_offsets_topic(
    servers: str, group: str, topic: str
) -> None:
    one = Consumer({"bootstrap.servers": servers, "group.id": group, "client.id": "shown"})
    one.subscribe([topic])
    end = time.monotonic() + 60
    while len(one.assignment()) < PARTITIONS:
        one.poll(0.1)
        assert time.monotonic() < end
    one.close()
    shown = run_tool(
        "kafka-console-consumer",
        *("--bootstrap-server", servers, "--topic", "__consumer_offsets", "--from-beginning"),
        *("--formatter", "org.apache.kafka.tools.consumer.GroupMetadataMessageFormatter"),
        *("--timeout-ms", "3000"),
        check=False,
    ).stdout
    # One after the other, without so much as a line's end between them.
    told = json.loads(f"[{shown.strip().replace('}{', '},{')}]")
    values = [each["value"]["data"] for each in told if each["key"]["data"]["group"] == group]
    assert any(member["clientId"] == "shown" for value in values for member in value["members"])
    assert values[-1]["members"] == []
    assert values[-1]["generation"] >= 1


class Verifiable:
    """Kafka's VerifiableConsumer in a process of its own, and what it has told so far."""

    def __init__(self, output: Path, arguments: Sequence[str]) -> None:
        command = java_command(VERIFIABLE_CONSUMER, *arguments, options=QUICK_START)
        self._output = output
        with output.open("w") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)

    def told(self) -> list[dict[str, Any]]:
        """All events so far; a line that is not whole yet comes with the next call."""
        lines = self._output.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line[0] == "{" and line[-1] == "\n"]

    def events(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.told() if event["name"] == name]

    def owned(self) -> set[int]:
        """What it owns, from what it was given and what was taken."""
        owned: set[int] = set()
        for event in self.told():
            if event["name"] == "partitions_assigned":
                owned |= {one["partition"] for one in event["partitions"]}
            elif event["name"] == "partitions_revoked":
                owned -= {one["partition"] for one in event["partitions"]}
        return owned

    def consumed(self) -> list[tuple[int, int]]:
        return [
            (part["partition"], offset)
            for event in self.events("records_consumed")
            for part in event["partitions"]
            for offset in range(part["minOffset"], part["maxOffset"] + 1)
        ]

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        self.process.wait(60)


CLASSIC = ("--session-timeout", "30000", "--assignment-strategy")
NEW = ("--group-protocol", "consumer", "--group-remote-assignor")


@pytest.mark.parametrize(
    "how",
    [
        (*CLASSIC, f"{ASSIGNORS}.RoundRobinAssignor"),
        (*CLASSIC, f"{ASSIGNORS}.CooperativeStickyAssignor"),
        (*NEW, "uniform"),
        (*NEW, "range"),
    ],
    ids=["eager", "cooperative", "uniform", "range"],
)
def test_what_a_member_leaves_behind_another_takes_over_without_a_gap(
    servers: str, group: str, topic: str, tmp_path: Path, how: tuple[str, ...]
) -> None:
    # Members hear of a change with a heartbeat: let them have it soon.
    config = tmp_path / "consumer.properties"
    config.write_text("" if how[0] == NEW[0] else "heartbeat.interval.ms=300\n")
    arguments = (
        *("--bootstrap-server", servers, "--topic", topic, "--group-id", group),
        *("--command-config", str(config), *how),
    )
    one, two = (Verifiable(tmp_path / name, arguments) for name in ("one", "two"))
    try:
        until(
            lambda: len(one.owned()) == len(two.owned()) == 2 and not one.owned() & two.owned(), 60
        )
        until(lambda: len(set(one.consumed() + two.consumed())) == PARTITIONS * EACH)
        produce(servers, topic, EACH)
        until(lambda: len(set(one.consumed() + two.consumed())) == PARTITIONS * EACH * 2)
        one.end()
        until(lambda: two.owned() == set(range(PARTITIONS)))
        produce(servers, topic, EACH)
        until(lambda: len(set(one.consumed() + two.consumed())) == PARTITIONS * EACH * 3)
        until(lambda: committed(servers, topic, group) == [EACH * 3] * PARTITIONS)
    finally:
        one.end(signal.SIGKILL)
        two.end()
    everything = [(part, number) for part in range(PARTITIONS) for number in range(EACH * 3)]
    consumed = one.consumed() + two.consumed()
    assert set(consumed) == set(everything)
    # A member that consumed alone may have had to give partitions away before it could commit.
    assert sorted(each for each in consumed if each[1] >= EACH) == [
        each for each in everything if each[1] >= EACH
    ]
    assert two.events("offsets_committed")[-1]["success"]


def test_a_static_member_that_dies_and_returns_moves_nothing(
    servers: str, group: str, topic: str, tmp_path: Path
) -> None:
    arguments = (
        *("--bootstrap-server", servers, "--topic", topic, "--group-id", group),
        *("--session-timeout", "20000", "--group-instance-id"),
    )
    one, two = (Verifiable(tmp_path / name, (*arguments, name)) for name in ("one", "two"))
    running = [one, two]
    try:
        until(lambda: len(one.owned()) == len(two.owned()) == 2, 60)
        owned, moves = one.owned(), len(two.events("partitions_assigned"))
        one.end(signal.SIGKILL)
        running[0] = again = Verifiable(tmp_path / "again", (*arguments, "one"))
        until(lambda: again.owned() == owned, 60)
        produce(servers, topic, EACH)
        seen = lambda: {*one.consumed(), *two.consumed(), *again.consumed()}  # noqa: E731
        until(lambda: len(seen()) == PARTITIONS * EACH * 2)
        assert len(two.events("partitions_assigned")) == moves
    finally:
        for each in running:
            each.end()
