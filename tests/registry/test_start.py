"""How the registry's process starts and fails to start."""

import subprocess
import sys
import uuid

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
