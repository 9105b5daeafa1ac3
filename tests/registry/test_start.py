"""How the registry's process starts and fails to start."""

import subprocess
import sys
import uuid
from pathlib import Path

import httpx
from confluent_kafka.admin import AdminClient, NewTopic


def test_a_topic_that_cannot_be_used_is_reported_without_a_traceback(bootstrap: str) -> None:
    topic = f"_schemas-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(60)
    done = subprocess.run(
        [
            sys.executable, "-m", "headrace.cli", "registry", "serve",
            "--bootstrap", bootstrap, "--topic", topic, "--listen", "127.0.0.1:0",
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"cannot start: topic {topic} has 2 partitions" in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_come_from_a_file(bootstrap: str, tmp_path: Path) -> None:
    topic = f"_schemas-{uuid.uuid4().hex[:8]}"
    file = tmp_path / "registry.properties"
    file.write_text(f"bootstrap.servers={bootstrap}\nkafkastore.topic={topic}\n")
    command = [sys.executable, "-m", "headrace.cli", "registry", "serve", "--config", str(file)]
    with subprocess.Popen(
        [*command, "--set", "listeners=http://127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().partition("ready on ")[2].partition(",")[0]
        assert httpx.get(f"http://{address}/health", timeout=60).json()["topic"] == topic
        process.terminate()
        assert process.wait(60) == 0
