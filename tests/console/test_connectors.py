"""Connectors of a real Apache Kafka Connect: over the API and in a browser."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from headrace.testing.running import RunningBroker
from tests.cli.conftest import execute
from tests.console.looking import Looking
from tests.support.headrace_console import HeadraceConsole
from tests.support.java import missing
from tests.support.kafka_connect_worker import SINK, SOURCE, KafkaConnectWorker
from tests.support.ports import free_port
from tests.support.stores import eventually

pytestmark = [pytest.mark.java, pytest.mark.slow]
SECRET = "pw-that-nobody-sees"


@pytest.fixture(scope="module")
def connect(
    headrace: RunningBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaConnectWorker]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("connect")
    settings = {
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter.schemas.enable": "false",
        "offset.flush.interval.ms": "1000",
    }
    with KafkaConnectWorker(headrace.bootstrap_servers, folder, settings) as worker:
        yield worker


@pytest.fixture(scope="module")
def with_connect(
    headrace: RunningBroker, connect: KafkaConnectWorker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HeadraceConsole]:
    folder = tmp_path_factory.mktemp("console")
    options = ("--connect", connect.url, "--set", f"headrace.audit.file={folder}/audit.jsonl")
    with HeadraceConsole(headrace.bootstrap_servers, folder, *options) as running:
        yield running


def _create(console: HeadraceConsole, name: str, plugin: str, **configs: str) -> None:
    body = {"name": name, "configs": {"connector.class": plugin, "tasks.max": "1", **configs}}
    answer = console.http.post("/connectors", json=body)
    assert answer.status_code == 200, answer.text


def _connector(console: HeadraceConsole, name: str) -> dict[str, Any]:
    answer = console.http.get(f"/connectors/{name}")
    # A connector that was created just now may not be known yet.
    found: dict[str, Any] = answer.json()
    return found if answer.status_code == 200 else {"state": answer.text, "tasks": []}


def _states(console: HeadraceConsole, name: str) -> list[str]:
    found = _connector(console, name)
    return [found["state"], *(task["state"] for task in found["tasks"])]


def _has_state(console: HeadraceConsole, name: str, state: str) -> bool:
    return bool(_connector(console, name)["state"] == state)


def wait_for(condition: Callable[[], bool]) -> None:
    eventually(condition, "Connect did not get there")


def test_a_connector_is_checked_created_stopped_and_deleted(
    with_connect: HeadraceConsole, topic: str, tmp_path: Path
) -> None:
    http, file = with_connect.http, tmp_path / "in.txt"
    file.write_text("one\ntwo\n")
    plugins = http.get("/connector-plugins").json()["plugins"]
    assert {each["class"] for each in plugins} >= {SOURCE, SINK}
    names = {
        each["name"] for each in http.get(f"/connector-plugins/{SOURCE}").json()["definitions"]
    }
    assert names >= {"topic", "file"}
    check = {"name": topic, "configs": {"connector.class": SOURCE, "tasks.max": "none"}}
    errors = http.post(f"/connector-plugins/{SOURCE}/check", json=check).json()["errors"]
    assert errors.keys() >= {"topic", "tasks.max"}

    secret = {"value.converter.basic.auth.user.info": SECRET}
    _create(with_connect, topic, SOURCE, topic=topic, file=str(file), **secret)
    wait_for(lambda: _states(with_connect, topic) == ["RUNNING", "RUNNING"])
    wait_for(lambda: bool(_connector(with_connect, topic).get("offsets")))
    found = _connector(with_connect, topic)
    assert json.loads(found["offsets"][0]["offset"]) == {"position": 8}
    assert found["configs"]["value.converter.basic.auth.user.info"] == "[hidden]"
    assert SECRET not in json.dumps([found, http.get("/connectors").json()])

    # A form sends all settings back, the hidden ones included.
    changed = {**found["configs"], "batch.size": "7"}
    assert http.put(f"/connectors/{topic}/configs", json={"configs": changed}).status_code == 200
    wait_for(lambda: _connector(with_connect, topic).get("configs", {}).get("batch.size") == "7")

    for action, state in (("pause", "PAUSED"), ("resume", "RUNNING"), ("stop", "STOPPED")):
        assert http.post(f"/connectors/{topic}/{action}", json={}).status_code == 200
        wait_for(partial(_has_state, with_connect, topic, state))
    assert http.post(f"/connectors/{topic}/explode", json={}).status_code == 404
    assert http.delete(f"/connectors/{topic}/offsets").status_code == 200
    assert _connector(with_connect, topic)["offsets"] == []
    assert http.delete(f"/connectors/{topic}").status_code == 200
    assert http.get(f"/connectors/{topic}").status_code == 404
    audit = (with_connect.folder / "audit.jsonl").read_text()
    lines = [json.loads(line) for line in audit.splitlines()]
    done = {(each["method"], each["path"], each.get("action")) for each in lines}
    assert ("POST", "/api/connectors/{name}/{action}", "pause") in done
    assert ("DELETE", "/api/connectors/{name}", None) in done
    assert SECRET not in audit + with_connect.log()


def test_a_hidden_secret_is_stored_unchanged(
    with_connect: HeadraceConsole, connect: KafkaConnectWorker, topic: str, tmp_path: Path
) -> None:
    secret = {"value.converter.basic.auth.user.info": SECRET}
    _create(with_connect, topic, SOURCE, topic=topic, file=str(tmp_path / "in.txt"), **secret)
    wait_for(lambda: "configs" in _connector(with_connect, topic))
    configs = {**_connector(with_connect, topic)["configs"], "batch.size": "9"}
    answer = with_connect.http.put(f"/connectors/{topic}/configs", json={"configs": configs})
    assert answer.status_code == 200, answer.text

    def stored() -> bool:
        answer = connect.http.get(f"/connectors/{topic}/config")
        if answer.is_error:  # Kafka's worker sometimes answers 500 just after a change.
            return False
        found = answer.json()
        return found.get("batch.size") == "9" and SECRET in found.values()

    wait_for(stored)
    with_connect.http.delete(f"/connectors/{topic}")


def test_connectors_are_part_of_the_lineage(
    with_connect: HeadraceConsole, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("one\n")
    _create(with_connect, f"{topic}-in", SOURCE, topic=topic, file=str(tmp_path / "in.txt"))
    _create(with_connect, f"{topic}-out", SINK, topics=topic, file=str(tmp_path / "out.txt"))

    def edges() -> set[tuple[str, str]]:
        flow = with_connect.http.get("/lineage", params={"q": topic}).json()
        return {(each["from"], each["to"]) for each in flow["edges"]}

    wanted = {
        (f"connector:{topic}-in", f"topic:{topic}"),
        (f"topic:{topic}", f"connector:{topic}-out"),
    }
    wait_for(lambda: edges() >= wanted)
    assert edges() >= wanted
    for name in (f"{topic}-in", f"{topic}-out"):
        with_connect.http.delete(f"/connectors/{name}")


def test_a_connector_is_made_and_its_failure_is_read_in_a_browser(
    with_connect: HeadraceConsole, chromium: Browser, topic: str, tmp_path: Path
) -> None:
    with Looking(chromium, with_connect.url, tmp_path) as looking:
        page = looking.page
        page.goto("/connectors")
        page.get_by_role("button", name="New connector").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Name", exact=True).fill(topic)
        dialog.get_by_label("Plug-in").select_option(SINK)
        dialog.get_by_label("Other settings").fill("tasks.max=1\nerrors.log.enable=maybe")
        dialog.get_by_role("button", name="Check settings").click()
        expect(dialog.get_by_text("the settings are not valid")).to_be_visible()
        expect(dialog.get_by_role("listitem").filter(has_text="errors.log.enable")).to_be_visible()
        looking.check_dialog("connector-form")
        dialog.get_by_label("Other settings").fill(
            f"tasks.max=1\ntopics={topic}\nfile={tmp_path}/no/such/folder/out.txt"
        )
        dialog.get_by_role("button", name="Check settings").click()
        expect(dialog.get_by_text("the settings are valid")).to_be_visible()
        dialog.get_by_role("button", name="Create").click()
        expect(page.get_by_role("heading", name=topic)).to_be_visible()
        expect(page.get_by_text("Why task 0 failed")).to_be_visible()
        expect(page.locator(".trace pre")).to_contain_text("ConnectException")
        looking.screenshot("connector-failed")
        page.get_by_role("button", name="Restart task 0").click()
        expect(page.get_by_text(f"Task 0 of {topic} is restarted.")).to_be_visible()
        page.get_by_role("button", name="Stop").click()
        expect(dialog.locator(".cli")).to_contain_text(f"headrace connect stop {topic}")
        looking.check_dialog("connector-stop")
        page.get_by_role("dialog").get_by_role("button", name="Stop").click()
        expect(page.locator(".facts .badge").first).to_have_text("stopped")
        page.get_by_role("button", name="Change settings").click()
        looking.check_dialog("connector-change")
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
        page.goto("/connectors")
        expect(page.get_by_role("link", name=topic)).to_be_visible()
        page.goto(f"/connectors/{topic}")
        page.get_by_role("button", name="Delete").click()
        expect(dialog.locator(".cli")).to_contain_text(f"headrace connect delete {topic}")
        looking.check_dialog("connector-delete")
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.get_by_role("heading", name="Connectors")).to_be_visible()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 360)])
def test_pages_of_connectors_are_accessible_and_fit_the_window(
    with_connect: HeadraceConsole,
    chromium: Browser,
    topic: str,
    tmp_path: Path,
    scheme: str,
    width: int,
) -> None:
    (tmp_path / "in.txt").write_text("one\n")
    folder = {"file": f"{tmp_path}/no/such/folder/out.txt"}
    _create(with_connect, f"{topic}-in", SOURCE, topic=topic, file=str(tmp_path / "in.txt"))
    _create(with_connect, f"{topic}-out", SINK, topics=topic, **folder)
    wait_for(lambda: "FAILED" in _states(with_connect, f"{topic}-out"))
    wait_for(lambda: bool(_connector(with_connect, f"{topic}-in").get("offsets")))
    with Looking(chromium, with_connect.url, tmp_path, scheme=scheme, width=width) as looking:
        for name in ("", f"{topic}-in", f"{topic}-out"):
            looking.page.goto(f"/connectors/{name}".rstrip("/"))
            expect(looking.page.locator("table").first).to_be_visible()
            looking.check_appearance(f"connectors{name.removeprefix(topic)}-{scheme}-{width}")
        looking.page.goto("/connectors")
        looking.page.get_by_role("button", name="New connector").click()
        dialog = looking.page.get_by_role("dialog")
        dialog.get_by_label("Plug-in").select_option(SOURCE)
        expect(dialog.get_by_label("Other settings")).to_be_visible()
        looking.check_appearance(f"connectors-new-{scheme}-{width}")
        looking.page.goto(f"/lineage?q={topic}")
        expect(looking.page.get_by_role("table", name="Flows")).to_be_visible()
        looking.check_appearance(f"connectors-lineage-{scheme}-{width}")
    for name in (f"{topic}-in", f"{topic}-out"):
        with_connect.http.delete(f"/connectors/{name}")


# ------------------------------------------------------------------------------ without Connect


@pytest.mark.parametrize("has_url", [False, True])
def test_a_console_without_connect_says_why(
    headrace: RunningBroker, chromium: Browser, tmp_path: Path, has_url: bool
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    options = ("--connect", url) if has_url else ()
    with (
        HeadraceConsole(headrace.bootstrap_servers, tmp_path, *options) as console,
        Looking(chromium, console.url, tmp_path) as looking,
    ):
        looking.page.goto("/connectors")
        why = f"Kafka Connect at {url} does not answer" if has_url else "started without --connect"
        expect(looking.page.locator(".unavailable")).to_contain_text(why)


def test_an_address_that_is_none_is_refused() -> None:
    done = execute("console", "--connect", "localhost:8083")
    assert done.code == 2
    assert "is not a URL" in done.err
