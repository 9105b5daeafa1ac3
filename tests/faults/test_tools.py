"""Apache Kafka's own verifiable clients and its topic tool, while brokers die and stop."""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.faults.judged import wait_for
from tests.support.cluster import RunningCluster
from tests.support.java import QUICK_START, java_command, missing, run_tool

pytestmark = [pytest.mark.java, pytest.mark.slow]

RECORDS = 2000


class Tool:
    """A tool that prints one JSON object a line."""

    def __init__(self, name: str, *arguments: str) -> None:
        self.said: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            java_command(f"org.apache.kafka.tools.{name}", *arguments, options=QUICK_START),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.said.append(json.loads(line))

    def named(self, name: str) -> list[dict[str, Any]]:
        return [one for one in list(self.said) if one["name"] == name]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._thread.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def tool(name: str, *arguments: str) -> Iterator[Tool]:
    running = Tool(name, *arguments)
    try:
        yield running
    finally:
        running.end()


def test_verifiable_clients_notice_no_kill_and_no_stop(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    if reason := missing():
        pytest.skip(reason)
    cluster.create("orders", 3, min_insync_replicas="2")
    where = ("--bootstrap-server", cluster.bootstrap_servers, "--topic", "orders")
    described = run_tool("kafka-topics", *where[:2], "--describe", "--topic", "orders").stdout
    assert described.count("Isr: ") == 3
    config = tmp_path / "producer.properties"  # without it, the tool does not retry
    config.write_text("retries=2147483647\nenable.idempotence=true\n")
    writing = (
        *where, "--max-messages", str(RECORDS), "--throughput", "250", "--acks", "-1",
        "--command-config", str(config),
    )  # fmt: skip
    reading = (*where, "--group-id", "audit", "--reset-policy", "earliest", "--verbose")
    with (
        tool("VerifiableProducer", *writing) as producer,
        tool("VerifiableConsumer", *reading) as consumer,
    ):
        wait_for(lambda: len(producer.named("producer_send_success")) > 100, "it has begun")
        cluster.brokers[1].kill()
        killed_at = len(producer.named("producer_send_success"))
        wait_for(
            lambda: len(producer.named("producer_send_success")) > killed_at + 100, "it goes on"
        )
        cluster.brokers[1].start()
        cluster.wait_until_in_sync("orders")
        cluster.brokers[2].stop()
        cluster.brokers[2].start()
        wait_for(lambda: bool(producer.named("tool_data")), "the producer is done")
        (done,) = producer.named("tool_data")
        assert (done["sent"], done["acked"]) == (RECORDS, RECORDS)
        assert producer.named("producer_send_error") == []
        wait_for(
            lambda: (
                {one["value"] for one in consumer.named("record_data")}
                == {str(number) for number in range(RECORDS)}
            ),
            "the consumer has read everything",
        )
    cluster.wait_until_in_sync("orders")
    lacking = run_tool("kafka-topics", *where[:2], "--describe", "--under-replicated-partitions")
    assert "orders" not in lacking.stdout
