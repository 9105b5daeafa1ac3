"""What a real broker shows on /metrics, as Prometheus and its own checker read it."""

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.broker.metrics.table import (
    KAFKA_METRICS,
    KAFKA_PARTITION_METRICS,
    METRICS,
    PARTITION_METRICS,
    Metric,
)
from headrace.testing.running import RunningBroker
from tests.support.ports import free_port
from tests.support.prometheus import complaints, needs_prometheus
from tests.support.systems import linux_only

ALL = (*METRICS, *PARTITION_METRICS, *KAFKA_METRICS, *KAFKA_PARTITION_METRICS)
RECORDS = 500
TOPIC = "orders"
LABELLED = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
CLIENT_METRICS = ("headrace_client_metrics_", "org_apache_kafka_")
NOT_OUR_NAME = "kafka_server_socket_server_metrics_connection_count"
"""Ends with a suffix that is reserved for histograms; the JMX exporter calls it so."""


class Scraped:
    """A broker with everything on its page."""

    def __init__(self, broker: RunningBroker, address: str) -> None:
        self.broker = broker
        self.address = address
        self.servers = {"bootstrap.servers": broker.bootstrap_servers}

    def page(self) -> str:
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=60) as answer:
            return str(answer.read().decode())

    def values(self, name: str) -> dict[str, float]:
        """The values of a metric, by the text of their labels."""
        found = (LABELLED.fullmatch(line) for line in self.page().splitlines() if line[0] != "#")
        return {one[2] or "": float(one[3]) for one in found if one is not None and one[1] == name}

    def wait(self, name: str, labels: str, wanted: Callable[[float], bool]) -> None:
        deadline = time.monotonic() + 60
        while not wanted(value := self.values(name).get(labels, -1)):
            assert time.monotonic() < deadline, f"{name}{{{labels}}} is {value}"
            time.sleep(0.1)


@pytest.fixture(scope="module")
def scraped() -> Iterator[Scraped]:
    address = f"127.0.0.1:{free_port()}"
    broker = RunningBroker(
        {
            "headrace.metrics.address": address,
            "headrace.metrics.kafka.names": "true",
            "headrace.metrics.partitions": "true",
            "auto.create.topics.enable": "false",
        }
    )
    try:
        scraped = Scraped(broker, address)
        admin = AdminClient(scraped.servers)
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(60)
        producer = Producer(scraped.servers)
        for number in range(RECORDS):
            producer.produce(TOPIC, b"x" * 100, partition=number % 2)
        assert producer.flush(60) == 0
        read_all(scraped)
        yield scraped
    finally:
        broker.close()


def read_all(scraped: Scraped) -> None:
    consumer = Consumer({**scraped.servers, "group.id": "readers"})
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(2)])
    left = RECORDS
    while left:
        found = consumer.consume(left, 60)
        assert found
        assert not any(one.error() for one in found)
        left -= len(found)
    consumer.close()


def test_every_metric_of_the_table_is_on_the_page_and_nothing_else(scraped: Scraped) -> None:
    types = re.findall(r"^# TYPE (\w+) (\w+)$", scraped.page(), re.MULTILINE)
    own = [(name, kind) for name, kind in types if not name.startswith(CLIENT_METRICS)]
    assert own == [(row.name, row.kind) for row in ALL]


@needs_prometheus
def test_prometheus_finds_nothing_to_complain_about(scraped: Scraped) -> None:
    assert [line for line in complaints(scraped.page()) if NOT_OUR_NAME not in line] == []


def test_records_and_bytes_of_a_topic_are_counted(scraped: Scraped) -> None:
    label = f'topic="{TOPIC}"'
    written = scraped.values("headrace_topic_bytes_in_total")[label]
    assert written > RECORDS * 100
    assert scraped.values("headrace_topic_records_in_total")[label] == RECORDS
    assert scraped.values("headrace_topic_records_out_total")[label] >= RECORDS
    assert scraped.values("headrace_topic_bytes_out_total")[label] >= written
    sizes = scraped.values("headrace_partition_size_bytes")
    assert sum(size for labels, size in sizes.items() if label in labels) == written
    ends = scraped.values("headrace_partition_end_offset")
    assert ends[f'{label},partition="0"'] == RECORDS / 2


def test_kafkas_names_show_the_same_values(scraped: Scraped) -> None:
    prefix, label = "kafka_server_brokertopicmetrics_", f'topic="{TOPIC}"'
    for name, own in (
        ("messagesin", "records_in"), ("bytesin", "bytes_in"), ("bytesout", "bytes_out"),
    ):  # fmt: skip
        ours = scraped.values(f"headrace_topic_{own}_total")
        kafkas = scraped.values(f"{prefix}{name}_total")
        assert kafkas[label] == ours[label]
        assert kafkas[""] == sum(ours.values())
    assert scraped.values("kafka_controller_kafkacontroller_activecontrollercount") == {"": 1}
    leaders = scraped.values("headrace_leaders")[""]
    assert scraped.values("kafka_server_replicamanager_leadercount")[""] == leaders


def test_requests_are_timed_by_api(scraped: Scraped) -> None:
    counts = scraped.values("headrace_request_seconds_count")
    requests = scraped.values("headrace_requests_total")
    for api in ("Produce", "Fetch", "Metadata", "CreateTopics"):
        label = f'api="{api}"'
        assert 0 < counts[label] <= requests[label]
        buckets = scraped.values("headrace_request_seconds_bucket")
        assert buckets[f'{label},le="+Inf"'] >= counts[label]
        assert scraped.values("headrace_request_seconds_sum")[label] > 0


def test_the_wait_of_a_long_poll_is_not_part_of_its_time(scraped: Scraped) -> None:
    def sum_of(name: str, labels: str = "") -> float:
        return scraped.values(f"{name}_sum")[labels]

    waited, worked = "headrace_fetch_wait_seconds", "headrace_request_seconds"
    before_s = sum_of(waited), sum_of(worked, 'api="Fetch"')
    consumer = Consumer({**scraped.servers, "group.id": "poll", "fetch.wait.max.ms": 3000})
    consumer.assign([TopicPartition(TOPIC, 0, RECORDS // 2)])
    assert consumer.poll(5) is None
    scraped.wait(f"{waited}_sum", "", lambda seconds: seconds > before_s[0] + 2)
    consumer.close()
    assert sum_of(worked, 'api="Fetch"') - before_s[1] < sum_of(waited) - before_s[0]


def test_errors_are_counted_by_api_and_code(scraped: Scraped) -> None:
    consumer = Consumer({**scraped.servers, "group.id": "no"})
    with pytest.raises(KafkaException):
        consumer.offsets_for_times([TopicPartition("missing", 0, 1)], timeout=60)
    consumer.list_topics("missing", timeout=60)
    consumer.close()
    errors = scraped.values("headrace_request_errors_total")
    assert errors['api="Metadata",error="UNKNOWN_TOPIC_OR_PARTITION"'] >= 1
    admin = AdminClient(scraped.servers)
    with pytest.raises(KafkaException):
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(60)
    errors = scraped.values("headrace_request_errors_total")
    assert errors['api="CreateTopics",error="TOPIC_ALREADY_EXISTS"'] == 1


def test_open_transactions_are_counted_until_they_end(scraped: Scraped) -> None:
    producer = Producer({**scraped.servers, "transactional.id": "metrics"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(TOPIC, b"in a transaction", partition=1)
    assert producer.flush(60) == 0
    scraped.wait("headrace_transactions_open", "", lambda count: count == 1)
    scraped.wait("headrace_transaction_oldest_seconds", "", lambda seconds: seconds > 0)
    producer.abort_transaction(60)
    scraped.wait("headrace_transactions_open", "", lambda count: count == 0)
    assert scraped.values("headrace_transaction_oldest_seconds") == {"": 0}


@linux_only
def test_the_process_shows_what_it_uses(scraped: Scraped) -> None:
    pid = scraped.broker.pid
    assert scraped.values("process_open_fds")[""] >= 5
    resident = scraped.values("process_resident_memory_bytes")[""]
    status = Path(f"/proc/{pid}/status").read_text()
    measured = int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) * 1024
    assert measured / 2 < resident < measured * 2
    assert 0 < scraped.values("process_cpu_seconds_total")[""] < 1000
    started = scraped.values("process_start_time_seconds")[""]
    assert time.time() - 3600 < started <= time.time()
    scraped.wait("headrace_event_loop_delay_seconds_count", "", lambda count: count >= 2)
    assert scraped.values("headrace_fsync_seconds_count")[""] > 0


def test_a_broker_that_runs_is_live_and_ready(scraped: Scraped) -> None:
    for path, answer in (("live", {"live": True}), ("ready", {"ready": True, "reasons": []})):
        with urllib.request.urlopen(f"http://{scraped.address}/health/{path}", timeout=60) as found:
            assert json.load(found) == answer


def test_the_space_of_the_data_folder_is_shown(scraped: Scraped) -> None:
    free = scraped.values("headrace_log_dir_free_bytes")
    size = scraped.values("headrace_log_dir_size_bytes")
    assert len(free) == 1
    assert free.keys() == size.keys()
    assert all(0 < free[path] < size[path] for path in free)


def test_clients_are_counted_by_listener(scraped: Scraped) -> None:
    before = scraped.values("headrace_connections_accepted_total")['listener="PLAINTEXT"']
    producer = Producer(scraped.servers)
    producer.list_topics(timeout=60)
    now = scraped.values("headrace_listener_connections")['listener="PLAINTEXT"']
    assert now >= 1
    assert scraped.values("headrace_connections_accepted_total")['listener="PLAINTEXT"'] > before


@needs_prometheus
def test_a_real_prometheus_scrapes_the_page(scraped: Scraped, tmp_path: Path) -> None:
    config = tmp_path / "prometheus.yml"
    job = {
        "job_name": "headrace",
        "scrape_interval": "1s",
        "static_configs": [{"targets": [scraped.address]}],
    }
    config.write_text(json.dumps({"scrape_configs": [job]}))  # JSON is YAML
    port = free_port()
    with (tmp_path / "log").open("w") as log:
        prometheus = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        found = asked(port, 'headrace_topic_records_in_total{topic="orders"}')
        assert float(found[0]["value"][1]) >= RECORDS
        quantile = "histogram_quantile(0.5, headrace_request_seconds_bucket)"
        assert {"api"} <= asked(port, quantile)[0]["metric"].keys()
        assert asked(port, "up")[0]["value"][1] == "1"
    finally:
        prometheus.terminate()
        prometheus.wait(60)


def asked(port: int, query: str) -> list[dict[str, Any]]:
    """The result of a query, once there is one."""
    url = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except OSError:  # it is starting
            found = []
        if found:
            return found
        assert time.monotonic() < deadline, query
        time.sleep(0.2)


def names(rows: tuple[Metric, ...]) -> set[str]:
    return {row.name for row in rows}


def test_partitions_and_kafkas_names_are_off_unless_asked_for() -> None:
    address = f"127.0.0.1:{free_port()}"
    broker = RunningBroker({"headrace.metrics.address": address})
    try:
        types = re.findall(r"^# TYPE (\w+)", Scraped(broker, address).page(), re.MULTILINE)
        assert set(types) == names(METRICS)
    finally:
        broker.close()
