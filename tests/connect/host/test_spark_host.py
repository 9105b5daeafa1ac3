"""Connectors as Spark queries: delivery, truth and healing, with a real driver and broker."""

import json
import os
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from headrace.client.cluster import Cluster
from headrace.client.config import client_config
from headrace.client.groups import committed_offsets
from headrace.connect.hosting import RunState
from tests.connect.host.conftest import FOLDER, NUMBERS, OFFSETS, HostUnderTest
from tests.connect.host.fire import driver_pid

pytestmark = pytest.mark.spark

JSON = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
}


def numbers_into(topic: str, **options: str) -> dict[str, str]:
    """The configuration of a source of numbers."""
    given = {name.replace("_", "."): value for name, value in options.items()}
    return {**JSON, "connector.class": NUMBERS, "topic": topic, **given}


def folder_of(topic: str, folder: Path, **options: str) -> dict[str, str]:
    """The configuration of a sink that writes numbers into a folder."""
    given = {name.replace("_", "."): value for name, value in options.items()}
    return {**JSON, "connector.class": FOLDER, "topics": topic, "folder": str(folder), **given}


def numbers(lanes: int, upto: int) -> Counter[tuple[int, int]]:
    return Counter((lane, n) for lane in range(lanes) for n in range(upto))


def in_topic(host: HostUnderTest, topic: str) -> Counter[tuple[int, int]]:
    return Counter((each["lane"], each["n"]) for each in host.values(topic))


def in_folder(folder: Path) -> Counter[tuple[int, int]]:
    lines = [
        line.split()
        for path in folder.iterdir()
        if path.suffix != ".half"
        for line in path.read_text().splitlines()
    ]
    return Counter((int(lane), int(n)) for lane, n in lines)


def source_offsets(host: HostUnderTest, name: str) -> dict[str, Any]:
    """The newest offsets of a source in the offsets topic, by lane."""
    found = {}
    for key, value, _ in host.records(OFFSETS):
        if not (key or b"").startswith(f'["{name}",{{'.encode()):
            continue
        _, partition = json.loads(key or b"")
        if value is not None:
            found[str(partition["lane"])] = json.loads(value)
    return found


def test_a_source_is_in_its_topic_once_with_its_offsets(
    host: HostUnderTest, topic: str, started: list[str]
) -> None:
    started.append("source")
    host.start("source", numbers_into(topic, lanes="2", upto="500"))
    status = host.wait(lambda: host.status("source"), lambda found: found.progress.records == 1000)
    assert status.state is RunState.RUNNING
    assert status.trace is None
    assert in_topic(host, topic) == numbers(2, 500)
    assert source_offsets(host, "source") == {"0": {"n": 500}, "1": {"n": 500}}


def test_a_driver_that_is_killed_loses_and_repeats_nothing(
    host: HostUnderTest, topic: str, started: list[str], tmp_path: Path
) -> None:
    started += ["in", "out"]
    host.start("in", numbers_into(topic, headrace_batch_max_rows="50", lanes="2", upto="1000"))
    host.start("out", folder_of(topic, tmp_path))
    _kill_driver_after(1, host, tmp_path)
    _kill_driver_after(500, host, tmp_path)
    host.wait(lambda: len(in_folder(tmp_path)), lambda found: found == 2000)
    assert in_topic(host, topic) == numbers(2, 1000)
    assert in_folder(tmp_path) == numbers(2, 1000)
    assert host.wait_for("in", RunState.RUNNING).progress.restarts >= 2
    assert host.wait_for("out", RunState.RUNNING).progress.restarts >= 2


def _kill_driver_after(rows: int, host: HostUnderTest, folder: Path) -> None:
    host.wait(lambda: sum(in_folder(folder).values()), lambda found: found >= rows)
    os.kill(driver_pid(), signal.SIGKILL)
    host.wait_for("in", RunState.RESTARTING)


def test_a_passing_error_is_retried_until_its_cause_is_gone(
    host: HostUnderTest, topic: str, started: list[str], tmp_path: Path
) -> None:
    started.append("passing")
    cause = tmp_path / "cause"
    cause.write_text("the sensor is away")
    host.start("passing", numbers_into(topic, fails_while=str(cause), upto="10"))
    status = host.wait(
        lambda: host.status("passing"), lambda found: found.progress.next_try_at is not None
    )
    assert status.state is RunState.RESTARTING
    assert status.trace is not None
    assert status.trace.startswith("ConnectionError: the sensor is away")
    cause.unlink()
    host.wait_for("passing", RunState.RUNNING)
    host.wait(lambda: in_topic(host, topic), lambda found: found == numbers(1, 10))


def test_a_permanent_error_fails_one_connector_with_a_sentence(
    host: HostUnderTest, topic: str, started: list[str], tmp_path: Path
) -> None:
    started += ["permanent", "bystander"]
    cause = tmp_path / "cause"
    cause.write_text("the table t does not exist")
    host.start("bystander", numbers_into(topic, upto="10"))
    host.start("permanent", numbers_into(topic, refuses_while=str(cause)))
    status = host.wait_for("permanent", RunState.FAILED)
    assert status.trace is not None
    assert status.trace.splitlines()[0] == "the table t does not exist"
    host.wait_for("bystander", RunState.RUNNING)
    host.wait(lambda: in_topic(host, topic), lambda found: found == numbers(1, 10))


def test_a_lost_checkpoint_continues_at_the_stored_offsets(
    host: HostUnderTest, topic: str, started: list[str]
) -> None:
    started.append("lost")
    host.start("lost", numbers_into(topic, upto="100"))
    host.wait(lambda: in_topic(host, topic), lambda found: found == numbers(1, 100))
    host.stop("lost")
    shutil.rmtree(host.folder / "checkpoints" / "lost")
    # Records of other programs are no obstacle.
    producer = Producer({"bootstrap.servers": host.bootstrap})
    for key in (b"5", b"no JSON", b'["lost",7]'):
        producer.produce(OFFSETS, b"x", key)
    assert producer.flush(60) == 0
    host.start("lost", numbers_into(topic, upto="200"))
    host.wait(lambda: len(in_topic(host, topic)), lambda found: found == 200)
    assert in_topic(host, topic) == numbers(1, 200)


def test_a_sink_that_is_stopped_has_committed_its_last_epoch(
    host: HostUnderTest, topic: str, started: list[str], tmp_path: Path
) -> None:
    started.append("stopped")
    producer = Producer({"bootstrap.servers": host.bootstrap})
    for n in range(30):
        producer.produce(topic, json.dumps({"lane": 0, "n": n}).encode())
    assert producer.flush(60) == 0
    # The next epoch, with which the first would be committed, never comes.
    host.start("stopped", folder_of(topic, tmp_path, poll_interval_ms="3600000"))
    host.wait(lambda: sum(in_folder(tmp_path).values()), lambda found: found == 30)
    host.wait(lambda: host.status("stopped").progress.records, lambda found: found == 30)
    host.stop("stopped")
    with Cluster(client_config({"bootstrap.servers": host.bootstrap})) as cluster:
        committed = committed_offsets(cluster, "connect-stopped")
    assert sum(each.offset for each in committed.values()) == 30


def test_a_refused_record_is_a_dead_letter(
    host: HostUnderTest, topic: str, started: list[str], tmp_path: Path
) -> None:
    started += ["many", "tolerant"]
    dead = f"{topic}-dead"
    host.create(dead)
    host.start("many", numbers_into(topic, upto="20"))
    host.start(
        "tolerant",
        folder_of(
            topic,
            tmp_path,
            errors_deadletterqueue_topic_name=dead,
            errors_deadletterqueue_context_headers_enable="true",
            refused="7",
            errors_tolerance="all",
        ),
    )
    host.wait(lambda: in_folder(tmp_path), lambda found: len(found) == 19)
    ((key, value, headers),) = host.wait(lambda: host.records(dead), bool)
    assert key is None
    assert value is not None
    assert json.loads(value) == {"lane": 0, "n": 7}
    told = {name.removeprefix("__connect.errors."): text.decode() for name, text in headers.items()}
    assert told["topic"] == topic
    assert told["connector.name"] == "tolerant"
    assert told["stage"] == "TASK_PUT"
    assert told["exception.message"] == "refused by the folder"
    assert told["attempt"] == "1"


def test_without_tolerance_the_record_is_named(
    host: HostUnderTest, topic: str, started: list[str], tmp_path: Path
) -> None:
    started += ["more", "strict"]
    host.start("more", numbers_into(topic, upto="20"))
    host.start("strict", folder_of(topic, tmp_path, refused="7"))
    status = host.wait_for("strict", RunState.FAILED)
    assert status.trace is not None
    assert "refused by the folder" in status.trace.splitlines()[0]
    assert f"of {topic}-" in status.trace.splitlines()[0]
    assert in_folder(tmp_path) == Counter()


def test_a_delta_table_has_every_record_once(
    host: HostUnderTest, topic: str, started: list[str], tmp_path: Path
) -> None:
    started += ["rows", "table"]
    path = tmp_path / "table"
    host.start("rows", numbers_into(topic, lanes="2", upto="100"))
    host.start(
        "table",
        {
            **JSON,
            "connector.class": "DeltaSink",
            "topics": topic,
            "table.path": str(path),
            "value.schema": "lane int, n bigint",
            "poll.interval.ms": "200",
        },
    )

    def rows() -> list[dict[str, Any]]:
        if not (path / "_delta_log").exists():
            return []
        found: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table().to_pylist()
        return found

    found = host.wait(rows, lambda found: len(found) >= 200)
    assert Counter((row["lane"], row["n"]) for row in found) == numbers(2, 100)
    assert {row["topic"] for row in found} == {topic}
    assert len({(row["partition"], row["offset"]) for row in found}) == 200
