"""Several brokers of one command: clients see all, a dead one comes back, one stop ends them."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.broker.lanes import LanePlan, command

PATIENCE_S = 60


@contextlib.contextmanager
def serving(folder: Path, brokers: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    words = ["serve", "--brokers", str(brokers), "--data-dir", str(folder)]
    words += ["--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", *words], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        yield process, line.removeprefix("Headrace is ready on ").split(",")[0]
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def children(process: subprocess.Popen[str]) -> list[int]:
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(word) for word in found.split()]


def brokers(bootstrap: str) -> dict[int, int]:
    """Ports by number."""
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).brokers
    return {number: broker.port for number, broker in found.items()}


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_leaders_are_spread_and_a_killed_process_comes_back(tmp_path: Path) -> None:
    with serving(tmp_path, 2) as (process, bootstrap):
        assert len(brokers(bootstrap)) == 2
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", 4, 2)])["t"].result(PATIENCE_S)
        leaders = [
            p.leader for p in admin.list_topics("t", timeout=10).topics["t"].partitions.values()
        ]
        assert sorted(leaders) == [1, 1, 2, 2]
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
        pids = children(process)
    wait_until_gone(pids)
    assert (tmp_path / "lanes" / "2" / ".kafka_cleanshutdown").exists()
    with serving(tmp_path, 2) as (_, bootstrap):
        admin = AdminClient({"bootstrap.servers": bootstrap})
        parts = admin.list_topics("t", timeout=10).topics["t"].partitions
        assert sorted(part.leader for part in parts.values()) == [1, 2]


def test_no_broker_outlives_the_command(tmp_path: Path) -> None:
    with serving(tmp_path, 2) as (process, _):
        pids = children(process)
        assert len(pids) == 2
        process.kill()
        wait_until_gone(pids)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1, ["--data-dir", "/d", "--node-id", "1", "--listen", "[::1]:9092"]),
        (3, ["--data-dir", "/d/lanes/3", "--node-id", "3", "--listen", "[::1]:9094"]),
    ],
)
def test_each_has_its_folder_and_its_port(number: int, words: list[str]) -> None:
    plan = LanePlan(3, "/d", ("::1", 9092), ("kafka.lan", 19092), ("--set", "num.partitions=3"))
    found = command(plan, number)
    assert found[4:6] == ["--set", "num.partitions=3"]
    assert found[6:12] == words
    assert found[12:] == [
        "--advertise", f"kafka.lan:{19091 + number}", "--set", "headrace.metadata=sqlite:/d",
    ]  # fmt: skip
