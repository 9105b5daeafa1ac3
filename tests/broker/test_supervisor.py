"""Several brokers of one command: clients see all, dead ones are restarted, one stop ends all."""

import contextlib
import os
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.broker.supervisor import SupervisorPlan, command, shared_port
from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig
from headrace.cluster.sqlite_store import FILE_NAME, SqliteStore
from headrace.cluster.store import LIVE
from headrace.settings import Settings
from headrace.types import Address
from tests.support.stores import eventually

PATIENCE_S = 60


@contextlib.contextmanager
def started(folder: Path, brokers: int) -> Iterator[subprocess.Popen[str]]:
    """The command, which may not be ready yet."""
    words = ["serve", "--brokers", str(brokers), "--data-dir", str(folder)]
    with running([*words, "--listen", "127.0.0.1:0"]) as process:
        yield process


@contextlib.contextmanager
def running(words: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", *words], stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def addresses(process: subprocess.Popen[str]) -> list[str]:
    """Of all its brokers, once it is ready."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("Headrace is ready on "), line
    return line.split(" brokers at ")[1].split(", data in ")[0].split(", ")


@contextlib.contextmanager
def serving(folder: Path, brokers: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with started(folder, brokers) as process:
        yield process, ",".join(addresses(process))


def children(process: subprocess.Popen[str]) -> list[int]:
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(word) for word in found.split()]


def brokers(bootstrap: str) -> dict[int, int]:
    """Ports by number."""
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=PATIENCE_S).brokers
    return {number: broker.port for number, broker in found.items()}


def leaders(admin: AdminClient) -> list[int]:
    """Of the topic's partitions, as whichever broker is asked has heard of them."""
    topics = admin.list_topics(timeout=PATIENCE_S).topics
    return sorted(part.leader for part in topics["t"].partitions.values()) if "t" in topics else []


def known_at(address: str) -> list[int]:
    """The brokers that one broker tells of."""
    host, _, port = address.rpartition(":")
    with Cluster(ClientConfig((Address(host, int(port)),))) as cluster:
        return sorted(cluster.brokers())


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextlib.contextmanager
def held_up(pid: int, folder: Path) -> Iterator[None]:
    """A broker is stopped in its tracks, though not while others would have to wait for it."""
    store = sqlite3.connect(folder / FILE_NAME, timeout=PATIENCE_S, isolation_level=None)
    store.execute("begin immediate")
    os.kill(pid, signal.SIGSTOP)
    store.execute("rollback")
    store.close()
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def registered(folder: Path) -> bool:
    """Whether the second broker is in the metadata that all share."""
    store = SqliteStore(str(folder))
    try:
        return "2" in store.children(LIVE)
    finally:
        store.close()


def test_it_is_not_ready_before_every_broker_has_heard_of_all_others(tmp_path: Path) -> None:
    with started(tmp_path, 2) as process:
        eventually(lambda: len(children(process)) == 2, "the second broker was started")
        with held_up(children(process)[0], tmp_path):
            eventually(lambda: registered(tmp_path), "the second broker is there")
            assert process.stdout is not None
            said, _, _ = select.select([process.stdout], [], [], 1)
            assert not said
        assert [known_at(one) for one in addresses(process)] == [[1, 2], [1, 2]]


def test_brokers_that_never_meet_are_stopped_and_named(tmp_path: Path) -> None:
    impatient = (
        "import sys; from headrace.broker import supervisor; "
        "supervisor._MEET_WITHIN_S = 0; supervisor._ANSWER_WITHIN_S = 0.2; "
        "from headrace.settings import Settings; "
        "given = Settings.parse({'listeners': 'PLAINTEXT://127.0.0.1:0'}); "
        "plan = supervisor.SupervisorPlan(2, sys.argv[1], given, {}, ()); "
        "sys.exit(supervisor.main(plan))"
    )
    with (
        subprocess.Popen(
            [sys.executable, "-c", impatient, str(tmp_path)], stderr=subprocess.PIPE, text=True
        ) as process,
        contextlib.ExitStack() as at_the_end,
    ):
        at_the_end.callback(process.terminate)
        eventually(lambda: len(children(process)) == 2, "the second broker was started")
        assert process.stderr is not None
        with held_up(children(process)[0], tmp_path):
            said = next(line for line in process.stderr if line.startswith("headrace: "))
        assert "broker 1 at 127.0.0.1:" in said
        assert "does not respond" in said
        assert process.wait(PATIENCE_S) == 1


def test_leaders_are_spread_and_a_killed_process_comes_back(tmp_path: Path) -> None:
    with serving(tmp_path, 2) as (process, bootstrap):
        assert len(brokers(bootstrap)) == 2
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", 4, 2)])["t"].result(PATIENCE_S)
        eventually(lambda: leaders(admin) == [1, 1, 2, 2], "each leads its share")
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        failed: list[object] = []
        before = children(process)
        for number in range(2000):
            if number == 1000:
                os.kill(before[1], signal.SIGKILL)
            producer.produce(
                "t", b"x", partition=number % 4,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )  # fmt: skip
        assert producer.flush(PATIENCE_S) == 0
        assert failed == []
        deadline = time.monotonic() + PATIENCE_S
        while len(brokers(bootstrap)) < 2 or len(children(process)) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert children(process) != before
    assert process.returncode == 0


def test_one_stop_ends_all_and_the_data_are_there_at_the_next_start(tmp_path: Path) -> None:
    with serving(tmp_path, 2) as (process, bootstrap):
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(PATIENCE_S)
        eventually(lambda: leaders(admin) == [1, 2], "each leads its share")
        pids = children(process)
    wait_until_gone(pids)
    assert (tmp_path / "brokers" / "2" / ".kafka_cleanshutdown").exists()
    (tmp_path / "brokers").rename(tmp_path / "lanes")  # as version 0.1 named it
    with serving(tmp_path, 2) as (_, bootstrap):
        admin = AdminClient({"bootstrap.servers": bootstrap})
        eventually(lambda: leaders(admin) == [1, 2], "each leads what it led before")
    assert not (tmp_path / "lanes").exists()


def test_no_broker_outlives_the_command(tmp_path: Path) -> None:
    with serving(tmp_path, 2) as (process, _):
        pids = children(process)
        assert len(pids) == 2
        process.kill()
        wait_until_gone(pids)


def several(listeners: str, advertised: str = "", count: int = 3) -> SupervisorPlan:
    given = {"listeners": listeners, "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
    if advertised:
        given["advertised.listeners"] = advertised
    return SupervisorPlan(count, "/d", Settings.parse(given), given, ("--log-level", "info"))


@pytest.mark.parametrize(
    ("number", "folder", "listeners", "advertised"),
    [
        (1, "/d", "A://[::1]:9092,B://0.0.0.0:9192", "A://kafka.lan:19092,B://inside:9192"),
        (
            3,
            "/d/brokers/3",
            "A://[::1]:9094,B://0.0.0.0:9194",
            "A://kafka.lan:19094,B://inside:9194",
        ),
    ],
)
def test_each_has_its_folder_and_its_ports(
    number: int, folder: str, listeners: str, advertised: str
) -> None:
    plan = several("A://[::1]:9092,B://0.0.0.0:9192", "A://kafka.lan:19092,B://inside:9192")
    assert command(plan, number)[4:] == [
        "--config", "/dev/stdin", "--log-level", "info",
        "--data-dir", folder, "--node-id", str(number),
        "--set", f"listeners={listeners}", "--set", f"advertised.listeners={advertised}",
        "--set", "headrace.metadata=sqlite:/d",
    ]  # fmt: skip


def test_ports_that_the_system_chooses_are_advertised_once_they_are_known() -> None:
    found = command(several("A://127.0.0.1:0,B://127.0.0.1:0"), 2)
    assert "listeners=A://127.0.0.1:0,B://127.0.0.1:0" in found
    assert not any(word.startswith("advertised.listeners") for word in found)


def test_listeners_whose_ports_would_meet_are_named() -> None:
    assert shared_port(several("A://:9092,B://:9095")) == ""
    assert "B of broker 1 and A of broker 3 would both have port 9094" in shared_port(
        several("A://:9092,B://:9094")
    )


def test_the_environment_may_say_how_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_BROKERS", "2")
    with running(["serve", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"]) as process:
        assert len(addresses(process)) == 2


def test_brokers_with_several_listeners_meet_on_the_one_for_brokers(tmp_path: Path) -> None:
    settings = (
        "listeners=CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
        "listener.security.protocol.map=CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name=BROKERS",
    )
    words = ["serve", "--brokers", "2", "--data-dir", str(tmp_path)]
    for setting in settings:
        words += ["--set", setting]
    with running(words) as process:
        asked = addresses(process)
        assert [known_at(one) for one in asked] == [[1, 2], [1, 2]]
        assert sorted(brokers(asked[0]).values()) == sorted(
            int(one.rpartition(":")[2]) for one in asked
        )
