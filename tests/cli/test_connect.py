"""`headrace connect`: commands for the connectors of a worker."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cli.connect.watching import watch
from headrace.cli.failures import ExitCode, Failure
from headrace.connect.hosting import HostedStatus, RunState
from tests.cli.conftest import Run
from tests.connect.rest.test_connectors_api import eventually
from tests.connect.running import RunningConnect, running_connect
from tests.support.ports import free_port

SOURCE = {"connector.class": "FileStreamSource", "topic": "t", "file": "f"}


@pytest.fixture(scope="module")
def connect(bootstrap: str) -> Iterator[RunningConnect]:
    with running_connect(bootstrap) as running:
        yield running


@pytest.fixture
def call(run: Run, connect: RunningConnect, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("HEADRACE_CONNECT", str(connect.http.base_url))
    return run


@pytest.fixture
def name() -> str:
    return f"c-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize("form", ["whole", "plain", "properties"])
def test_a_connector_is_created_from_each_form_of_a_file(
    call: Run, connect: RunningConnect, tmp_path: Path, name: str, form: str
) -> None:
    file = tmp_path / ("c.properties" if form == "properties" else "c.json")
    if form == "whole":
        file.write_text(json.dumps({"name": name, "config": SOURCE}))
    elif form == "plain":
        file.write_text(json.dumps({**SOURCE, "name": name}))
    else:
        lines = [f"{option}={text}" for option, text in {**SOURCE, "name": name}.items()]
        file.write_text("\n".join(lines))
    assert call("connect", "create", str(file)).code == 0
    eventually(lambda: name in connect.host.plans)
    assert name in call("connect", "list").text
    listed = call("connect", "list", "--json").document()
    assert isinstance(listed[name], dict)


def test_status_pause_resume_stop_restart_and_delete(
    call: Run, connect: RunningConnect, tmp_path: Path, name: str
) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps(SOURCE))
    assert call("connect", "create", str(file), "--name", name).code == 0
    eventually(lambda: name in connect.host.plans)
    assert "RUNNING" in call("connect", "status", name).text
    assert call("connect", "pause", name).code == 0
    assert call("connect", "status", name, "--json").document()["connector"] != {}
    assert "PAUSED" in call("connect", "status", name).text
    assert call("connect", "resume", name).code == 0
    eventually(lambda: name in connect.host.plans)
    assert "RESTARTING" in call("connect", "restart", name).err
    assert call("connect", "stop", name).code == 0
    offsets = tmp_path / "offsets.json"
    entry = {"partition": {"file": "f"}, "offset": {"position": 7}}
    offsets.write_text(json.dumps({"offsets": [entry]}))
    assert call("connect", "offsets", name, "--alter", str(offsets)).code == 0
    assert "position=7" in call("connect", "offsets", name).text
    assert call("connect", "offsets", name, "--reset").code == 0
    assert call("connect", "offsets", name, "--json").document() == {"offsets": []}
    assert call("connect", "delete", name).code == 0
    assert call("connect", "status", name).code == 4


def test_a_failed_connector_gives_exit_code_1_and_the_reason(
    call: Run, connect: RunningConnect, name: str
) -> None:
    connect.host.answers[name] = HostedStatus(RunState.FAILED, "no such table")
    connect.http.put(f"/connectors/{name}/config", json=SOURCE)
    eventually(lambda: name in connect.host.plans)
    found = call("connect", "status", name)
    assert (found.code, "no such table" in found.text) == (1, True)


def test_options_are_shown_set_and_removed(call: Run, connect: RunningConnect, name: str) -> None:
    connect.http.put(f"/connectors/{name}/config", json={**SOURCE, "batch.size": "5"})
    words = ("--set", "file=g", "--unset", "batch.size", "--json")
    changed = call("connect", "config", name, *words).document()
    assert changed == {**SOURCE, "file": "g", "name": name}
    assert "file" in call("connect", "config", name).text


def test_a_file_is_tested_without_creating_anything(
    call: Run, connect: RunningConnect, tmp_path: Path, name: str
) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"name": name, "config": SOURCE}))
    assert call("connect", "test", str(file)).code == 0
    file.write_text(json.dumps({"name": name, "config": {**SOURCE, "fiel": "x"}}))
    found = call("connect", "test", str(file), "--json")
    errors = found.document()["errors"]
    assert isinstance(errors, list)
    assert (found.code, errors[0]["option"]) == (1, "fiel")
    assert "did you mean file?" in errors[0]["error"]
    assert name not in connect.http.get("/connectors").json()


def test_classes_and_their_options_are_listed(call: Run) -> None:
    assert "FileStreamSinkConnector" in call("connect", "plugins").text
    options = call("connect", "plugins", "FileStreamSource", "--json").rows()
    assert "batch.size" in [each["name"] for each in options]


def test_the_exit_code_tells_that_no_worker_responds(run: Run) -> None:
    found = run("connect", "list", "--connect", f"localhost:{free_port()}")
    assert (found.code, "headrace connect serve" in found.err) == (3, True)


def test_of_several_workers_the_first_that_responds_is_asked(
    run: Run, connect: RunningConnect, tmp_path: Path, name: str
) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"name": name, "config": SOURCE}))
    workers = f"localhost:{free_port()}, {connect.http.base_url}"
    assert run("connect", "create", str(file), "--connect", workers).code == 0
    assert name in run("connect", "list", "--connect", workers).text
    assert run("connect", "pause", name, name, "--connect", workers).code == 0
    none = f"localhost:{free_port()},localhost:{free_port()}"
    found = run("connect", "list", "--connect", none)
    assert (found.code, found.err.count("does not answer")) == (3, 2)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"config": 1}'])
def test_a_file_that_is_no_configuration_is_bad_usage(run: Run, tmp_path: Path, text: str) -> None:
    file = tmp_path / "c.json"
    file.write_text(text)
    assert run("connect", "create", str(file)).code == 2


def test_adopt_tells_which_connectors_of_a_stopped_cluster_can_run_here(
    run: Run, bootstrap: str
) -> None:
    with running_connect(bootstrap) as other:
        known = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "topic": "t",
            "file": "f",
        }
        other.http.put("/connectors/known/config", json=known)
        other.http.put(
            "/connectors/unknown/config",
            json={
                **SOURCE,
                "connector.class": ("tests.connect.stand_in.FileStreamSourceConnector"),
            },
        )
        other.http.put("/connectors/unknown/stop")
        topic = other.topics["config.storage.topic"]
    found = run("connect", "adopt", "--config-topic", topic, "--json")
    by_name = {each["name"]: each for each in found.rows()}
    assert found.code == 1
    assert by_name["known"]["problems"] == []
    assert by_name["unknown"]["state"] == "STOPPED"
    assert "there is no connector for tests.connect" in str(by_name["unknown"]["problems"])
    assert run("connect", "adopt", "--config-topic", "no-such-topic").code == 1


def test_create_waits_until_the_connector_runs_or_fails(
    call: Run, connect: RunningConnect, tmp_path: Path, name: str
) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps(SOURCE))
    done = call("connect", "create", str(file), "--name", name, "--wait")
    assert done.code == 0
    assert f"{name} runs with 1 of 1 tasks" in done.err
    failing = f"{name}-failing"
    connect.host.answers[failing] = HostedStatus(RunState.FAILED, "the table t does not exist")
    done = call("connect", "create", str(file), "--name", failing, "--wait")
    assert done.code == 1
    assert "the table t does not exist" in done.err


@pytest.mark.parametrize("words", [["list"], ["status"]])
def test_connectors_are_watched(
    call: Run, connect: RunningConnect, tmp_path: Path, name: str, words: list[str]
) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps(SOURCE))
    assert call("connect", "create", str(file), "--name", name, "--wait").code == 0
    words = [*words, *([name] if words == ["status"] else [])]
    often = ("--watch", "--count", "2", "--interval", "0.1")
    done = call("connect", *words, *often)
    assert done.code == 0
    assert done.text.count(name) == 2
    assert done.text.count("UTC") == 2
    lines = call("connect", *words, *often, "--json").text.splitlines()
    assert len(lines) == 2
    assert name in json.loads(lines[0]) or json.loads(lines[0])["name"] == name


def test_a_worker_that_is_away_for_a_while_is_watched_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found: list[object] = [{"n": 1}, unreachable_worker(), {"n": 2}]

    def look() -> object:
        each = found.pop(0)
        if isinstance(each, Failure):
            raise each
        return each

    watch(look, str, 0.0, 3, True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{"n": 1}, {"error": "no worker responds"}, {"n": 2}]


def unreachable_worker() -> Failure:
    return Failure("no worker responds", exit_code=ExitCode.UNREACHABLE, code="UNREACHABLE")
