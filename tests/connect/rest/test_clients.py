"""Existing clients of Kafka Connect: a library as it is, and the requests of others replayed."""

import json
import uuid

import pytest

from tests.connect.rest.test_connectors_api import SOURCE, eventually
from tests.connect.running import RunningConnect


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


def test_kcctl_sends_every_path_with_a_trailing_slash(worker: RunningConnect, name: str) -> None:
    http = worker.http
    assert set(http.get("/").json()) == {"version", "commit", "kafka_cluster_id"}
    assert http.put(f"/connectors/{name}/config/", json=SOURCE).status_code == 201
    eventually(lambda: name in worker.host.plans)
    for path in ("", "/config", "/status", "/tasks", "/topics", "/offsets"):
        assert http.get(f"/connectors/{name}{path}/").status_code == 200, path
    assert http.get("/connectors/?expand=info&expand=status").json()[name]["info"]
    assert http.post(f"/connectors/{name}/restart/").status_code == 204
    assert http.put(f"/connectors/{name}/pause/").status_code == 202
    assert http.put(f"/connectors/{name}/resume/").status_code == 202
    assert http.get("/connector-plugins/").status_code == 200
    assert http.get("/admin/loggers/").status_code == 200
    assert http.delete(f"/connectors/{name}/").status_code == 204


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


def test_kafka_ui_reads_states_tasks_and_definitions(worker: RunningConnect, name: str) -> None:
    worker.http.put(f"/connectors/{name}/config", json=SOURCE)
    eventually(lambda: name in worker.host.plans)
    status = worker.http.get(f"/connectors/{name}/status").json()
    assert {"name", "connector", "tasks", "type"} <= set(status)
    assert {"state", "worker_id"} <= set(status["connector"])
    path = "/connector-plugins/FileStreamSourceConnector/config/validate"
    found = worker.http.put(path, json={**SOURCE, "name": name}).json()
    assert {"name", "error_count", "groups", "configs"} == set(found)
    for each in found["configs"]:
        assert {"definition", "value"} == set(each)
        assert {"name", "value", "recommended_values", "errors", "visible"} == set(each["value"])


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
