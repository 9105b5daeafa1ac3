"""The same requests to Apache Kafka's own Connect worker and to ours; the answers are compared.

`DIFFERENT` lists the requests whose answers differ on purpose, and why.
"""

import re
import time
from collections.abc import Iterator
from typing import NamedTuple

import httpx
import pytest

from headrace.client.cluster import Cluster
from headrace.client.config import client_config
from headrace.connect.adoption import ConnectIsRunning, adoptable
from tests.connect.running import RunningConnect, running_connect
from tests.support.java import kafka_version, missing
from tests.support.kafka_connect_worker import KafkaConnectWorker

pytestmark = [pytest.mark.java, pytest.mark.slow]


class Ask(NamedTuple):
    """One request. With `until`, it is repeated until the connector or worker has this state."""

    method: str
    path: str
    body: object = None
    until: str = ""


HEALTHY = "healthy"
SOURCE = {"connector.class": "FileStreamSource", "topic": "t1", "file": "/nowhere/in.txt"}
SINK = {"connector.class": "FileStreamSink", "topics": "t1,t2", "file": "/tmp/never-written"}
PARTITION = {"filename": "/nowhere/in.txt"}
AT_3 = {"offsets": [{"partition": PARTITION, "offset": {"position": 3}}]}
NO_OFFSET = {"offsets": [{"partition": PARTITION, "offset": None}]}


def sink_offset(partition: object, offset: object) -> dict[str, object]:
    return {"offsets": [{"partition": partition, "offset": offset}]}


LIFE_OF_A_SOURCE = [
    Ask("GET", "/health", until=HEALTHY),
    Ask("GET", "/connectors"),
    Ask("POST", "/connectors", {"name": "s1", "config": SOURCE}),
    Ask("GET", "/connectors/s1/status", until="RUNNING"),
    Ask("GET", "/connectors/s1"),
    Ask("GET", "/connectors/s1/"),
    Ask("GET", "/connectors/s1/tasks/0/status"),
    Ask("GET", "/connectors/s1/tasks/7/status"),
    Ask("GET", "/connectors/s1/config"),
    Ask("GET", "/connectors?expand=status&expand=info&expand=x"),
    Ask("POST", "/connectors", {"name": "s1", "config": SOURCE}),
    Ask("PUT", "/connectors/s1/config", {**SOURCE, "name": "x"}),
    Ask("PUT", "/connectors/s1/config", {**SOURCE, "tasks.max": 1, "batch.size": 7}),
    Ask("PATCH", "/connectors/s1/config", {"batch.size": None, "errors.log.enable": True}),
    Ask("GET", "/connectors/s1/config"),
    Ask("GET", "/connectors/s1/status", until="RUNNING"),
    Ask("POST", "/connectors/s1/restart"),
    Ask("GET", "/connectors/s1/status", until="RUNNING"),
    Ask("POST", "/connectors/s1/restart?includeTasks=true&onlyFailed=true"),
    Ask("POST", "/connectors/s1/restart?includeTasks=true"),
    Ask("GET", "/connectors/s1/status", until="RUNNING"),
    Ask("POST", "/connectors/s1/tasks/0/restart"),
    Ask("POST", "/connectors/s1/tasks/9/restart"),
    Ask("PUT", "/connectors/s1/pause"),
    Ask("PUT", "/connectors/s1/pause"),
    Ask("GET", "/connectors/s1/status", until="PAUSED"),
    Ask("PUT", "/connectors/s1/resume"),
    Ask("GET", "/connectors/s1/status", until="RUNNING"),
    Ask("GET", "/connectors/s1/offsets"),
    Ask("PATCH", "/connectors/s1/offsets", AT_3),
    Ask("DELETE", "/connectors/s1/offsets"),
    Ask("PUT", "/connectors/s1/stop"),
    Ask("GET", "/connectors/s1/status", until="STOPPED"),
    Ask("GET", "/connectors/s1"),
    Ask("GET", "/connectors/s1/tasks"),
    Ask("PATCH", "/connectors/s1/offsets", AT_3),
    Ask("GET", "/connectors/s1/offsets"),
    Ask("PATCH", "/connectors/s1/offsets", NO_OFFSET),
    Ask("GET", "/connectors/s1/offsets"),
    Ask("PATCH", "/connectors/s1/offsets", {"offsets": []}),
    Ask("PATCH", "/connectors/s1/offsets", {}),
    Ask("DELETE", "/connectors/s1/offsets"),
    Ask("GET", "/connectors/s1/topics"),
    Ask("PUT", "/connectors/s1/topics/reset"),
    Ask("PUT", "/connectors/s3/config", {**SOURCE, "topic": "t3"}),
    Ask("DELETE", "/connectors/s1"),
    Ask("DELETE", "/connectors/s3"),
    Ask("GET", "/connectors"),
]

LIFE_OF_A_SINK = [
    Ask("POST", "/connectors", {"name": "k1", "initial_state": "STOPPED", "config": SINK}),
    Ask("GET", "/connectors/k1/status", until="STOPPED"),
    Ask("GET", "/connectors/k1/offsets"),
    *(
        Ask("PATCH", "/connectors/k1/offsets", sink_offset(partition, offset))
        for partition, offset in (
            ({"kafka_topic": "t1"}, {"kafka_offset": 1}),
            ({"kafka_topic": None, "kafka_partition": 0}, {"kafka_offset": 1}),
            ({"kafka_topic": "t1", "kafka_partition": None}, {"kafka_offset": 1}),
            ({"kafka_topic": "t1", "kafka_partition": "x"}, {"kafka_offset": 1}),
            ({"kafka_topic": "t1", "kafka_partition": 0}, {"offset": 1}),
            ({"kafka_topic": "t1", "kafka_partition": 0}, {"kafka_offset": "x"}),
        )
    ),
    Ask("DELETE", "/connectors/k1"),
]

UNKNOWN = [
    *(
        Ask("GET", f"/connectors/nope{path}")
        for path in ("", "/config", "/status", "/tasks", "/tasks/0/status", "/offsets", "/topics")
    ),
    *(Ask("PUT", f"/connectors/nope/{action}") for action in ("pause", "resume", "stop")),
    Ask("POST", "/connectors/nope/restart"),
    Ask("POST", "/connectors/nope/restart?includeTasks=true"),
    Ask("POST", "/connectors/nope/tasks/0/restart"),
    Ask("DELETE", "/connectors/nope"),
    Ask("PATCH", "/connectors/nope/config", {"batch.size": "10"}),
    Ask("PATCH", "/connectors/nope/offsets", NO_OFFSET),
    Ask("DELETE", "/connectors/nope/offsets"),
    Ask("GET", "/connectors/s1/tasks-config"),
    Ask("GET", "/bogus"),
    Ask("GET", "/connector-plugins/Nope/config"),
]

INVALID = [
    Ask("POST", "/connectors", {"name": "s2", "config": {"connector.class": "FileStreamSource"}}),
    Ask("POST", "/connectors", {"name": "s2", "config": {}}),
    Ask("POST", "/connectors", {"config": SOURCE}),
    Ask("POST", "/connectors", {"name": "s2", "config": {**SOURCE, "name": "other"}}),
    Ask("POST", "/connectors", {"name": "s2", "config": {**SOURCE, "tasks.max": "0"}}),
    Ask("POST", "/connectors", {"name": "s2", "config": {**SINK, "topics.regex": "x"}}),
    Ask("PUT", "/connector-plugins/FileStreamSink/config/validate", SOURCE),
]

LOGGERS = [
    Ask("GET", "/admin/loggers/org.nobody.has.this"),
    Ask("PUT", "/admin/loggers/org.foo", {"level": "DEBUG"}),
    Ask("GET", "/admin/loggers/org.foo"),
    Ask("PUT", "/admin/loggers/org.foo", {"level": "BAD"}),
    Ask("PUT", "/admin/loggers/org.foo", {}),
    Ask("PUT", "/admin/loggers/org.foo?scope=cluster", {"level": "WARN"}),
]

DIFFERENT = {
    ("POST", "/connectors", "nojson"): "a malformed body is the client's mistake: 400, not 500",
    ("POST", "/connectors", "[]"): "the same",
    ("POST", "/connectors", '{"name":"s2"}'): "the same; theirs is a NullPointerException",
    ("PUT", "/connector-plugins/FileStreamSink/config/validate", "{}"): "the same",
    ("PUT", "/connectors", "{}"): "405: ours also names the method and the path",
}


@pytest.fixture(scope="module")
def kafka_connect(
    connect_bootstrap: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaConnectWorker]:
    if reason := missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("kafka-connect")
    with KafkaConnectWorker(connect_bootstrap, folder) as running:
        yield running


@pytest.fixture
def theirs(kafka_connect: KafkaConnectWorker) -> httpx.Client:
    return kafka_connect.http


def answer(http: httpx.Client, ask: Ask) -> tuple[int, object, str]:
    """Status, body and `Location`, without what is different on every worker."""
    deadline = time.monotonic() + 60
    while True:
        found = http.request(ask.method, ask.path, json=ask.body)
        if ask.until == HEALTHY and found.json()["status"] == HEALTHY:
            break
        state = found.json().get("connector", {}).get("state") if ask.until else ""
        tasks = found.json().get("tasks", ()) if ask.until else ()
        has_tasks = bool(tasks) or ask.until != "RUNNING"
        if state == ask.until and has_tasks and all(each["state"] == state for each in tasks):
            break
        assert time.monotonic() < deadline, f"{ask}: {found.text}"
        time.sleep(0.1)
    address = f"{http.base_url.host}:{http.base_url.port}"
    location = found.headers.get("location", "").replace(address, "HOST")
    return found.status_code, _normal(found.json() if found.content else None, address), location


def _normal(value: object, address: str) -> object:
    if isinstance(value, dict):
        return {
            name: "VERSION" if name == "version" else _normal(each, address)
            for name, each in value.items()
            if name not in ("progress", "last_modified")
        }
    if isinstance(value, list):
        return [_normal(each, address) for each in value]
    return value.replace(address, "HOST") if isinstance(value, str) else value


@pytest.mark.parametrize("asks", [LIFE_OF_A_SOURCE, LIFE_OF_A_SINK, UNKNOWN, INVALID, LOGGERS])
def test_the_answers_are_those_of_kafka_connect(
    theirs: httpx.Client, quiet_worker: RunningConnect, asks: list[Ask]
) -> None:
    for number, ask in enumerate(asks):
        expected = answer(theirs, ask)
        assert answer(quiet_worker.http, ask) == expected, f"request {number}: {ask}"


def test_the_version_is_that_of_the_compared_kafka_connect(
    theirs: httpx.Client, quiet_worker: RunningConnect
) -> None:
    versions = [http.get("/").json()["version"] for http in (theirs, quiet_worker.http)]
    assert versions == [kafka_version()] * 2
    assert set(theirs.get("/").json()) == set(quiet_worker.http.get("/").json())


@pytest.mark.parametrize(("request_line", "why"), DIFFERENT.items())
def test_the_differences_are_those_of_the_table(
    theirs: httpx.Client,
    quiet_worker: RunningConnect,
    request_line: tuple[str, str, str],
    why: str,
) -> None:
    method, path, body = request_line
    kind = {"content-type": "application/json"}
    other = theirs.request(method, path, content=body, headers=kind)
    ours = quiet_worker.http.request(method, path, content=body, headers=kind)
    assert (other.status_code, other.text) != (ours.status_code, ours.text), why
    assert ours.status_code < 500
    assert set(ours.json()) == {"error_code", "message"}


VALIDATED = [
    ("FileStreamSink", {**SINK, "name": "x"}),
    ("FileStreamSink", {"connector.class": "FileStreamSink", "tasks.max": "0", "name": ""}),
    ("FileStreamSink", {**SINK, "topics.regex": "a", "errors.tolerance": "some", "name": "x"}),
    ("FileStreamSource", {"connector.class": "FileStreamSource", "transforms": "a,a"}),
    ("FileStreamSource", {**SOURCE, "name": "x", "exactly.once.support": "maybe"}),
    ("FileStreamSource", {**SOURCE, "name": "x", "transaction.boundary": "maybe"}),
    ("FileStreamSource", {**SOURCE, "name": "x", "errors.log.enable": "maybe"}),
]
VERSIONS = re.compile(r".*\.plugin\.version")


def infos(http: httpx.Client, plugin: str, config: dict[str, str]) -> dict[str, object]:
    """The values and definitions by name, without texts that are ours and versions."""
    path = f"/connector-plugins/{plugin}/config/validate"
    found: dict[str, object] = {}
    for each in http.put(path, json=config).json()["configs"]:
        value, definition = each["value"], each["definition"]
        if VERSIONS.fullmatch(value["name"]):
            continue
        value.pop("recommended_values")
        definition.pop("documentation")
        # Ours has both names.
        if "order" not in definition or "order_in_group" not in definition:
            order = definition.get("order", definition.get("order_in_group"))
            definition |= {"order": order, "order_in_group": order}
        found[value["name"]] = (value, definition)
    return found


OURS_ONLY = {
    "poll.interval.ms",
    "headrace.driver",
    "headrace.batch.max.rows",
    "headrace.spool.max.bytes",
    "key.schema",
    "value.schema",
    "errors.deadletterqueue.topic.name",
    "errors.deadletterqueue.topic.replication.factor",
    "errors.deadletterqueue.context.headers.enable",
}
"""Options that Kafka Connect has not, or not for sources."""


@pytest.mark.parametrize(("plugin", "config"), VALIDATED)
def test_validation_answers_as_kafka_connect_does(
    theirs: httpx.Client, quiet_worker: RunningConnect, plugin: str, config: dict[str, str]
) -> None:
    expected, found = infos(theirs, plugin, config), infos(quiet_worker.http, plugin, config)
    assert set(found) - set(expected) <= OURS_ONLY
    for name, each in expected.items():
        assert found[name] == each, name


def test_a_stopped_cluster_is_taken_over_with_its_connectors_states_and_offsets(
    kafka_connect: KafkaConnectWorker, connect_bootstrap: str
) -> None:
    """Stops the worker of Kafka Connect, so it is the last test of this module."""
    http = kafka_connect.http
    adopted = {**SOURCE, "connector.class": "FileStreamSource"}
    body = {"name": "adopted", "initial_state": "STOPPED", "config": adopted}
    assert http.post("/connectors", json=body).status_code == 201
    answer(http, Ask("GET", "/connectors/adopted/status", until="STOPPED"))
    assert http.patch("/connectors/adopted/offsets", json=AT_3).status_code == 200
    http.post("/connectors", json={"name": "paused", "initial_state": "PAUSED", "config": SINK})
    http.post("/connectors", json={"name": "running", "config": SOURCE})
    answer(http, Ask("GET", "/connectors/paused/status", until="PAUSED"))
    answer(http, Ask("GET", "/connectors/running/status", until="RUNNING"))
    infos_there = http.get("/connectors?expand=info").json()
    with Cluster(client_config({"bootstrap.servers": connect_bootstrap})) as cluster:
        config_topic = kafka_connect.topics["config.storage.topic"]
        with pytest.raises(ConnectIsRunning, match="1 workers"):
            adoptable(cluster, config_topic, kafka_connect.group)
        kafka_connect.stop()
        found = adoptable(cluster, config_topic, kafka_connect.group)
    assert [(each.name, each.state, each.problems) for each in found] == [
        ("adopted", "STOPPED", []),
        ("paused", "PAUSED", []),
        ("running", "STARTED", []),
    ]
    with running_connect(connect_bootstrap, kafka_connect.topics) as ours:
        here = ours.http.get("/connectors?expand=info").json()
        assert {name: each["info"]["config"] for name, each in here.items()} == {
            name: each["info"]["config"] for name, each in infos_there.items()
        }
        assert ours.http.get("/connectors/adopted/offsets").json() == AT_3
        for name, state in (("adopted", "STOPPED"), ("paused", "PAUSED"), ("running", "RUNNING")):
            answer(ours.http, Ask("GET", f"/connectors/{name}/status", until=state))
        assert list(ours.host.plans) == ["running"]
        assert ours.http.patch("/connectors/adopted/offsets", json=NO_OFFSET).status_code == 200
        assert ours.http.get("/connectors/adopted/offsets").json() == {"offsets": []}
