"""`headrace groups`, on groups of both protocols with and without members."""

import json
import os
import pty
import select
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.join_group.v9.response import JoinGroupResponse
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.leave_group.v5.response import LeaveGroupResponse
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.schema.sync_group.v5.response import SyncGroupResponse

from headrace.client.cluster import GROUP, Cluster
from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.client.errors import check
from headrace.errors import ErrorCode
from headrace.testing.plugin import BrokerFactory
from headrace.wire.primitives import GroupId, milliseconds
from tests.cli.conftest import Run, command, execute
from tests.support.cluster import RunningCluster

PATIENCE_S = 60


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def filled(run: Run, topic: str) -> str:
    """A topic with 10 records in partition 0, 20 in 1 and none in 2."""
    for partition, count in ((0, 10), (1, 20)):
        lines = b"".join(
            b'{"value":"x","partition":%d,"timestamp":%d}\n' % (partition, 1_000_000_000_000 + n)
            for n in range(count)
        )
        assert run("produce", topic, "--format", "json", stdin=lines).code == 0
    return topic


def commit(bootstrap: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Commit offsets without joining the group."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(
        offsets=[TopicPartition(topic, index, at) for index, at in offsets.items()],
        asynchronous=False,
    )
    consumer.close()


@contextmanager
def member(
    bootstrap: str, group: str, topic: str, protocol: str = "consumer"
) -> Iterator[Consumer]:
    """A consumer that has its partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": f"{protocol}-client",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + PATIENCE_S
    while not consumer.assignment() and time.monotonic() < deadline:
        consumer.poll(0.1)
    assert consumer.assignment()
    try:
        yield consumer
    finally:
        consumer.close()


def described(run: Run, group: str) -> dict[int, tuple[object, object, object]]:
    """Committed offset, end and lag of each partition."""
    partitions = run("groups", "describe", group, "--json").document()["partitions"]
    assert isinstance(partitions, list)
    return {row["partition"]: (row["committed"], row["end"], row["lag"]) for row in partitions}


def committed(run: Run, group: str) -> dict[int, object]:
    return {index: row[0] for index, row in described(run, group).items()}


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)


# --------------------------------------------------------------------------- list, describe


def test_list_shows_state_type_and_members_and_filters_by_them(
    run: Run, bootstrap: str, filled: str, group: str
) -> None:
    idle = f"{group}-idle"
    commit(bootstrap, idle, filled, {0: 1})

    def mine(*options: str) -> dict[object, tuple[object, object, object]]:
        rows = run("groups", "list", *options, "--json").rows()
        found = {row["name"]: (row["state"], row["type"], row["members"]) for row in rows}
        return {name: found[name] for name in (group, idle) if name in found}

    with member(bootstrap, group, filled):
        wait_until(lambda: mine()[group] == ("Stable", "consumer", 1))
        assert mine()[idle] == ("Empty", "classic", 0)
        assert set(mine("--state", "stable")) == {group}
        assert set(mine("--state", "Empty", "--state", "STABLE")) == {group, idle}
        assert set(mine("--type", "classic")) == {idle}
        assert set(mine("--type", "consumer", "--state", "empty")) == set()
        assert group in run("groups", "list").text


@contextmanager
def worker(bootstrap: str, group: str) -> Iterator[None]:
    """A member of a group as Kafka Connect makes them: nobody else can decode what it says."""
    config = ClientConfig(parse_bootstrap(bootstrap), client_id="worker-1", request_timeout_s=60)
    protocol = JoinGroupRequestProtocol(name="sessioned", metadata=b"\x00\x02anything")
    with Cluster(config) as connected:

        def join(member_id: str) -> JoinGroupResponse:
            request = JoinGroupRequest(
                group_id=GroupId(group),
                session_timeout=milliseconds(30_000),
                rebalance_timeout=milliseconds(30_000),
                member_id=member_id,
                protocol_type="connect",
                protocols=(protocol,),
            )
            coordinator = connected.coordinator(GROUP, group)
            answer = connected.ask(request, JoinGroupResponse, coordinator)
            if int(answer.error_code) == ErrorCode.MEMBER_ID_REQUIRED:
                return join(answer.member_id)
            check(int(answer.error_code), "joining")
            return answer

        joined = connected.retry("joining", lambda: join(""))
        mine = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"\x00\x01mine")
        request = SyncGroupRequest(
            group_id=GroupId(group),
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="connect",
            protocol_name="sessioned",
            assignments=(mine,),
        )
        coordinator = connected.coordinator(GROUP, group)
        answer = connected.ask(request, SyncGroupResponse, coordinator)
        check(int(answer.error_code), "waiting for the assignment")
        yield
        leaving = MemberIdentity(member_id=joined.member_id, reason=None)
        connected.ask(
            LeaveGroupRequest(group_id=GroupId(group), members=(leaving,)),
            LeaveGroupResponse,
            coordinator,
        )


def test_a_group_of_kafka_connect_is_listed_and_described(
    run: Run, bootstrap: str, group: str
) -> None:
    with worker(bootstrap, group):
        (row,) = [row for row in run("groups", "list", "--json").rows() if row["name"] == group]
        assert (row["state"], row["type"]) == ("Stable", "classic")
        assert (row["protocol_type"], row["assignor"], row["members"]) == (
            "connect",
            "sessioned",
            1,
        )
        listed = run("groups", "list", "--type", "classic", "--state", "stable").text
        assert group in listed
        assert "connect" in listed
        found = run("groups", "describe", group, "--json").document()
        assert (found["protocol_type"], found["lag"], found["partitions"]) == ("connect", 0, [])
        assert isinstance(found["members"], list)
        (only,) = found["members"]
        assert (only["client_id"], only["host"]) == ("worker-1", "127.0.0.1")
        assert (only["assignment"], only["target"]) == (None, None)
        shown = run("groups", "describe", group)
        assert shown.code == 0
        for word in (group, "connect", "sessioned", "worker-1", "127.0.0.1"):
            assert word in shown.text
        refused = run("groups", "delete", group, "--yes")
        assert refused.code != 0
        assert "without members" in refused.err
    assert run("groups", "delete", group, "--yes").code == 0
    assert group not in run("groups", "list").text


def test_a_group_with_offsets_only_has_no_protocol(
    run: Run, bootstrap: str, filled: str, group: str
) -> None:
    commit(bootstrap, group, filled, {0: 1})
    found = run("groups", "describe", group, "--json").document()
    assert (found["state"], found["type"], found["protocol_type"]) == ("Empty", "classic", None)


@pytest.mark.parametrize(("protocol", "assignor"), [("classic", "range"), ("consumer", "uniform")])
def test_describe_shows_members_and_the_lag_of_each_partition(
    run: Run, bootstrap: str, filled: str, group: str, protocol: str, assignor: str
) -> None:
    with member(bootstrap, group, filled, protocol) as consumer:
        consumer.commit(
            offsets=[TopicPartition(filled, 0, 4), TopicPartition(filled, 1, 20)],
            asynchronous=False,
        )
        found = run("groups", "describe", group, "--json").document()
        shown = run("groups", "describe", group).text
    assert (found["name"], found["state"], found["type"]) == (group, "Stable", protocol)
    assert found["protocol_type"] == "consumer"
    assert (found["assignor"], found["lag"]) == (assignor, 6)
    assert isinstance(found["lag_seconds"], float)
    assert isinstance(found["members"], list)
    [only] = found["members"]
    assert (only["client_id"], only["host"]) == (f"{protocol}-client", "127.0.0.1")
    assert only["assignment"] == [{"topic": filled, "partition": index} for index in range(3)]
    assert isinstance(found["partitions"], list)
    assert [(p["committed"], p["end"], p["lag"]) for p in found["partitions"]] == [
        (4, 10, 6),
        (20, 20, 0),
        (None, 0, None),
    ]
    assert {p["member_id"] for p in found["partitions"]} == {only["id"]}
    for word in (group, f"{filled}:0-2", "6 records", f"{protocol}-client", "127.0.0.1"):
        assert word in shown


def test_offsets_of_a_deleted_topic_do_not_keep_a_group_from_being_described(
    run: Run, bootstrap: str, filled: str, group: str
) -> None:
    gone = f"{filled}-gone"
    run("topics", "create", gone)
    commit(bootstrap, group, filled, {0: 1})
    commit(bootstrap, group, gone, {0: 0})
    assert run("topics", "delete", gone, "--yes").code == 0
    result = run("groups", "describe", group, "--json")
    assert result.code == 0
    assert result.document()["lag"] == 9


def test_a_misspelt_group_is_exit_code_4_with_a_suggestion(
    run: Run, bootstrap: str, filled: str, group: str
) -> None:
    commit(bootstrap, group, filled, {0: 1})
    result = run("groups", "describe", group + "x")
    assert (result.code, result.out) == (4, b"")
    assert group in result.err.splitlines()[1]


# ---------------------------------------------------------------------------- reset-offsets


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--to-earliest",), {0: 0, 1: 0, 2: 0}),
        (("--to-latest",), {0: 10, 1: 20, 2: 0}),
        (("--to-offset", "7"), {0: 7, 1: 7, 2: 0}),
        (("--to-time", "1000000000008"), {0: 8, 1: 8, 2: 0}),
        (("--to-time", "-5m"), {0: 10, 1: 20, 2: 0}),
    ],
    ids=["earliest", "latest", "offset", "time", "ago"],
)
def test_a_reset_sets_the_requested_offsets(
    run: Run,
    bootstrap: str,
    filled: str,
    group: str,
    options: tuple[str, ...],
    expected: dict[int, int],
) -> None:
    commit(bootstrap, group, filled, {0: 5})
    result = run("groups", "reset-offsets", group, "--topic", filled, *options, "--yes")
    assert result.code == 0
    assert committed(run, group) == expected


def test_a_shift_moves_each_offset_and_stops_at_the_partition_s_ends(
    run: Run, bootstrap: str, filled: str, group: str
) -> None:
    commit(bootstrap, group, filled, {0: 3, 1: 12})
    words = ("groups", "reset-offsets", group, "--all-topics", "--yes", "--json", "--shift-by")
    back = run(*words, "-5").document()
    assert back["applied"] is True
    assert back["partitions"] == [
        {"topic": filled, "partition": 0, "from": 3, "to": 0, "difference": -3, "limited": True},
        {"topic": filled, "partition": 1, "from": 12, "to": 7, "difference": -5, "limited": False},
    ]
    assert run(*words, "100").code == 0
    assert committed(run, group) == {0: 10, 1: 20}


def test_only_the_partitions_named_are_reset(
    run: Run, bootstrap: str, filled: str, group: str
) -> None:
    commit(bootstrap, group, filled, {0: 5, 1: 5})
    words = ("groups", "reset-offsets", group, "--topic", f"{filled}:1", "--to-latest", "--yes")
    assert run(*words).code == 0
    assert committed(run, group) == {0: 5, 1: 20}
    assert run(*words[:4], f"{filled}:7", "--to-latest", "--yes").code == 4
    assert run(*words[:4], f"{filled}-none", "--to-latest", "--yes").code == 4


def test_a_dry_run_shows_the_changes_and_makes_none(
    run: Run, bootstrap: str, filled: str, group: str
) -> None:
    commit(bootstrap, group, filled, {0: 5})
    words = ("groups", "reset-offsets", group, "--topic", f"{filled}:0,1", "--to-earliest")
    table = run(*words, "--dry-run")
    assert table.code == 0
    rows = [line.split() for line in table.text.splitlines() if line.startswith(filled)]
    assert rows == [[filled, "0", "5", "0", "-5"], [filled, "1", "-", "0", "new"]]
    found = run(*words, "--dry-run", "--json").document()
    assert found["applied"] is False
    assert committed(run, group) == {0: 5}


def test_a_reset_gives_a_group_that_never_was_its_first_offsets(
    run: Run, filled: str, group: str
) -> None:
    words = ("groups", "reset-offsets", group)
    assert run(*words, "--all-topics", "--to-earliest", "--yes").code == 4
    result = run(*words, "--topic", filled, "--to-offset", "1", "--yes")
    assert result.code == 0
    assert "does not exist yet" in result.err
    assert committed(run, group) == {0: 1, 1: 1, 2: 0}


def test_offsets_are_not_reset_under_active_members(
    run: Run, bootstrap: str, filled: str, group: str
) -> None:
    words = ("groups", "reset-offsets", group, "--topic", filled, "--to-latest")
    with member(bootstrap, group, filled) as consumer:
        consumer.commit(offsets=[TopicPartition(filled, 0, 4)], asynchronous=False)
        refused = run(*words, "--yes")
        assert (refused.code, refused.out) == (1, b"")
        assert "1 active member (consumer-client on 127.0.0.1)" in refused.err
        assert "Stop its consumers" in refused.err
        assert run(*words, "--dry-run").code == 0
        assert committed(run, group) == {0: 4, 1: None, 2: None}
    assert run(*words, "--yes").code == 0
    assert committed(run, group) == {0: 10, 1: 20, 2: 0}


@pytest.mark.parametrize(
    "options",
    [
        ("--topic", "t"),
        ("--to-earliest",),
        ("--topic", "t", "--to-earliest", "--to-latest"),
        ("--topic", "t", "--all-topics", "--to-earliest"),
        ("--topic", "t:a", "--to-earliest"),
        ("--topic", "t", "--to-time", "noon"),
        ("--topic", "t", "--to-offset", "-1"),
    ],
    ids=" ".join,
)
def test_a_reset_that_makes_no_sense_is_bad_usage(run: Run, options: tuple[str, ...]) -> None:
    result = run("groups", "reset-offsets", "g", *options)
    assert (result.code, result.out) == (2, b"")


def test_a_reset_needs_yes_without_a_terminal(
    run: Run, bootstrap: str, filled: str, group: str
) -> None:
    commit(bootstrap, group, filled, {0: 5})
    result = run("groups", "reset-offsets", group, "--topic", filled, "--to-earliest")
    assert result.code == 2
    assert "--yes" in result.err
    assert committed(run, group) == {0: 5}


# ---------------------------------------------------------------------------------- delete


def test_delete_takes_groups_away_with_their_offsets(
    run: Run, bootstrap: str, filled: str, group: str
) -> None:
    names = [group, f"{group}-b"]
    for name in names:
        commit(bootstrap, name, filled, {0: 5})
    unsure = run("groups", "delete", *names)
    assert unsure.code == 2
    assert "--yes" in unsure.err
    deleted = run("groups", "delete", *names, "--yes", "--json").json()
    assert deleted == [{"name": name, "deleted": True} for name in names]
    assert run("groups", "describe", group).code == 4
    assert run("groups", "delete", group, "--yes").code == 4


def test_a_group_with_members_is_not_deleted(
    run: Run, bootstrap: str, filled: str, group: str
) -> None:
    with member(bootstrap, group, filled):
        result = run("groups", "delete", group, "--yes", "--json")
        assert (result.code, result.out) == (1, b"")
        assert json.loads(result.err)["error"]["code"] == "GROUP_IN_USE"
        assert run("groups", "describe", group).code == 0


# ----------------------------------------------------------------------------------- watch


def test_watch_prints_one_json_object_a_look_with_lag_rates_and_members(
    bootstrap: str, filled: str, group: str
) -> None:
    words = ("groups", "watch", group, "--json", "--interval", "0.2")
    with member(bootstrap, group, filled) as consumer:
        consumer.commit(offsets=[TopicPartition(filled, 0, 2)], asynchronous=False)
        with subprocess.Popen(
            command(*words, "--bootstrap", bootstrap), stdout=subprocess.PIPE
        ) as watching:
            assert watching.stdout is not None
            first = json.loads(watching.stdout.readline())
            consumer.commit(offsets=[TopicPartition(filled, 0, 8)], asynchronous=False)
            producer = Producer({"bootstrap.servers": bootstrap})
            producer.produce(filled, b"more", partition=0)
            assert producer.flush(PATIENCE_S) == 0
            looks = [first]
            deadline = time.monotonic() + PATIENCE_S
            while looks[-1]["lag"] != 3 and time.monotonic() < deadline:
                looks.append(json.loads(watching.stdout.readline()))
            watching.send_signal(signal.SIGINT)
            assert watching.wait(PATIENCE_S) == 0
    assert (first["group"], first["state"], first["lag"]) == (group, "Stable", 8)
    assert first["consumed_per_s"] is None
    assert looks[-1]["lag"] == 3
    assert sum(look["consumed_per_s"] for look in looks[1:]) > 0
    assert sum(look["partitions"][0]["arrived_per_s"] for look in looks[1:]) > 0
    [only] = first["members"]
    assert (only["client_id"], only["partitions"]) == ("consumer-client", 3)


def test_watch_without_a_terminal_prints_one_table_a_look(
    run: Run, bootstrap: str, filled: str, group: str
) -> None:
    commit(bootstrap, group, filled, {0: 1, 1: 1})
    result = run("groups", "watch", group, "--count", "2", "--interval", "0.1")
    assert result.code == 0
    assert result.text.count("Consumed/s") == 2
    assert "lag 28" in result.text


def test_watching_a_group_that_is_not_there_is_exit_code_4(run: Run, group: str) -> None:
    assert run("groups", "watch", group, "--count", "1").code == 4


class Watching:
    """`groups watch --json` as a process."""

    def __init__(self, bootstrap: str, group: str) -> None:
        words = ("groups", "watch", group, "--json", "--interval", "0.2", "--bootstrap", bootstrap)
        self.process = subprocess.Popen(command(*words), stdout=subprocess.PIPE)

    def until(self, true: Callable[[dict[str, object]], bool]) -> None:
        """Read on until a look is as wanted."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + PATIENCE_S
        while not true(json.loads(self.process.stdout.readline())):
            assert time.monotonic() < deadline, "no such look"

    def children(self) -> str:
        """The processes that it has started."""
        pid = self.process.pid
        return Path(f"/proc/{pid}/task/{pid}/children").read_text()

    def end(self) -> int:
        """Ctrl-C; the exit code."""
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode


@contextmanager
def watching(bootstrap: str, group: str) -> Iterator[Watching]:
    started = Watching(bootstrap, group)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()


def seen(look: dict[str, object]) -> bool:
    return "state" in look


def failed(look: dict[str, object]) -> bool:
    return "error" in look


def test_watch_survives_a_broker_that_comes_and_goes_without_a_child_process(
    headrace_factory: BrokerFactory, group: str
) -> None:
    broker = headrace_factory()
    assert execute("topics", "create", "t", "--bootstrap", broker.bootstrap_servers).code == 0
    commit(broker.bootstrap_servers, group, "t", {0: 0})
    with watching(broker.bootstrap_servers, group) as watch:
        watch.until(seen)
        for go, come in (
            # A coordinator that answers again after a request to it has timed out.
            (broker.pause, broker.go_on),
            (broker.kill, broker.start),
            (broker.stop, broker.start),
        ):
            go()
            watch.until(failed)
            assert watch.children() == ""
            come()
            watch.until(seen)
        assert watch.children() == ""
        assert watch.end() == 0


def test_watch_follows_the_coordinator_when_the_bootstrap_broker_dies(
    tmp_path: Path, group: str
) -> None:
    with RunningCluster(tmp_path / "cluster", 3) as cluster:
        cluster.create("t")
        commit(cluster.bootstrap_servers, group, "t", {0: 0})
        with Cluster(ClientConfig(parse_bootstrap(cluster.bootstrap_servers))) as client:
            coordinator = client.coordinator(GROUP, group)
        first = cluster.brokers[coordinator]
        with watching(first.bootstrap_servers, group) as watch:
            watch.until(seen)
            first.kill()
            # Later than any look that was under way when the broker died.
            after_ms = time.time() * 1000 + 1000
            watch.until(lambda look: seen(look) and float(str(look["time"])) > after_ms)
            assert watch.end() == 0


# ---------------------------------------------------------------- a person at the terminal


class Terminal:
    """A command with a person in front of it."""

    def __init__(self, *words: str) -> None:
        self.screen = ""
        self._ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
        self.process = subprocess.Popen(
            command(*words),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
        os.close(theirs)

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.screen:
            assert time.monotonic() < deadline, self.screen
            self._read(0.2)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> int:
        """Read on until the command ends; its exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.screen
            self._read(0.05)
        self._read(0)
        os.close(self._ours)
        return self.process.returncode

    def _read(self, timeout_s: float) -> None:
        if select.select([self._ours], [], [], timeout_s)[0]:
            try:
                self.screen += os.read(self._ours, 65536).decode(errors="replace")
            except OSError:
                # Linux answers so when the other side has been closed.
                return


@pytest.mark.parametrize(("answer", "code", "after"), [("n\n", 1, 5), ("y\n", 0, 10)])
def test_at_a_terminal_the_changes_are_shown_and_then_asked_for(
    run: Run, bootstrap: str, filled: str, group: str, answer: str, code: int, after: int
) -> None:
    commit(bootstrap, group, filled, {0: 5})
    words = ("groups", "reset-offsets", group, "--topic", f"{filled}:0", "--to-latest")
    terminal = Terminal(*words, "--bootstrap", bootstrap)
    terminal.wait_for("[y/N]")
    assert "+5" in terminal.screen
    terminal.type(answer)
    assert terminal.end() == code, terminal.screen
    assert committed(run, group) == {0: after}


def test_the_live_table_ends_cleanly_with_ctrl_c(bootstrap: str, filled: str, group: str) -> None:
    commit(bootstrap, group, filled, {0: 1, 1: 1})
    terminal = Terminal("groups", "watch", group, "--bootstrap", bootstrap, "--interval", "0.2")
    terminal.wait_for("Consumed/s")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 0, terminal.screen
    assert "Traceback" not in terminal.screen
    # The cursor that the live table hid is shown again.
    assert terminal.screen.rstrip().endswith("\x1b[?25h")


def test_the_shell_completes_group_names(bootstrap: str, filled: str, group: str) -> None:
    commit(bootstrap, group, filled, {0: 1})
    line = f"headrace groups describe {group[:-2]}"
    done = execute(
        env={
            "_HEADRACE_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": "3",
            "HEADRACE_BOOTSTRAP": bootstrap,
        }
    )
    assert done.text.split() == [group]
