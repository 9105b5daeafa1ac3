"""Offsets and topics of connectors over REST."""

import httpx
import pytest

from headrace.client.cluster import Cluster
from headrace.client.config import client_config
from headrace.client.topics import create_topics
from headrace.connect.hosting import HostedStatus, RunState
from tests.connect.rest.test_connectors_api import SOURCE, create, eventually
from tests.connect.running import RunningConnect, running_connect

SINK = {"connector.class": "FileStreamSink", "topics": "numbers", "file": "f"}


def offsets(http: httpx.Client, name: str) -> object:
    return http.get(f"/connectors/{name}/offsets").json()["offsets"]


def test_offsets_of_a_source_are_altered_removed_and_reset_while_it_is_stopped(
    worker: RunningConnect, name: str
) -> None:
    create(worker.http, name)
    eventually(lambda: name in worker.host.plans)
    url = f"/connectors/{name}/offsets"
    entries = [
        {"partition": {"file": "a"}, "offset": {"position": 3}},
        {"partition": {"file": "b"}, "offset": {"position": 4}},
    ]
    refused = worker.http.patch(url, json={"offsets": entries})
    assert refused.status_code == 400
    assert refused.json()["message"].startswith("Connectors must be in the STOPPED state")
    worker.http.put(f"/connectors/{name}/stop")
    assert worker.http.patch(url, json={"offsets": entries}).json() == {
        "message": "The offsets for this connector have been altered successfully"
    }
    assert offsets(worker.http, name) == entries
    removed = {"offsets": [{"partition": {"file": "a"}, "offset": None}]}
    assert worker.http.patch(url, json=removed).status_code == 200
    assert offsets(worker.http, name) == entries[1:]
    worker.http.put(f"/connectors/{name}/resume")
    eventually(lambda: name in worker.host.plans)
    plan = worker.host.plans[name]
    assert plan.generation == 2
    worker.http.put(f"/connectors/{name}/stop")
    assert worker.http.delete(url).json() == {
        "message": "The offsets for this connector have been reset successfully"
    }
    assert offsets(worker.http, name) == []
    worker.http.put(f"/connectors/{name}/resume")
    eventually(lambda: name in worker.host.plans)
    plan = worker.host.plans[name]
    assert plan.generation == 3


def test_offsets_of_a_sink_are_those_of_its_consumer_group(
    worker: RunningConnect, connect_bootstrap: str, name: str
) -> None:
    with Cluster(client_config({"bootstrap.servers": connect_bootstrap})) as cluster:
        assert not create_topics(cluster, ["n"], partitions=2, replication_factor=1)
    body = {"name": name, "initial_state": "STOPPED", "config": SINK}
    assert worker.http.post("/connectors", json=body).status_code == 201
    url = f"/connectors/{name}/offsets"
    assert offsets(worker.http, name) == []
    entries = [
        {"partition": {"kafka_topic": "n", "kafka_partition": part}, "offset": {"kafka_offset": 5}}
        for part in (0, 1)
    ]
    assert worker.http.patch(url, json={"offsets": entries}).status_code == 200
    assert offsets(worker.http, name) == entries
    removed = {"offsets": [{**entries[0], "offset": None}]}
    assert worker.http.patch(url, json=removed).status_code == 200
    assert offsets(worker.http, name) == entries[1:]
    worker.http.put(f"/connectors/{name}/resume")
    eventually(lambda: name in worker.host.plans)
    plan = worker.host.plans[name]
    assert plan.generation == 1
    worker.http.put(f"/connectors/{name}/stop")
    assert worker.http.delete(url).status_code == 200
    assert offsets(worker.http, name) == []


def test_a_sink_with_other_topics_begins_a_new_generation_and_other_options_do_not(
    worker: RunningConnect, name: str
) -> None:
    worker.http.put(f"/connectors/{name}/config", json=SINK)
    eventually(lambda: name in worker.host.plans)
    assert worker.host.plans[name].generation == 0
    worker.http.patch(f"/connectors/{name}/config", json={"file": "g"})
    eventually(lambda: worker.host.plans[name].config["file"] == "g")
    assert worker.host.plans[name].generation == 0
    worker.http.patch(f"/connectors/{name}/config", json={"topics": "a,b"})
    eventually(lambda: worker.host.plans[name].generation == 1)


def test_topics_in_use_are_recorded_and_reset(worker: RunningConnect, name: str) -> None:
    worker.host.answers[name] = HostedStatus(RunState.RUNNING, topics=("t", "u"), tasks=1)
    create(worker.http, name, tasks_max="4")
    url = f"/connectors/{name}/topics"
    eventually(lambda: len(worker.http.get(url).json()[name]["topics"]) == 2)
    assert sorted(worker.http.get(url).json()[name]["topics"]) == ["t", "u"]
    eventually(lambda: len(worker.http.get(f"/connectors/{name}/tasks").json()) == 1)
    worker.host.answers[name] = HostedStatus(RunState.RUNNING)
    worker.http.put(f"/connectors/{name}/pause")
    assert worker.http.put(f"{url}/reset").status_code == 202
    eventually(lambda: worker.http.get(url).json() == {name: {"topics": []}})


@pytest.mark.parametrize(
    ("settings", "path", "method", "message"),
    [
        ({"topic.tracking.enable": "false"}, "topics", "GET", "Topic tracking is disabled."),
        (
            {"topic.tracking.allow.reset": "false"},
            "topics/reset",
            "PUT",
            "Topic tracking reset is disabled.",
        ),
    ],
)
def test_tracking_of_topics_can_be_switched_off(
    connect_bootstrap: str, settings: dict[str, str], path: str, method: str, message: str
) -> None:
    with running_connect(connect_bootstrap, settings=settings) as running:
        answer = running.http.request(method, f"/connectors/x/{path}")
        assert (answer.status_code, answer.json()["message"]) == (403, message)


def test_literal_passwords_are_hidden_in_responses_and_kept_when_they_are_sent_back(
    connect_bootstrap: str, worker: RunningConnect, name: str
) -> None:
    config = {"connector.class": "LockedSink", "topics": "t", "url": "u", "password": "s3cret"}
    made = worker.http.put(f"/connectors/{name}/config", json=config)
    assert made.json()["config"]["password"] == "[hidden]"
    for path in ("", "/config", "/tasks"):
        assert "s3cret" not in worker.http.get(f"/connectors/{name}{path}").text
    shown = worker.http.get(f"/connectors/{name}/config").json()
    worker.http.put(f"/connectors/{name}/config", json={**shown, "url": "v"})
    eventually(lambda: worker.host.plans[name].config["url"] == "v")
    assert worker.host.plans[name].config["password"] == "s3cret"
    with running_connect(connect_bootstrap, worker.topics, {"secrets.show": "true"}) as open_one:
        found = open_one.http.get(f"/connectors/{name}/config").json()
        assert found["password"] == "s3cret"


def test_a_source_is_found_by_its_alias(worker: RunningConnect, name: str) -> None:
    java = "org.apache.kafka.connect.file.FileStreamSourceConnector"
    answer = worker.http.put(f"/connectors/{name}/config", json={**SOURCE, "connector.class": java})
    assert answer.json()["config"]["connector.class"] == java
    assert answer.json()["type"] == "source"
