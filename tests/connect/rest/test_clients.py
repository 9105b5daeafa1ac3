"""Existing clients of Kafka Connect: a library as it is, and the requests of others replayed."""

import json
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import httpx
import pytest

from headrace.connect.plugins import Plugins
from tests.connect.rest.test_connectors_api import SOURCE, eventually
from tests.connect.running import RunningConnect, running_connect


def test_kafka_connect_py_works_unmodified(worker: RunningConnect, name: str) -> None:
    library = pytest.importorskip("kafka_connect", reason="kafka-connect-py is not installed")
    client = library.KafkaConnect(url=str(worker.http.base_url))
    assert client.get_cluster_info()["version"] == "4.3.1"
    made = client.create_connector({"name": name, "config": SOURCE})
    assert made["config"] == {**SOURCE, "name": name}
    eventually(lambda: name in worker.host.plans)
    assert name in client.list_connectors()
    assert client.list_connectors(expand="status", state="RUNNING")[name]
    assert client.get_connector_status(name)["connector"]["state"] == "RUNNING"
    changed = client.update_connector(name, {**SOURCE, "batch.size": "3"})
    assert changed["config"]["batch.size"] == "3"
    assert client.get_connector_config(name)["batch.size"] == "3"
    client.restart_connector(name, include_tasks=True, only_failed=False)
    client.pause_connector(name)
    eventually(lambda: name not in worker.host.plans)
    client.resume_connector(name)
    eventually(lambda: name in worker.host.plans)
    assert [each["id"]["task"] for each in client.list_connector_tasks(name)] == [0]
    assert client.get_connector_task_status(name, 0)["state"] == "RUNNING"
    client.restart_connector_task(name, 0)
    assert client.list_connector_topics(name) == {name: {"topics": []}}
    client.reset_connector_topics(name)
    assert client.list_connector_plugins()
    validated = client.validate_connector_config("FileStreamSource", {**SOURCE, "name": name})
    assert validated["error_count"] == 0
    client.stop_connector(name)
    client.delete_connector(name)
    assert name not in client.list_connectors()


class Call(NamedTuple):
    """A request of a client, and what the client reads of the answer."""

    method: str
    path: str
    status: int
    body: object = None
    fields: frozenset[str] = frozenset()
    """Of the answer, or of the first element of a list."""


def replay(http: httpx.Client, calls: Sequence[Call], name: str) -> None:
    """Sends the requests one after the other. UNTIL waits for a state of the connector."""
    for call in calls:
        if call.method == "UNTIL":
            eventually(partial(has_state, http, name, call.path))
            continue
        answer = http.request(call.method, call.path, json=call.body)
        assert answer.status_code == call.status, f"{call}: {answer.status_code} {answer.text}"
        if call.fields:
            found = answer.json()
            first = found[0] if isinstance(found, list) else found
            assert call.fields <= set(first), f"{call}: {answer.text}"


def has_state(http: httpx.Client, name: str, state: str) -> bool:
    found = http.get(f"/connectors/{name}/status").json()
    return bool(found["connector"]["state"] == state)


@pytest.fixture(scope="module")
def built_in(connect_bootstrap: str) -> Iterator[RunningConnect]:
    """A worker with the connectors that are part of Headrace."""
    with running_connect(connect_bootstrap, plugins=Plugins()) as running:
        yield running


INFO = frozenset({"name", "config", "tasks", "type"})
STATUS = frozenset({"name", "connector", "tasks", "type"})
TASK = frozenset({"id", "state", "worker_id"})
VALIDATED = frozenset({"name", "error_count", "groups", "configs"})
KEY = frozenset({"name", "type", "required", "default_value", "importance", "documentation",
                 "group", "width", "display_name", "dependents", "order"})  # fmt: skip
MESSAGE = frozenset({"message"})
CLASS = "org.apache.kafka.connect.file.FileStreamSourceConnector"
REAL = {"connector.class": CLASS, "topic": "t", "file": "/etc/hostname"}
OFFSET = {"partition": {"filename": "/etc/hostname"}, "offset": {"position": 3}}

KCCTL = [
    Call("GET", "/", 200, fields=frozenset({"version", "commit", "kafka_cluster_id"})),
    Call("GET", "/connector-plugins", 200, fields=frozenset({"class", "type", "version"})),
    Call("GET", "/connector-plugins?connectorsOnly=false", 200, fields=frozenset({"class"})),
    Call("GET", f"/connector-plugins/{CLASS}/config", 200, fields=KEY),
    Call("PUT", f"/connector-plugins/{CLASS}/config/validate", 200, REAL, VALIDATED),
    Call("GET", "/connectors/", 200),
    Call("POST", "/connectors/", 201, {"name": "{name}", "config": REAL}, INFO),
    Call("POST", "/connectors/", 409, {"name": "{name}", "config": REAL}),
    Call("UNTIL", "RUNNING", 0),
    Call("GET", "/connectors/{name}", 200, fields=INFO),
    Call("GET", "/connectors?expand=info&expand=status", 200),
    Call("GET", "/connectors/{name}/status", 200, fields=STATUS),
    Call("GET", "/connectors/{name}/topics", 200),
    Call("GET", "/connectors/{name}/config", 200, fields=frozenset({"name", "file"})),
    Call("PUT", "/connectors/{name}/config", 200, {**REAL, "tasks.max": "2"}, INFO),
    Call("PATCH", "/connectors/{name}/config", 200, {"tasks.max": None}, INFO),
    Call("POST", "/connectors/{name}/restart", 204),
    Call("POST", "/connectors/{name}/restart?includeTasks=true&onlyFailed=false", 202,
         fields=STATUS),
    Call("POST", "/connectors/{name}/restart?includeTasks=false&onlyFailed=true", 202,
         fields=STATUS),
    Call("UNTIL", "RUNNING", 0),
    Call("POST", "/connectors/{name}/tasks/0/restart", 204),
    Call("PUT", "/connectors/{name}/pause", 202),
    Call("UNTIL", "PAUSED", 0),
    Call("PUT", "/connectors/{name}/resume", 202),
    Call("UNTIL", "RUNNING", 0),
    Call("GET", "/connectors/{name}/offsets", 200, fields=frozenset({"offsets"})),
    Call("PATCH", "/connectors/{name}/offsets", 400, {"offsets": [OFFSET]}, MESSAGE),
    Call("PUT", "/connectors/{name}/stop", 204),
    Call("UNTIL", "STOPPED", 0),
    Call("PATCH", "/connectors/{name}/offsets", 200, {"offsets": [OFFSET]}, MESSAGE),
    Call("DELETE", "/connectors/{name}/offsets", 200, fields=MESSAGE),
    Call("GET", "/connectors/{name}/tasks-config", 404),
    Call("GET", "/admin/loggers/", 200),
    Call("PUT", "/admin/loggers/org.kcctl", 200, {"level": "DEBUG"}),
    Call("PUT", "/admin/loggers/org.kcctl?scope=cluster", 204, {"level": "INFO"}),
    Call("GET", "/admin/loggers/org.kcctl", 200, fields=frozenset({"level", "last_modified"})),
    Call("DELETE", "/connectors/{name}", 204),
]  # fmt: skip
"""The methods of kcctl's KafkaConnectApi; tasks-config is gone since Kafka 4.0."""

TERRAFORM = [
    Call("POST", "/connectors", 201,
         {"name": "{name}", "config": {**REAL, "name": "{name}"}}, INFO),
    Call("UNTIL", "RUNNING", 0),
    Call("GET", "/connectors/{name}", 200, fields=INFO),
    Call("GET", "/connectors/{name}/status", 200, fields=STATUS),
    Call("PUT", "/connectors/{name}/config", 200, {**REAL, "name": "{name}"}, INFO),
    Call("PUT", "/connectors/{name}/pause", 202),
    Call("UNTIL", "PAUSED", 0),
    Call("PUT", "/connectors/{name}/resume", 202),
    Call("UNTIL", "RUNNING", 0),
    Call("POST", "/connectors/{name}/restart", 204),
    Call("DELETE", "/connectors/{name}", 204),
    Call("GET", "/connectors/{name}", 404, fields=frozenset({"error_code", "message"})),
    Call("GET", "/connectors/{name}/status", 404, fields=frozenset({"error_code", "message"})),
]  # fmt: skip
"""The resources of a connector and of its state, and the tests of deletion."""

KAFKA_UI = [
    Call("GET", "/connectors", 200),
    Call("GET", "/connector-plugins", 200, fields=frozenset({"class"})),
    Call("PUT", "/connector-plugins/FileStreamSource/config/validate", 200, REAL, VALIDATED),
    Call("POST", "/connectors", 201, {"name": "{name}", "config": REAL}, INFO),
    Call("UNTIL", "RUNNING", 0),
    Call("GET", "/connectors/{name}", 200, fields=INFO),
    Call("GET", "/connectors/{name}/config", 200, fields=frozenset({"file"})),
    Call("PUT", "/connectors/{name}/config", 200, {**REAL, "tasks.max": 1}, INFO),
    Call("GET", "/connectors/{name}/status", 200, fields=STATUS),
    Call("GET", "/connectors/{name}/topics", 200),
    Call("UNTIL", "RUNNING", 0),
    Call("GET", "/connectors/{name}/tasks", 200, fields=frozenset({"id", "config"})),
    Call("GET", "/connectors/{name}/tasks/0/status", 200, fields=TASK),
    Call("POST", "/connectors/{name}/tasks/0/restart", 204),
    Call("POST", "/connectors/{name}/restart", 204),
    Call("PUT", "/connectors/{name}/pause", 202),
    Call("PUT", "/connectors/{name}/resume", 202),
    Call("DELETE", "/connectors/{name}", 204),
]
"""The operations of its contract for Kafka Connect."""


@pytest.mark.parametrize(
    "calls", [KCCTL, TERRAFORM, KAFKA_UI], ids=["kcctl", "terraform", "kafka-ui"]
)
@pytest.mark.parametrize("slash", ["", "/"])
def test_the_calls_of_clients_are_answered(
    built_in: RunningConnect, name: str, calls: list[Call], slash: str
) -> None:
    """Each list as it is, and with a slash at the end of every path."""
    replay(built_in.http, [for_connector(call, name, slash) for call in calls], name)


def for_connector(call: Call, name: str, slash: str) -> Call:
    path, mark, query = call.path.replace("{name}", name).partition("?")
    if call.method != "UNTIL" and not path.endswith("/"):
        path += slash
    body = json.loads(json.dumps(call.body).replace("{name}", name))
    return call._replace(path=f"{path}{mark}{query}", body=body)


def test_terraform_finds_the_configuration_that_it_has_sent_plus_the_name(
    worker: RunningConnect, name: str
) -> None:
    sent = {**SOURCE, "tasks.max": "1", "key.converter.schemas.enable": "false"}
    sent["key.converter"] = "org.apache.kafka.connect.json.JsonConverter"
    made = worker.http.post("/connectors", json={"name": name, "config": {**sent, "name": name}})
    assert made.status_code == 201
    assert worker.http.get(f"/connectors/{name}").json()["config"] == {**sent, "name": name}
    changed = {**sent, "name": name, "batch.size": "9"}
    assert worker.http.put(f"/connectors/{name}/config", json=changed).json()["config"] == changed
    assert worker.http.get(f"/connectors/{name}").json()["config"] == changed


@pytest.mark.parametrize("text", ["ä ö", "a/b", "a%b", "a?b"])
def test_a_name_may_have_any_characters_that_a_path_can_escape(
    worker: RunningConnect, text: str
) -> None:
    from urllib.parse import quote

    name = f"{text}-{uuid.uuid4().hex[:6]}"
    body = json.dumps({"name": name, "config": SOURCE}, ensure_ascii=False).encode()
    made = worker.http.post(
        "/connectors", content=body, headers={"content-type": "application/json"}
    )
    assert made.status_code == 201
    assert made.headers["location"].endswith(quote(name, safe=""))
    path = f"/connectors/{quote(name, safe='')}"
    assert worker.http.get(path).json()["name"] == name
    assert worker.http.delete(path).status_code == 204


def test_secrets_of_clients_are_hidden_too(worker: RunningConnect, name: str) -> None:
    secret = {"producer.override.sasl.jaas.config": "x required password='s3cret';"}
    made = worker.http.put(f"/connectors/{name}/config", json={**SOURCE, **secret})
    assert made.json()["config"]["producer.override.sasl.jaas.config"] == "[hidden]"
    assert "s3cret" not in worker.http.get(f"/connectors/{name}").text
