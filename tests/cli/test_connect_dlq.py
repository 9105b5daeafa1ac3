"""`headrace connect dlq`: dead letters, through a worker whose host runs nothing."""

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.connect.letter_orders import LetterOrder, LetterView
from tests.cli.conftest import Run
from tests.connect.running import RunningConnect, running_connect

GROUP = {
    "exception": "org.apache.kafka.connect.errors.DataException",
    "stage": "VALUE_CONVERTER",
    "topic": "orders",
    "count": 12,
    "first": 1_700_000_000_000,
    "last": 1_700_000_100_000,
    "attempts": 2,
    "message": "value: not JSON",
}
RECORD = {
    "letter": {"partition": 0, "offset": 3},
    "topic": "orders",
    "partition": 1,
    "offset": 17,
    "stage": "TASK_PUT",
    "exception": "headrace.connect.plugin.RecordError",
    "message": "refused [by the table]",
    "attempt": 2,
    "timestamp": 1_700_000_000_000,
    "id": "orders-1-17",
    "key": None,
    "value": {"base64": "/w=="},
    "headers": [["mine", "yes"]],
}
ABOUT = {"topic": "dead", "group": "connect-c-dlq", "waiting": 12}


def report(**changes: object) -> dict[str, Any]:
    usual = {"action": "replay", "where": "", "limit": None, "state": "finished", "error": None}
    counts = {"total": 3, "done": 3, "written": 2, "failed_again": 1, "discarded": 0, "kept": 0}
    return {**usual, **counts, "started_at": 0, **changes}


@pytest.fixture(scope="module")
def connect(bootstrap: str) -> Iterator[RunningConnect]:
    with running_connect(bootstrap) as running:
        config = {"connector.class": "FileStreamSink", "topics": "t", "file": "f"}
        made = running.http.post("/connectors", json={"name": "c", "config": config})
        assert made.status_code == 201
        yield running


@pytest.fixture
def call(run: Run, connect: RunningConnect, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("HEADRACE_CONNECT", str(connect.http.base_url))
    connect.host.letters = {
        "groups": {**ABOUT, "groups": [GROUP]},
        "records": {**ABOUT, "records": [RECORD]},
    }
    connect.host.letter_requests.clear()
    return run


def test_letters_are_listed_by_error(call: Run, connect: RunningConnect) -> None:
    found = call("connect", "dlq", "list", "c", "--where", "attempt > 1")
    assert found.code == 0
    for word in ("12", "orders", "VALUE_CONVERTER", "DataException", "2023-11-14 22:13:20"):
        assert word in found.text
    assert connect.host.letter_requests == [("c", LetterView("groups", "attempt > 1", 100))]
    assert call("connect", "dlq", "list", "c", "--json").document()["groups"] == [GROUP]


def test_letters_are_shown_with_their_error(call: Run, connect: RunningConnect) -> None:
    found = call("connect", "dlq", "show", "c", "--limit", "3")
    assert found.code == 0
    for word in (
        "dead-0, offset 3",
        "orders-1, offset 17",
        "refused [by the table]",
        "/w==",
        "yes",
    ):
        assert word in found.text
    assert connect.host.letter_requests == [("c", LetterView("records", "", 3))]
    assert call("connect", "dlq", "show", "c", "--json").document()["records"] == [RECORD]


def test_a_replay_is_followed_to_its_end(call: Run, connect: RunningConnect) -> None:
    connect.host.runs = [
        report(state="running", done=0),
        report(state="running", done=1, error="no broker responds"),
        report(kept=4),
    ]
    found = call("connect", "dlq", "replay", "c", "--where", "attempt = 1", "--limit", "5")
    assert found.code == 0
    assert "2 letters replayed, 1 failed again, 4 others wait on" in found.err
    assert connect.host.letter_requests == [("c", LetterOrder("replay", "attempt = 1", 5))]
    connect.host.runs = [report()]
    assert call("connect", "dlq", "replay", "c", "--json").document() == report()


def test_a_replay_that_fails_ends_with_its_error(call: Run, connect: RunningConnect) -> None:
    connect.host.runs = [report(state="failed", error="the table t does not exist")]
    found = call("connect", "dlq", "replay", "c")
    assert found.code == 1
    assert "the table t does not exist" in found.err


def test_a_dry_run_only_counts(call: Run, connect: RunningConnect) -> None:
    connect.host.runs = [report(state="running", done=0)]
    found = call("connect", "dlq", "discard", "c", "--dry-run")
    assert found.code == 0
    assert "3 letters would be discarded" in found.err
    assert connect.host.letter_requests == [("c", LetterOrder("discard", dry_run=True))]


def test_letters_are_discarded_and_a_run_is_stopped(call: Run, connect: RunningConnect) -> None:
    connect.host.runs = [report(action="discard", discarded=3)]
    assert "3 letters discarded" in call("connect", "dlq", "discard", "c").err
    assert call("connect", "dlq", "stop", "c").code == 0
    assert ("stop letters", "c") in connect.host.calls


def test_a_condition_that_is_refused_is_explained(call: Run) -> None:
    found = call("connect", "dlq", "list", "c", "--where", "refused")
    assert found.code == 1
    assert "where: refused is int, not a condition" in found.err
    assert call("connect", "dlq", "list", "nowhere").code == 4
