"""The life of a connector over REST, on a real broker; the host is a stand-in."""

import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from headrace.connect.hosting import HostedStatus, Progress, RunState
from tests.connect.running import RunningConnect, running_connect, topic_settings

SOURCE = {"connector.class": "FileStreamSource", "topic": "t", "file": "f"}


def eventually(found: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not found():
        assert time.monotonic() < deadline, "it did not happen within a minute"
        time.sleep(0.02)


def create(http: httpx.Client, name: str, **config: str) -> httpx.Response:
    options = {option.replace("_", "."): text for option, text in config.items()}
    return http.post("/connectors", json={"name": name, "config": {**SOURCE, **options}})


def test_a_created_connector_is_started_and_shown_exactly_as_it_was_given(
    worker: RunningConnect, name: str
) -> None:
    made = create(worker.http, name, tasks_max="2")
    config = {**SOURCE, "tasks.max": "2", "name": name}
    assert made.status_code == 201
    assert made.headers["location"] == f"{worker.http.base_url}/connectors/{name}"
    assert made.json() == {"name": name, "config": config, "tasks": [], "type": "source"}
    eventually(lambda: name in worker.host.plans)
    plan = worker.host.plans[name]
    assert plan.config["topic"] == "t"
    assert plan.config["value.converter"] == "org.apache.kafka.connect.json.JsonConverter"
    found = worker.http.get(f"/connectors/{name}/").json()
    assert found["config"] == config
    assert found["tasks"] == [{"connector": name, "task": 0}, {"connector": name, "task": 1}]
    assert name in worker.http.get("/connectors").json()
    assert worker.http.get(f"/connectors/{name}/config").json() == config


def test_the_state_is_what_the_host_says_at_the_moment_of_asking(
    worker: RunningConnect, name: str
) -> None:
    worker.host.answers[name] = HostedStatus(RunState.UNASSIGNED)
    create(worker.http, name)
    url = f"/connectors/{name}/status"
    assert worker.http.get(url).json()["connector"]["state"] == "UNASSIGNED"
    progress = Progress(7, 2, 1000, 1, 5000)
    worker.host.answers[name] = HostedStatus(RunState.FAILED, "no such table", progress)
    eventually(lambda: worker.http.get(url).json()["connector"]["state"] == "FAILED")
    found = worker.http.get(url).json()
    assert found["connector"]["trace"] == "no such table"
    assert found["tasks"][0]["state"] == "FAILED"
    assert found["progress"] == {
        "records": 7,
        "lag": 2,
        "last_record_at": 1000,
        "restarts": 1,
        "next_try_at": 5000,
        "failed_records": 0,
    }
    expanded = worker.http.get("/connectors?expand=status&expand=info&expand=other").json()[name]
    assert set(expanded) == {"status", "info"}


def test_a_connector_that_the_host_refuses_is_failed_with_the_reason(
    worker: RunningConnect, name: str
) -> None:
    worker.host.refuses.add(name)
    create(worker.http, name)
    url = f"/connectors/{name}/status"
    eventually(lambda: worker.http.get(url).json()["connector"]["state"] == "FAILED")
    assert "no room" in worker.http.get(url).json()["connector"]["trace"]


def test_a_connector_that_could_not_be_started_because_of_the_cluster_is_started_later(
    worker: RunningConnect, name: str
) -> None:
    worker.host.unreachable.add(name)
    create(worker.http, name)
    url = f"/connectors/{name}/status"
    eventually(lambda: "trace" in worker.http.get(url).json()["connector"])
    found = worker.http.get(url).json()["connector"]
    assert (found["state"], found["trace"]) == ("RESTARTING", "no broker responds")
    worker.host.unreachable.discard(name)
    eventually(lambda: worker.http.get(url).json()["connector"]["state"] == "RUNNING")


def test_pause_resume_and_stop_reach_the_host_and_may_be_repeated(
    worker: RunningConnect, name: str
) -> None:
    create(worker.http, name)
    eventually(lambda: name in worker.host.plans)
    for _ in range(2):
        assert worker.http.put(f"/connectors/{name}/pause").status_code == 202
    eventually(lambda: name not in worker.host.plans)
    found = worker.http.get(f"/connectors/{name}/status").json()
    assert (found["connector"]["state"], found["tasks"][0]["state"]) == ("PAUSED", "PAUSED")
    assert worker.http.put(f"/connectors/{name}/resume").status_code == 202
    eventually(lambda: name in worker.host.plans)
    for _ in range(2):
        assert worker.http.put(f"/connectors/{name}/stop").status_code == 204
    eventually(lambda: worker.http.get(f"/connectors/{name}/tasks").json() == [])
    found = worker.http.get(f"/connectors/{name}/status").json()
    assert (found["connector"]["state"], found["tasks"]) == ("STOPPED", [])


def test_a_changed_config_restarts_the_connector_and_an_equal_one_does_not(
    worker: RunningConnect, name: str
) -> None:
    create(worker.http, name)
    eventually(lambda: name in worker.host.plans)
    url = f"/connectors/{name}/config"
    changed = worker.http.put(url, json={**SOURCE, "batch.size": 10})
    assert (changed.status_code, changed.json()["config"]["batch.size"]) == (200, "10")
    eventually(lambda: worker.host.plans[name].config.get("batch.size") == "10")
    starts = worker.host.calls.count(("start", name))
    patched = worker.http.patch(url, json={"batch.size": None, "file": "g"})
    assert patched.json()["config"] == {**SOURCE, "file": "g", "name": name}
    eventually(lambda: worker.host.plans[name].config["file"] == "g")
    assert worker.http.put(url, json={**SOURCE, "file": "g"}).status_code == 200
    worker.http.delete(f"/connectors/{name}")
    assert worker.host.calls.count(("start", name)) == starts + 1
    assert worker.host.calls[-1] == ("delete", name)


def test_restart_starts_the_query_again_unless_only_failed_ones_are_wanted(
    worker: RunningConnect, name: str
) -> None:
    create(worker.http, name)
    eventually(lambda: name in worker.host.plans)
    before = worker.host.calls.count(("start", name))
    url = f"/connectors/{name}/restart"
    kept = worker.http.post(url + "?includeTasks=true&onlyFailed=true")
    assert (kept.status_code, kept.json()["connector"]["state"]) == (202, "RUNNING")
    assert worker.host.calls.count(("start", name)) == before
    assert worker.http.post(url).status_code == 204
    planned = worker.http.post(url + "?includeTasks=true")
    assert (planned.status_code, planned.json()["tasks"][0]["state"]) == (202, "RESTARTING")
    assert worker.http.post(f"/connectors/{name}/tasks/0/restart").status_code == 204
    assert worker.host.calls.count(("start", name)) == before + 3


def test_a_deleted_connector_is_stopped_before_the_answer(
    worker: RunningConnect, name: str
) -> None:
    create(worker.http, name)
    eventually(lambda: name in worker.host.plans)
    assert worker.http.delete(f"/connectors/{name}").status_code == 204
    assert name not in worker.host.plans
    assert worker.http.get(f"/connectors/{name}").status_code == 404


def test_connectors_that_are_created_at_once_wait_their_turn(
    worker: RunningConnect, name: str
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda _: create(worker.http, name).status_code, range(5)))
    assert sorted(answers) == [201, 409, 409, 409, 409]


def test_another_worker_on_the_same_topics_knows_what_was_stored(
    connect_bootstrap: str, tmp_path: Path
) -> None:
    topics = topic_settings()
    folder = {"headrace.connect.folder": str(tmp_path / "checkpoints")}
    with running_connect(connect_bootstrap, topics, folder) as first:
        create(first.http, "kept", tasks_max="3")
        create(first.http, "paused")
        create(first.http, "gone")
        eventually(lambda: len(first.host.plans) == 3)
        first.http.put("/connectors/paused/pause")
        first.http.delete("/connectors/gone")
        info = first.http.get("/connectors/kept").json()
    with running_connect(connect_bootstrap, topics, folder) as second:
        assert set(second.http.get("/connectors").json()) == {"kept", "paused"}
        assert second.http.get("/connectors/kept").json() == info
        status = second.http.get("/connectors/paused/status").json()
        assert status["connector"]["state"] == "PAUSED"
        eventually(lambda: list(second.host.plans) == ["kept"])
        assert second.host.plans["kept"].generation == 0
        assert second.host.calls == [("start", "kept")]
    # Checkpoints in the folder of another worker do not count.
    with running_connect(connect_bootstrap, topics) as third:
        eventually(lambda: list(third.host.plans) == ["kept"])
        assert third.host.plans["kept"].generation == 1
        assert third.host.calls == [("delete", "kept"), ("start", "kept")]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"name": "x"}, "config must be a JSON object with the options of the connector"),
        ({"name": "x", "config": {}}, "Connector config {name=x} contains no connector type"),
        ([], "The body must be a JSON object"),
        (
            {"name": "x", "config": {**SOURCE, "topic": ["t"]}},
            "The option topic must be a text, not an object or a list",
        ),
        (
            {"name": "x", "initial_state": "LOST", "config": SOURCE},
            "initial_state must be one of RUNNING, PAUSED, STOPPED, not 'LOST'",
        ),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_with_a_sentence(
    worker: RunningConnect, body: object, message: str
) -> None:
    answer = worker.http.post("/connectors", json=body)
    assert (answer.status_code, answer.json()) == (400, {"error_code": 400, "message": message})
