"""Client metrics (KIP-714): the metrics of real clients appear on the broker's /metrics."""

import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest
from confluent_kafka import Consumer, Producer

from headrace.errors import ErrorCode
from headrace.wire.compression import GZIP, ZSTD, compress
from tests.support.client_metrics import (
    Series,
    ask_for_subscription,
    connect,
    push,
    pushed_series,
    subscribe,
    wait_for_series,
)
from tests.support.headrace_broker import HeadraceBroker
from tests.support.java import QUICK_START, TOOLS, java_command, run_tool
from tests.support.otlp import counter, metrics_data, point
from tests.support.ports import free_port


@dataclass(frozen=True)
class Measured:
    """A broker that serves /metrics, with a subscription to everything."""

    broker: HeadraceBroker
    page: int

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    page = free_port()
    settings = {"headrace.metrics.address": f"127.0.0.1:{page}"}
    with HeadraceBroker(tmp_path_factory.mktemp("measured"), settings=settings) as broker:
        with connect(broker.bootstrap) as connection:
            subscribe(connection, "all", metrics="*", interval_ms="200")
        yield Measured(broker, page)


def named(client_id: str, name: str = "") -> Callable[[Series], bool]:
    def wanted(series: Series) -> bool:
        return series[1]["client_id"] == client_id and series[0].endswith(name)

    return wanted


def test_librdkafka_pushes_the_metrics_of_producers_and_consumers(measured: Measured) -> None:
    common = {"bootstrap.servers": measured.bootstrap, "enable.metrics.push": True}
    producer = Producer({**common, "client.id": "rd-producer"})

    def produce() -> None:
        producer.produce("rd", b"value")
        producer.flush(60)

    produce()
    name = "org_apache_kafka_producer_node_request_latency_avg"
    found = wait_for_series(measured.page, named("rd-producer", name), produce)
    assert found[0][1].keys() == {"client_id", "client_instance_id", "node_id"}
    consumer = Consumer(
        {**common, "client.id": "rd-consumer", "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["rd"])
    name = "org_apache_kafka_consumer_coordinator_assigned_partitions"
    wait_for_series(
        measured.page,
        lambda one: one[0] == name and one[2] == 1 and one[1]["client_id"] == "rd-consumer",
        lambda: consumer.poll(0.1),
    )
    consumer.close()


@contextmanager
def java_client(tool: str, *arguments: str) -> Iterator[IO[bytes]]:
    """The standard input of one of Kafka's tools, which runs until the end of the block."""
    command = java_command(TOOLS[tool], *arguments, options=QUICK_START)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stdin is not None
    try:
        yield process.stdin
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.mark.java
def test_javas_producers_and_consumers_push_their_metrics(measured: Measured) -> None:
    address = ("--bootstrap-server", measured.bootstrap, "--topic", "java")
    client = ("--command-property", "client.id=java-producer")
    with java_client("kafka-console-producer", *address, *client) as lines:
        lines.write(b"1\n2\n3\n")
        lines.flush()
        wait_for_series(
            measured.page,
            lambda one: one[0] == "org_apache_kafka_producer_record_send_total" and one[2] == 3,
        )
    member = ("--command-property", "client.id=java-consumer", "--group", "java-group")
    with java_client("kafka-console-consumer", *address, *member, "--from-beginning"):
        ((_, labels, _),) = wait_for_series(
            measured.page,
            lambda one: (
                one[0] == "org_apache_kafka_consumer_fetch_manager_records_consumed_total"
                and one[1].get("topic") == "java"
                and one[2] == 3
            ),
        )
    assert (labels["client_id"], labels["group_id"]) == ("java-consumer", "java-group")


@pytest.mark.java
def test_kafkas_own_tool_alters_lists_describes_and_deletes_subscriptions(
    measured: Measured,
) -> None:
    def tool(*arguments: str) -> str:
        server = ("--bootstrap-server", measured.bootstrap)
        return run_tool("kafka-client-metrics", *server, *arguments).stdout

    match = "client_id=app-.*,client_software_name=apache-kafka-java"
    tool("--alter", "--name", "mine", "--metrics", "a.,b.", "--interval", "60000",
         "--match", match)  # fmt: skip
    assert set(tool("--list").split()) == {"all", "mine"}
    described = {line.strip() for line in tool("--describe", "--name", "mine").splitlines()}
    assert {"interval.ms=60000", f"match={match}", "metrics=a.,b."} <= described
    tool("--delete", "--name", "mine")
    assert tool("--list").split() == ["all"]


def test_hostile_pushes_get_errors_and_others_go_on(measured: Measured) -> None:
    with connect(measured.bootstrap, "hostile") as connection:
        good = metrics_data(counter("org.apache.kafka.x", point(1)))
        for data, codec, expected in (
            (b"\x0a\xff\xff\xff\xff\x0f", 0, ErrorCode.INVALID_RECORD),
            (b"garbage", ZSTD, ErrorCode.INVALID_RECORD),
            (b"", 5, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
            (bytes((1 << 20) + 1), 0, ErrorCode.TELEMETRY_TOO_LARGE),
            (compress(ZSTD, bytes(1 << 28)), ZSTD, ErrorCode.TELEMETRY_TOO_LARGE),
            (compress(GZIP, b"\x10\x00" * (3 << 20)), GZIP, ErrorCode.NONE),
            (good, 0, ErrorCode.NONE),
        ):
            asked = ask_for_subscription(connection)
            me = asked.client_instance_id
            assert push(connection, me, asked.subscription_id, data, codec) == expected
            assert push(connection, uuid.uuid4(), asked.subscription_id, good) == (
                ErrorCode.UNKNOWN_SUBSCRIPTION_ID
            )
        assert [one[0] for one in pushed_series(measured.page) if named("hostile")(one)] == [
            "org_apache_kafka_x"
        ]


def test_subscriptions_survive_a_restart_and_clients_go_on(tmp_path: Path) -> None:
    page = free_port()
    settings = {"headrace.metrics.address": f"127.0.0.1:{page}"}
    with HeadraceBroker(tmp_path, settings=settings) as broker:
        with connect(broker.bootstrap) as connection:
            subscribe(connection, "s", metrics="org.apache.kafka.producer.", interval_ms="200")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "stays"})

        def produce() -> None:
            producer.produce("t", b"value")
            producer.poll(0)

        before = wait_for_series(page, named("stays"), produce)
        broker.kill()
        broker.start()
        after = wait_for_series(page, named("stays"), produce)
        instances = {one[1]["client_instance_id"] for one in (*before, *after)}
        assert len(instances) == 1
        assert all(one[0].startswith("org_apache_kafka_producer_") for one in after)


def test_clients_of_a_broker_that_serves_no_metrics_do_not_push(tmp_path: Path) -> None:
    with HeadraceBroker(tmp_path) as broker, connect(broker.bootstrap) as connection:
        subscribe(connection, "s", metrics="*")
        with pytest.raises(Exception, match="71"):
            connection.version(71, 0)
