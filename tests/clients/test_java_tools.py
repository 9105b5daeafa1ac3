"""Apache Kafka's own command-line tools against the broker, and its dump tool over our files."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.clients.conftest import MakeTopic
from tests.support.headrace_broker import HeadraceBroker
from tests.support.java import ToolResult, kafka_version, run_tool

pytestmark = [pytest.mark.java, pytest.mark.slow]


def tool(bootstrap: str, name: str, *arguments: str, **options: Any) -> ToolResult:
    return run_tool(name, "--bootstrap-server", bootstrap, *arguments, **options)


def write(bootstrap: str, topic: str, count: int, **options: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, **options})
    for n in range(count):
        producer.produce(topic, b"value-%d" % n, key=b"key-%d" % n, partition=0)
    assert producer.flush(60) == 0


def read_back(bootstrap: str, topic: str, count: int, *arguments: str, start: str = "0") -> str:
    return tool(
        bootstrap,
        "kafka-console-consumer",
        *("--topic", topic, "--partition", "0", "--offset", start),
        *("--max-messages", str(count), "--timeout-ms", "20000"),
        *arguments,
    ).stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_console_producer_and_consumer_meet_with_every_codec(
    bootstrap: str, topic: str, codec: str
) -> None:
    lines = "".join(f"line {n}\n" for n in range(50))
    tool(
        bootstrap,
        "kafka-console-producer",
        *("--topic", topic, "--compression-codec", codec),
        stdin=lines,
    )
    assert read_back(bootstrap, topic, 50) == lines


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_the_console_producer_stores_with_every_acks_level(
    bootstrap: str, topic: str, acks: str
) -> None:
    tool(
        bootstrap,
        "kafka-console-producer",
        *("--topic", topic, "--request-required-acks", acks),
        *("--command-property", "enable.idempotence=false"),
        stdin="a\nb\n",
    )
    assert read_back(bootstrap, topic, 2) == "a\nb\n"


def test_keys_headers_nulls_and_timestamps_go_through_the_console(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(**{"message.timestamp.type": "LogAppendTime"})
    tool(
        bootstrap,
        "kafka-console-producer",
        *("--topic", topic),
        *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
        *("--reader-property", "null.marker=NULL"),
        stdin="h1:x,h2:y\tkey\tvalue\nh1:z\tNULL\tNULL\n",
    )
    shown = read_back(
        bootstrap,
        topic,
        2,
        *("--formatter-property", "print.key=true", "--formatter-property", "print.headers=true"),
        *(
            "--formatter-property",
            "print.timestamp=true",
            "--formatter-property",
            "print.offset=true",
        ),
    )
    plain = re.sub(r"LogAppendTime:\d{13}", "LogAppendTime:T", shown)
    assert plain == (
        "LogAppendTime:T\tOffset:0\th1:x,h2:y\tkey\tvalue\n"
        "LogAppendTime:T\tOffset:1\th1:z\tnull\tnull\n"
    )


def test_kafka_topics_creates_lists_describes_alters_and_deletes(
    bootstrap: str, new_name: str
) -> None:
    create = ("--create", "--topic", new_name, "--partitions", "2", "--replication-factor", "1")
    assert (
        f"Created topic {new_name}."
        in tool(bootstrap, "kafka-topics", *create, "--config", "retention.ms=99999").text
    )
    assert new_name in tool(bootstrap, "kafka-topics", "--list").stdout.split()
    again = tool(bootstrap, "kafka-topics", *create, check=False)
    assert again.code != 0
    assert "already exists" in again.text

    tool(bootstrap, "kafka-topics", "--alter", "--topic", new_name, "--partitions", "5")
    described = tool(bootstrap, "kafka-topics", "--describe", "--topic", new_name).stdout
    assert "PartitionCount: 5" in described
    assert "retention.ms=99999" in described
    assert len(re.findall(r"Leader: \d+", described)) == 5

    tool(bootstrap, "kafka-topics", "--delete", "--topic", new_name)
    assert new_name not in tool(bootstrap, "kafka-topics", "--list").stdout.split()


def test_kafka_topics_creates_a_thousand_partitions(bootstrap: str, new_name: str) -> None:
    tool(
        bootstrap,
        "kafka-topics",
        *("--create", "--topic", new_name, "--partitions", "1000", "--replication-factor", "1"),
    )
    described = tool(bootstrap, "kafka-topics", "--describe", "--topic", new_name).stdout
    assert len(re.findall(r"Partition: \d+", described)) == 1000
    assert not tool(
        bootstrap, "kafka-topics", "--describe", "--topic", new_name, "--unavailable-partitions"
    ).stdout.strip()


@pytest.mark.parametrize(
    ("entity", "quota", "shown"),
    [
        (("users", "alice"), "producer_byte_rate=1000", "user-principal 'alice'"),
        (("clients", None), "request_percentage=50.5", "default client-id"),
        (("ips", "10.0.0.7"), "connection_creation_rate=5", "ip '10.0.0.7'"),
    ],
)
def test_kafka_configs_sets_describes_and_removes_quotas(
    bootstrap: str, entity: tuple[str, str | None], quota: str, shown: str
) -> None:
    kind, name = entity
    named = ("--entity-default",) if name is None else ("--entity-name", name)
    where = ("--entity-type", kind, *named)
    tool(bootstrap, "kafka-configs", "--alter", *where, "--add-config", quota)
    described = tool(bootstrap, "kafka-configs", "--describe", *where).stdout
    key = quota.partition("=")[0]
    tool(bootstrap, "kafka-configs", "--alter", *where, "--delete-config", key)
    assert shown in described
    assert quota in described
    assert key not in tool(bootstrap, "kafka-configs", "--describe", *where).stdout


def test_kafka_configs_sets_describes_and_removes_topic_settings(
    bootstrap: str, topic: str
) -> None:
    where = ("--entity-type", "topics", "--entity-name", topic)
    tool(
        bootstrap,
        "kafka-configs",
        *("--alter", *where, "--add-config", "retention.ms=1000,cleanup.policy=[compact,delete]"),
    )
    described = tool(bootstrap, "kafka-configs", "--describe", *where).stdout
    assert "retention.ms=1000" in described
    assert "cleanup.policy=compact,delete" in described
    tool(
        bootstrap,
        "kafka-configs",
        *("--alter", *where, "--delete-config", "retention.ms,cleanup.policy"),
    )
    assert "retention.ms" not in tool(bootstrap, "kafka-configs", "--describe", *where).stdout
    everything = tool(bootstrap, "kafka-configs", "--describe", *where, "--all").stdout
    assert "retention.ms=604800000" in everything

    refused = tool(
        bootstrap,
        "kafka-configs",
        *("--alter", *where, "--add-config", "retention.ms=never"),
        check=False,
    )
    assert refused.code != 0


def test_kafka_configs_changes_the_cluster_wide_broker_defaults(bootstrap: str) -> None:
    where = ("--entity-type", "brokers", "--entity-default")
    tool(
        bootstrap,
        "kafka-configs",
        *("--alter", *where, "--add-config", "log.retention.ms=123456789"),
    )
    try:
        assert (
            "log.retention.ms=123456789"
            in tool(bootstrap, "kafka-configs", "--describe", *where).stdout
        )
    finally:
        tool(bootstrap, "kafka-configs", "--alter", *where, "--delete-config", "log.retention.ms")
    assert "log.retention.ms" not in tool(bootstrap, "kafka-configs", "--describe", *where).stdout


def test_kafka_configs_sets_describes_lists_and_removes_the_configs_of_a_group(
    bootstrap: str, new_name: str
) -> None:
    where = ("--entity-type", "groups", "--entity-name", new_name)
    given = "consumer.session.timeout.ms=50000,share.record.lock.duration.ms=20000"
    tool(bootstrap, "kafka-configs", "--alter", *where, "--add-config", given)
    described = tool(bootstrap, "kafka-configs", "--describe", *where).stdout
    assert set(
        re.findall(r"^  (\S+?)=(\S*) sensitive=false synonyms=(\{.*\})$", described, re.M)
    ) == {
        (name, value, f"{{DYNAMIC_GROUP_CONFIG:{name}={value}}}")
        for name, value in (pair.split("=") for pair in given.split(","))
    }
    everything = tool(bootstrap, "kafka-configs", "--describe", *where, "--all").stdout
    default = "consumer.heartbeat.interval.ms=5000"
    assert f"{default} sensitive=false synonyms={{DEFAULT_CONFIG:{default}}}" in everything
    assert set(re.findall(r"^  (\S+?)=", everything, re.M)) >= {
        "consumer.session.timeout.ms",
        "share.record.lock.duration.ms",
        "streams.num.standby.replicas",
    }
    listed = tool(bootstrap, "kafka-configs", "--describe", "--entity-type", "groups").stdout
    assert f"Dynamic configs for group {new_name} are:" in listed
    for wrong, why in (
        ("consumer.session.timeout.ms=1000", "group.consumer.min.session.timeout.ms"),
        ("consumer.heartbeat.interval.ms=20000", "group.consumer.max.heartbeat.interval.ms"),
        ("no.such=1", "Unknown group config name: no.such"),
    ):
        refused = tool(
            bootstrap, "kafka-configs", "--alter", *where, "--add-config", wrong, check=False
        )
        assert refused.code != 0
        assert "InvalidConfigurationException" in refused.stdout + refused.stderr
        assert why in refused.stdout + refused.stderr
    names = "consumer.session.timeout.ms,share.record.lock.duration.ms"
    tool(bootstrap, "kafka-configs", "--alter", *where, "--delete-config", names)
    assert "timeout" not in tool(bootstrap, "kafka-configs", "--describe", *where).stdout


def test_kafka_get_offsets_answers_every_form_of_time(bootstrap: str, topic: str) -> None:
    start = int(time.time() * 1000) - 100_000
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in (0, 1, 5, 2):
        producer.produce(topic, b"v", partition=0, timestamp=start + n * 1000)
    assert producer.flush(60) == 0

    def at(when: str) -> str:
        return tool(bootstrap, "kafka-get-offsets", "--topic", topic, "--time", when).stdout.strip()

    assert at("earliest") == f"{topic}:0:0"
    assert at("-2") == f"{topic}:0:0"
    assert at("latest") == f"{topic}:0:4"
    assert at("max-timestamp") == f"{topic}:0:2"
    assert at("earliest-local") == f"{topic}:0:0"
    assert at("latest-tiered") in (f"{topic}:0:-1", f"{topic}:0:", "")
    assert at(str(start + 500)) == f"{topic}:0:1"


def test_kafka_delete_records_moves_the_beginning(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    write(bootstrap, topic, 20)
    order = tmp_path / "order.json"
    order.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 15}]})
    )
    done = tool(bootstrap, "kafka-delete-records", "--offset-json-file", str(order))
    assert f"partition: {topic}-0\tlow_watermark: 15" in done.stdout
    assert read_back(bootstrap, topic, 1, start="earliest") == "value-15\n"


def test_kafka_log_dirs_shows_the_size_of_a_partition(bootstrap: str, topic: str) -> None:
    write(bootstrap, topic, 20)
    done = tool(bootstrap, "kafka-log-dirs", "--describe", "--topic-list", topic)
    answer = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    (folder,) = answer["brokers"][0]["logDirs"]
    assert folder["error"] is None
    (partition,) = folder["partitions"]
    assert partition["partition"] == f"{topic}-0"
    assert partition["size"] > 20 * len("key-0value-0")
    assert partition["offsetLag"] == 0
    assert not partition["isFuture"]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_producer_performance_finishes_without_an_error(
    bootstrap: str, topic: str, codec: str
) -> None:
    done = run_tool(
        "kafka-producer-perf-test",
        *("--topic", topic, "--num-records", "20000", "--record-size", "100"),
        *("--throughput", "-1", "--command-property", f"bootstrap.servers={bootstrap}"),
        *("acks=all", f"compression.type={codec}"),
    )
    assert "20000 records sent" in done.stdout
    assert "Exception" not in done.text
    latest = tool(bootstrap, "kafka-get-offsets", "--topic", topic, "--time", "latest").stdout
    assert latest.strip() == f"{topic}:0:20000"


def test_a_megabyte_record_passes_through_javas_producer_and_consumer(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(**{"max.message.bytes": "2000000"})
    run_tool(
        "kafka-producer-perf-test",
        *("--topic", topic, "--num-records", "3", "--record-size", "1048576"),
        *("--throughput", "-1", "--command-property", f"bootstrap.servers={bootstrap}"),
        *("max.request.size=2000000",),
    )
    assert len(read_back(bootstrap, topic, 3)) == 3 * (1048576 + 1)


def test_the_verifiable_producer_gets_every_acknowledgement(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(3)
    done = tool(
        bootstrap,
        "kafka-verifiable-producer",
        *("--topic", topic, "--max-messages", "500", "--acks", "-1"),
    )
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    sent = [event for event in events if event["name"] == "producer_send_success"]
    assert sorted(int(event["value"]) for event in sent) == list(range(500))
    (summary,) = [event for event in events if event["name"] == "tool_data"]
    assert (summary["sent"], summary["acked"]) == (500, 500)


def test_end_to_end_latency_is_measured(bootstrap: str, topic: str) -> None:
    done = tool(
        bootstrap,
        "kafka-e2e-latency",
        *("--topic", topic, "--num-records", "200", "--producer-acks", "all"),
        *("--record-size", "100"),
    )
    assert re.search(r"Avg latency: \d+\.\d+ ms", done.stdout)


def test_the_broker_advertises_its_api_versions(bootstrap: str) -> None:
    done = tool(bootstrap, "kafka-broker-api-versions")
    assert re.search(r"^127\.0\.0\.1:\d+ \(id: \d+ rack: \S+.*\) -> \(", done.stdout, re.MULTILINE)
    for row in ("Produce(0): 0 to 13", "Fetch(1): 4 to 18", "Metadata(3): 0 to 13"):
        assert row in done.stdout


def test_the_cluster_has_an_id_and_features(bootstrap: str) -> None:
    answer = run_tool("kafka-cluster", "cluster-id", "--bootstrap-server", bootstrap)
    assert re.search(r"Cluster ID: \S+", answer.stdout)
    assert tool(bootstrap, "kafka-features", "describe").code == 0


def dump(*files: Path) -> str:
    """What kafka-dump-log prints; fails when it complains about anything."""
    names = ",".join(map(str, files))
    dumped = run_tool("kafka-dump-log", "--deep-iteration", "--print-data-log", "--files", names)
    assert "isvalid: false" not in dumped.stdout
    for complaint in ("Mismatches in", "out of order timestamp", "not found"):
        assert complaint not in dumped.text
    # The tool of 4.3 also complains about the first offset of a file that does not begin at 0.
    assert re.findall(r"^ *(?!-1 )\d+ is followed by \d+", dumped.text, re.MULTILINE) == []
    return dumped.stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kafka_dump_log_reads_our_files_to_the_last_record(
    bootstrap: str, topic: str, data_folder: Path, codec: str
) -> None:
    batches = {"enable.idempotence": True, "batch.num.messages": 20}
    write(bootstrap, topic, 300, **{"compression.type": codec}, **batches)
    printed = dump(data_folder / f"{topic}-0" / f"{0:020d}.log")
    assert printed.count("payload: value-") == 300
    assert "payload: value-299" in printed
    assert printed.count("isvalid: true") >= 15


def test_kafka_dump_log_agrees_with_our_indexes_of_closed_segments(
    bootstrap: str, make_topic: MakeTopic, data_folder: Path
) -> None:
    topic = make_topic(**{"segment.bytes": "1048576", "index.interval.bytes": "4096"})
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 20_000})
    for n in range(3000):
        producer.produce(topic, b"%d " % n + b"x" * 1000, partition=0)
    assert producer.flush(60) == 0

    *closed, active = sorted((data_folder / f"{topic}-0").glob("*.log"))
    assert len(closed) >= 2
    printed = ""
    for segment in closed:
        printed += dump(segment, segment.with_suffix(".index"), segment.with_suffix(".timeindex"))
    printed += dump(active)
    assert printed.count("payload: ") == 3000
    assert len(re.findall(r"^offset: \d+ position: \d+", printed, re.MULTILINE)) > 100
    assert len(re.findall(r"^timestamp: \d+ offset: \d+", printed, re.MULTILINE)) > 1


def test_kafka_dump_log_agrees_with_all_our_files_after_a_clean_stop(tmp_path: Path) -> None:
    with HeadraceBroker(tmp_path) as broker:
        write(broker.bootstrap, "stopped", 500, **{"enable.idempotence": True})
        assert broker.stop() == 0
    folder = broker.partition_folder("stopped")
    files = sorted(folder.glob(f"{0:020d}.*"))
    assert {".log", ".index", ".timeindex"} <= {file.suffix for file in files}
    assert dump(*files).count("payload: value-") == 500
    (snapshot,) = folder.glob("*.snapshot")
    assert re.search(r"producerId: \d+ producerEpoch: 0 ", dump(snapshot))


def test_the_tools_are_those_of_the_version_we_name() -> None:
    assert run_tool("kafka-topics", "--version").stdout.startswith(kafka_version())
