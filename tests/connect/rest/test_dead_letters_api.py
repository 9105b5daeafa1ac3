"""`/connectors/N/dead-letters`: what is asked of the host, and what is refused."""

from collections.abc import Iterator

import pytest

from headrace.connect.letter_orders import LetterOrder, LetterView
from tests.connect.running import RunningConnect

REPORT: dict[str, object] = {"action": "replay", "state": "running", "total": 3, "done": 0}


@pytest.fixture
def connector(worker: RunningConnect, name: str) -> Iterator[str]:
    config = {"connector.class": "FileStreamSink", "topics": "t", "file": "f"}
    made = worker.http.post("/connectors", json={"name": name, "config": config})
    assert made.status_code == 201, made.text
    worker.host.letters = {"groups": {"groups": []}, "records": {"records": []}}
    worker.host.runs = [REPORT]
    worker.host.letter_requests.clear()
    yield name
    worker.http.delete(f"/connectors/{name}")


def test_letters_are_shown_by_error_and_one_by_one(worker: RunningConnect, connector: str) -> None:
    path = f"/connectors/{connector}/dead-letters"
    assert worker.http.get(path, params={"where": "attempt > 1"}).json() == {"groups": []}
    assert worker.http.get(f"{path}/records", params={"limit": "5"}).json() == {"records": []}
    assert worker.host.letter_requests == [
        (connector, LetterView("groups", "attempt > 1", 1000)),
        (connector, LetterView("records", "", 5)),
    ]


def test_a_run_is_started_looked_at_and_stopped(worker: RunningConnect, connector: str) -> None:
    path = f"/connectors/{connector}/dead-letters"
    started = worker.http.post(f"{path}/replay", json={"where": "attempt = 1", "limit": 7})
    assert (started.status_code, started.json()) == (202, REPORT)
    planned = worker.http.post(f"{path}/discard", json={"dry_run": True})
    assert planned.status_code == 200
    assert worker.host.letter_requests == [
        (connector, LetterOrder("replay", "attempt = 1", 7)),
        (connector, LetterOrder("discard", dry_run=True)),
    ]
    assert worker.http.get(f"{path}/run").json() == REPORT
    assert worker.http.delete(f"{path}/run").status_code == 204
    assert ("stop letters", connector) in worker.host.calls


def test_refusals_of_the_host_are_answered_with_their_status(
    worker: RunningConnect, connector: str
) -> None:
    path = f"/connectors/{connector}/dead-letters"
    shown = worker.http.get(path, params={"where": "refused"})
    assert (shown.status_code, shown.json()["message"]) == (
        400,
        "where: refused is int, not a condition",
    )
    assert worker.http.post(f"{path}/replay", json={"where": "busy"}).status_code == 409
    worker.host.runs = []
    assert worker.http.get(f"{path}/run").status_code == 404


@pytest.mark.parametrize(
    "body",
    [{"limit": 0}, {"limit": "5"}, {"limit": True}, {"where": 5}, {"dry_run": 1}, {"were": ""}, []],
)
def test_malformed_orders_are_refused(worker: RunningConnect, connector: str, body: object) -> None:
    answer = worker.http.post(f"/connectors/{connector}/dead-letters/replay", json=body)
    assert answer.status_code == 400
    assert worker.host.letter_requests == []


@pytest.mark.parametrize("limit", ["0", "x", "1001", "-1"])
def test_malformed_limits_are_refused(worker: RunningConnect, connector: str, limit: str) -> None:
    answer = worker.http.get(f"/connectors/{connector}/dead-letters", params={"limit": limit})
    assert answer.status_code == 400


def test_a_connector_that_does_not_exist_has_no_letters(worker: RunningConnect) -> None:
    path = "/connectors/nowhere/dead-letters"
    assert worker.http.get(path).status_code == 404
    assert worker.http.get(f"{path}/run").status_code == 404
    assert worker.http.delete(f"{path}/run").status_code == 404
    assert worker.http.post(f"{path}/replay", json={}).status_code == 404
