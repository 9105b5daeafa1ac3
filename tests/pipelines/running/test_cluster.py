"""The same program on a Spark cluster: a standalone master and two workers from the pip package."""

import json
import subprocess
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from headrace.testing.running import RunningBroker
from tests.cli.conftest import command
from tests.support import java
from tests.support.spark_cluster import SparkCluster
from tests.support.topics import create_topic

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "streams" / "tumbling_windows.py"
SENSORS = 8
MINUTES = 5


def run(broker: RunningBroker, prefix: str, folder: Path, master: str) -> str:
    """Run the example over all that is there, on this master."""
    done = subprocess.run(
        command(
            "spark", "run", str(EXAMPLE), "--master", master,
            "--bootstrap", broker.bootstrap_servers, "--checkpoints", str(folder),
            "--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.executor.memory=512m",
            "--conf", f"spark.executor.extraJavaOptions={java.spark_options()}",
            "--conf", "spark.driver.host=127.0.0.1", "--", "--once", "--prefix", prefix,
        ),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stderr


def send(broker: RunningBroker, topic: str, hour: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for minute in range(MINUTES):
        for sensor in range(SENSORS):
            reading = {
                "id": f"{sensor}/{hour}/{minute}",
                "sensor": f"s-{sensor}",
                "temperature": 20 + sensor,
                "humidity": 50,
                "time": f"2026-01-31T{hour:02}:{minute:02}:00Z",
            }
            producer.produce(topic, key=reading["sensor"], value=json.dumps(reading))
    assert producer.flush(60) == 0


def received(broker: RunningBroker, topic: str) -> list[tuple[str, str, int]]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    found = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        row = json.loads(message.value())
        found.append((row["minute"][11:16], row["sensor"], row["temperature"]))
    consumer.close()
    return sorted(found)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_program_moves_between_a_laptop_and_a_cluster_by_its_masters_address(
    headrace: RunningBroker, tmp_path: Path
) -> None:
    prefix = f"{uuid.uuid4().hex[:8]}-"
    create_topic(headrace.bootstrap_servers, f"{prefix}readings", partitions=2)
    create_topic(headrace.bootstrap_servers, f"{prefix}minutes")
    send(headrace, f"{prefix}readings", hour=10)
    run(headrace, prefix, tmp_path / "checkpoints", "local[2]")
    send(headrace, f"{prefix}readings", hour=11)
    with SparkCluster(tmp_path / "cluster") as cluster:
        run(headrace, prefix, tmp_path / "checkpoints", cluster.master)
        assert cluster.executors() == [0, 1], "both workers took part"
    # What the laptop had left open the cluster has closed: the checkpoint is the same.
    closed = [(10, minute) for minute in range(MINUTES)] + [(11, minute) for minute in range(2)]
    assert received(headrace, f"{prefix}minutes") == sorted(
        (f"{hour:02}:{minute:02}", f"s-{sensor}", 20 + sensor)
        for hour, minute in closed
        for sensor in range(SENSORS)
    )
