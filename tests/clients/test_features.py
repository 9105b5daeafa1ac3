"""Levels of features as users change them: kafka-features, and what Java's clients do then."""

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.headrace_broker import HeadraceBroker
from tests.support.java import ToolResult, missing, run_tool
from tests.support.ports import free_port
from tests.support.topics import create_topic

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tuple[HeadraceBroker, int]]:
    """A broker of its own, and the port of its metrics."""
    if reason := missing():
        pytest.skip(reason)
    port = free_port()
    settings = {
        "headrace.metrics.address": f"127.0.0.1:{port}",
        "group.initial.rebalance.delay.ms": "0",
    }
    with HeadraceBroker(tmp_path, settings=settings) as running:
        yield running, port


def features(broker: HeadraceBroker, *words: str, check: bool = True) -> ToolResult:
    return run_tool("kafka-features", "--bootstrap-server", broker.bootstrap, *words, check=check)


def levels(broker: HeadraceBroker) -> dict[str, str]:
    """The finalized levels that kafka-features describe prints."""
    printed = features(broker, "describe").stdout
    rows = re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)", printed)
    assert rows, printed
    return dict(rows)


def requests(port: int, api: str) -> int:
    """How many requests of an API the broker has had."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
        text = page.read().decode()
    found = re.search(rf'^headrace_requests_total{{api="{api}"}} (\d+)', text, re.MULTILINE)
    return int(found[1]) if found else 0


def transactions(broker: HeadraceBroker, name: str) -> None:
    run_tool(
        "kafka-producer-perf-test",
        *("--topic", "orders", "--num-records", "100", "--record-size", "10"),
        *("--throughput", "-1", "--transaction-duration-ms", "1000", "--transactional-id", name),
        *("--command-property", f"bootstrap.servers={broker.bootstrap}"),
    )


def test_kafka_features_changes_what_clients_use(broker: tuple[HeadraceBroker, int]) -> None:
    running, port = broker
    create_topic(running.bootstrap, "orders", 1)
    assert levels(running) == {
        "eligible.leader.replicas.version": "1",
        "group.version": "1",
        "kraft.version": "1",
        "metadata.version": "4.3-IV0",
        "share.version": "1",
        "streams.version": "1",
        "transaction.version": "2",
    }
    transactions(running, "with-version-2")
    assert requests(port, "AddPartitionsToTxn") == 0, "Produce adds the partitions"

    features(running, "downgrade", "--feature", "transaction.version=1")
    transactions(running, "with-version-1")
    assert requests(port, "AddPartitionsToTxn") == 1

    features(running, "disable", "--feature", "group.version", "--feature", "share.version")
    assert {name for name, level in levels(running).items() if level == "0"} == {
        "group.version",
        "share.version",
    }
    refused = features(running, "upgrade", "--feature", "transaction.version=3", check=False)
    assert refused.code != 0
    assert "only supports versions 0-2" in refused.text
    features(running, "upgrade", "--feature", "group.version=1", "--dry-run")
    assert levels(running)["group.version"] == "0"

    running.stop()
    running.start()
    assert levels(running)["transaction.version"] == "1", "levels survive a restart"
    features(running, "upgrade", "--release-version", "4.3")
    assert levels(running)["group.version"] == "1"
    assert levels(running)["transaction.version"] == "2"
