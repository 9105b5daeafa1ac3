"""Declarative pipelines: the project that `init` writes, run twice on a real topic."""

import json
import subprocess
import uuid
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer

from headrace.testing.running import RunningBroker
from tests.cli.conftest import command
from tests.support.topics import create_topic


def pipelines(folder: Path, *words: str) -> str:
    done = subprocess.run(
        command("spark", "pipelines", *words),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


def send(broker: RunningBroker, topic: str, *keys: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for key in keys:
        producer.produce(topic, key=key, value=f"from {key}")
    assert producer.flush(60) == 0


def received(broker: RunningBroker, topic: str) -> list[tuple[str, str]]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    found = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        found.append((message.key().decode(), message.value().decode()))
    consumer.close()
    return sorted(found)


def counted(project: Path) -> dict[str, int]:
    rows = pq.read_table(project / "warehouse" / "events_by_key").to_pylist()
    return {row["key"]: row["events"] for row in rows}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_template_runs_again_and_again_and_takes_only_what_is_new(
    headrace: RunningBroker, tmp_path: Path
) -> None:
    topic = f"shop-{uuid.uuid4().hex[:8]}"
    for name in (topic, f"{topic}-copy"):
        create_topic(headrace.bootstrap_servers, name)
    pipelines(tmp_path, "init", "shop", "--topic", topic)
    project = tmp_path / "shop"
    there = ("--bootstrap", headrace.bootstrap_servers, "--master", "local[2]")

    send(headrace, topic, "ada", "ben", "ada")
    assert "COMPLETED" in pipelines(project, "dry-run", *there)
    assert not (project / "warehouse" / "events").exists(), "a dry run makes no tables"
    pipelines(project, "run", *there)
    assert counted(project) == {"ada": 2, "ben": 1}

    # A second run knows the tables of the first, which a catalog in memory would not.
    send(headrace, topic, "ada", "eve")
    pipelines(project, "run", *there)
    assert counted(project) == {"ada": 3, "ben": 1, "eve": 1}
    assert received(headrace, f"{topic}-copy") == sorted(
        (key, f"from {key}") for key in ("ada", "ben", "ada", "ada", "eve")
    )

    listed = subprocess.run(
        command("spark", "queries", "--all", "--json", "-b", headrace.bootstrap_servers),
        capture_output=True,
        check=True,
    )
    targets = {
        each["name"]: each["sink_target"]
        for each in json.loads(listed.stdout)
        if each["application"] == "shop"
    }
    copied = targets["copied"]
    assert (copied["kind"], copied["topic"]) == ("headrace", f"{topic}-copy")
    assert targets["spark_catalog.default.events"]["kind"] == "file"
