"""The traces of records pass through sources and sinks; epochs have spans if they are wanted."""

from collections import Counter
from pathlib import Path

import pytest

from headrace.connect.host.settings import DriverSettings
from headrace.connect.host.sink_query import topic_options
from headrace.connect.host.work import ConnectorWork
from tests.connect.host.conftest import MODULE, HostUnderTest

STRING = "org.apache.kafka.connect.storage.StringConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"
HEADER = "org.apache.kafka.connect.transforms.InsertHeader"
PACKED, CHANGED = (f"00-{digit * 32}-b7ad6b7169203331-01" for digit in "12")


@pytest.mark.spark
def test_the_trace_of_a_record_passes_through_a_source_and_a_sink(
    host: HostUnderTest, topic: str, started: list[str], tmp_path: Path
) -> None:
    source = {"connector.class": f"{MODULE}.Traced", "topic": topic, "key.converter": STRING}
    converters = {
        PACKED: {"value.converter": STRING},
        CHANGED: {
            "value.converter": JSON,
            "value.converter.schemas.enable": "false",
            "transforms": "more",
            "transforms.more.type": HEADER,
            "transforms.more.header": "added",
            "transforms.more.value.literal": "x",
        },
    }
    for number, (trace, options) in enumerate(converters.items()):
        started.append(f"traced-{number}")
        host.start(started[-1], {**source, "traceparent": trace, **options})
        status = host.wait(
            lambda: host.status(started[-1]), lambda found: found.progress.records == 10
        )
        assert status.trace is None
    assert Counter(headers["traceparent"] for _, _, headers in host.records(topic)) == {
        PACKED.encode(): 10,
        CHANGED.encode(): 10,
    }
    started.append("traces")
    file = tmp_path / "traces"
    sink = {"connector.class": f"{MODULE}.Traces", "topics": topic, "file": str(file)}
    host.start("traces", {**sink, "key.converter": STRING, "value.converter": STRING})
    host.wait(lambda: host.status("traces").progress.records, lambda found: found == 20)
    assert Counter(file.read_text().split()) == {PACKED: 10, CHANGED: 10}


def test_epochs_have_spans_if_the_worker_traces() -> None:
    work = ConnectorWork("name", "module:Class", {"topics": "orders"})
    silent = DriverSettings("localhost:9092", {"bootstrap.servers": "localhost:9092"}, "o", "f")
    traced = DriverSettings(
        "localhost:9092", {"bootstrap.servers": "localhost:9092"}, "o", "f", tracing=True
    )
    assert "tracing" not in topic_options(work, silent)
    assert topic_options(work, traced)["tracing"] == "true"
