"""Apache Kafka's own tools make users and ACLs, and a Java client logs in with SCRAM-SHA-256."""

import re
from pathlib import Path

import pytest

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.client.offsets import end_offsets
from headrace.client.users import describe_users
from headrace.security.scram import KAFKA_SALT, challenge_form
from headrace.security.state import ScramCredential
from headrace.types import TopicPartition
from tests.security.nodes import login_nodes
from tests.support.java import missing, run_tool
from tests.support.stores import eventually

pytestmark = pytest.mark.java

CAROL, PASSWORD = "carol", "s3cret of carol"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
USER = ("--entity-type", "users", "--entity-name", CAROL)
PARTITION = TopicPartition("tools", 0)
ON_TOPIC = ("--producer", "--topic", "tools", "--allow-principal", f"User:{CAROL}")


def java_file(folder: Path, mechanism: str) -> Path:
    file = folder / f"{mechanism}.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={MODULE} required username="{CAROL}" password="{PASSWORD}";\n'
        "max.block.ms=20000\n"
    )
    return file


def test_users_and_acls_of_kafkas_tools_count_for_a_java_client(tmp_path: Path) -> None:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    with login_nodes(tmp_path, 1) as (node,):
        inner = ("--bootstrap-server", node.inner)
        credential = f"SCRAM-SHA-256=[iterations=8192,password={PASSWORD}]"
        run_tool("kafka-configs", *inner, "--alter", "--add-config", credential, *USER)
        shown = run_tool("kafka-configs", *inner, "--describe", *USER).text
        assert "SCRAM-SHA-256=iterations=8192" in shown
        known = node.challenge("SCRAM-SHA-256", CAROL)
        form = challenge_form(ScramCredential(known.salt, known.iterations, b"", b""))
        assert form == (KAFKA_SALT, 8192), "Kafka's tools choose other salts than ours"
        unknown = node.challenge("SCRAM-SHA-256", "nobody")
        assert challenge_form(ScramCredential(*unknown, b"", b"")) == form
        run_tool("kafka-topics", *inner, "--create", "--topic", "tools", "--partitions", "1")

        def produce(value: str) -> int:
            """How many records the topic has after the producer has tried to write another."""
            config = ("--command-config", str(java_file(tmp_path, "SCRAM-SHA-256")))
            words = ("--bootstrap-server", node.address, "--topic", "tools", *config)
            run_tool("kafka-console-producer", *words, stdin=f"{value}\n", check=False)
            with Cluster(ClientConfig(parse_bootstrap(node.inner))) as cluster:
                return end_offsets(cluster, [PARTITION])[PARTITION]

        def log() -> str:
            return (tmp_path / "log1.txt").read_text()

        assert produce("before") == 0
        assert '"event": "denied"' in log()
        run_tool("kafka-acls", *inner, "--add", *ON_TOPIC)
        listed = run_tool("kafka-acls", *inner, "--list", "--topic", "tools").text
        assert f"principal=User:{CAROL}" in listed
        assert "operation=WRITE" in listed
        assert produce("allowed") == 1
        words = ("--topic", "tools", "--from-beginning", "--max-messages", "1")
        assert "allowed\n" in run_tool("kafka-console-consumer", *inner, *words).stdout
        run_tool("kafka-acls", *inner, "--remove", "--force", *ON_TOPIC)
        assert "User:" not in run_tool("kafka-acls", *inner, "--list", "--topic", "tools").text
        assert produce("after") == 1
        run_tool("kafka-configs", *inner, "--alter", "--delete-config", "SCRAM-SHA-256", *USER)
        with Cluster(ClientConfig(parse_bootstrap(node.inner))) as cluster:
            eventually(lambda: not describe_users(cluster, [CAROL]), "the user is deleted")
        refused = r'"event": "login_failed".*"user": "carol"'
        assert not re.search(refused, log())
        assert produce("deleted") == 1
        assert re.search(refused, log())
