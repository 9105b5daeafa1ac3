"""Several workers with the same topics share the connectors; their hosts are stand-ins."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import httpx
import pytest

from headrace.client.cluster import Cluster
from headrace.client.errors import Unreachable
from headrace.connect.sharing.slots import slot_of
from tests.connect.running import RunningConnect, running_connect, topic_settings
from tests.support.apache_kafka import ApacheKafka

SOURCE = {"connector.class": "FileStreamSource", "topic": "t", "file": "f"}
NAMES = tuple(f"c-{n}" for n in range(8))


class Workers:
    """Workers of one cluster, which tests start one after the other."""

    def __init__(self, bootstrap: str, stack: ExitStack) -> None:
        self._bootstrap = bootstrap
        self._stack = stack
        self._topics = topic_settings()
        self._group = f"workers-{uuid.uuid4().hex[:8]}"

    def start(self, settings: Mapping[str, str] | None = None) -> RunningConnect:
        given = {
            "group.id": self._group,
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "300",
            **(settings or {}),
        }
        return self._stack.enter_context(running_connect(self._bootstrap, self._topics, given))


@pytest.fixture(params=["headrace", pytest.param("apache", marks=pytest.mark.java)])
def workers(request: pytest.FixtureRequest) -> Iterator[Workers]:
    if request.param == "headrace":
        bootstrap = request.getfixturevalue("connect_bootstrap")
    else:
        kafka: ApacheKafka = request.getfixturevalue("apache_kafka")
        bootstrap = kafka.bootstrap
    with ExitStack() as stack:
        yield Workers(bootstrap, stack)


def eventually(found: Callable[[], object]) -> None:
    deadline = time.monotonic() + 90
    while not found():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def create(worker: RunningConnect, name: str) -> httpx.Response:
    return worker.http.post("/connectors", json={"name": name, "config": SOURCE})


def runs(workers: Sequence[RunningConnect]) -> list[str]:
    """The connectors that run anywhere, each as often as it runs."""
    return sorted(name for worker in workers for name in worker.host.plans)


def are_shared(workers: Sequence[RunningConnect], names: Sequence[str] = NAMES) -> bool:
    slots = [worker.worker.ownership.slots for worker in workers]
    return sum(map(len, slots)) == 64 and runs(workers) == sorted(names) and all(slots)


def owned_by(worker: RunningConnect) -> list[str]:
    return [name for name in NAMES if worker.worker.ownership.owns(name)]


def starts(workers: Sequence[RunningConnect]) -> dict[str, int]:
    calls = [name for worker in workers for what, name in worker.host.calls if what == "start"]
    return {name: calls.count(name) for name in calls}


def test_a_second_worker_takes_its_share_and_only_moved_connectors_restart(
    workers: Workers,
) -> None:
    first = workers.start()
    for name in NAMES:
        assert create(first, name).status_code == 201
    eventually(lambda: are_shared([first]))
    second = workers.start()
    both = [first, second]
    eventually(lambda: are_shared(both))
    moved = set(second.host.plans)
    assert moved
    assert starts(both) == {name: 2 if name in moved else 1 for name in NAMES}
    third = workers.start()
    eventually(lambda: are_shared([*both, third]))
    # A worker that stops gives its connectors to the others, and leaves theirs alone.
    before, stays = starts([*both, third]), set(first.host.plans) | set(second.host.plans)
    third.stop()
    eventually(lambda: are_shared(both))
    after = starts([*both, third])
    assert {name: after[name] for name in stays} == {name: before[name] for name in stays}


def test_the_connectors_of_a_worker_that_dies_move_when_its_session_ends(workers: Workers) -> None:
    first, second = workers.start(), workers.start()
    eventually(lambda: are_shared([first, second], ()))
    for name in NAMES:
        assert create(first, name).status_code == 201
    eventually(lambda: are_shared([first, second]))
    stays, before = set(first.host.plans), starts([first])
    second.die()
    eventually(lambda: are_shared([first]))
    assert {name: starts([first])[name] for name in stays} == before
    found = first.http.get("/connectors?expand=status").json()
    assert {each["status"]["connector"]["worker_id"] for each in found.values()} == {
        first.worker_id
    }


def test_every_worker_answers_for_the_connectors_of_all(workers: Workers) -> None:
    first, second = workers.start(), workers.start()
    both = [first, second]
    eventually(lambda: are_shared(both, ()))
    for name in NAMES:
        made = create(second, name)
        assert made.status_code == 201
        assert made.headers["location"] == f"{second.http.base_url}/connectors/{name}"
        # What a worker has confirmed is seen there at once, also if another one did it.
        assert second.http.get(f"/connectors/{name}").status_code == 200
    eventually(lambda: are_shared(both))
    for name in NAMES:
        (owner,) = (each for each in both if name in each.host.plans)
        for asked in both:
            found = asked.http.get(f"/connectors/{name}/status").json()
            assert found["connector"]["state"] == "RUNNING"
            assert found["connector"]["worker_id"] == owner.worker_id
            task = asked.http.get(f"/connectors/{name}/tasks/0/status").json()
            assert task["worker_id"] == owner.worker_id
    for asked in both:
        found = asked.http.get("/connectors?expand=status&expand=info").json()
        assert set(found) == set(NAMES)
        owners = {each["status"]["connector"]["worker_id"] for each in found.values()}
        assert owners == {each.worker_id for each in both}
    name = next(iter(second.host.plans))
    before = starts(both)[name]
    assert first.http.post(f"/connectors/{name}/restart").status_code == 204
    assert starts(both)[name] == before + 1
    changed = {**SOURCE, "file": "g"}
    assert first.http.put(f"/connectors/{name}/config", json=changed).status_code == 200
    eventually(lambda: second.host.plans[name].config["file"] == "g")
    assert first.http.patch(f"/connectors/{name}/config", json={"file": "h"}).status_code == 200
    eventually(lambda: second.host.plans[name].config["file"] == "h")
    refused = first.http.patch(f"/connectors/{name}/config", json={"fiel": "h"})
    assert (refused.status_code, "fiel" in refused.json()["message"]) == (400, True)
    assert first.http.put(f"/connectors/{name}/pause").status_code == 202
    eventually(lambda: name not in second.host.plans)
    assert first.http.put(f"/connectors/{name}/stop").status_code == 204
    entry = {"partition": {"filename": "f"}, "offset": {"position": 3}}
    answer = first.http.patch(f"/connectors/{name}/offsets", json={"offsets": [entry]})
    assert answer.status_code == 200, answer.text
    assert second.http.get(f"/connectors/{name}/offsets").json() == {"offsets": [entry]}
    assert first.http.delete(f"/connectors/{name}/offsets").status_code == 200
    assert first.http.delete(f"/connectors/{name}").status_code == 204
    assert first.http.get(f"/connectors/{name}").status_code == 404
    assert first.http.delete(f"/connectors/{name}").status_code == 404


def test_of_requests_that_create_the_same_connector_one_succeeds(workers: Workers) -> None:
    three = [workers.start() for _ in range(3)]
    eventually(lambda: are_shared(three, ()))
    together = threading.Barrier(6)

    def post(worker: RunningConnect, name: str) -> int:
        together.wait(60)
        with httpx.Client(base_url=worker.http.base_url, timeout=90) as http:
            return http.post("/connectors", json={"name": name, "config": SOURCE}).status_code

    for name in NAMES[:4]:
        with ThreadPoolExecutor(6) as pool:
            codes = sorted(pool.map(post, three + three, [name] * 6))
        assert codes == [201, 409, 409, 409, 409, 409]
    eventually(lambda: are_shared(three, NAMES[:4]))


def test_requests_during_a_rolling_restart_are_answered(workers: Workers) -> None:
    running = [workers.start(), workers.start()]
    eventually(lambda: are_shared(running, ()))
    for name in NAMES:
        assert create(running[0], name).status_code == 201
    for _ in range(2):
        running[0].stop()
        for name in NAMES:
            answer = running[1].http.put(f"/connectors/{name}/pause")
            assert answer.status_code == 202, answer.text
            answer = running[1].http.put(f"/connectors/{name}/resume")
            assert answer.status_code == 202, answer.text
        running = [running[1], workers.start()]
        eventually(partial(are_shared, running))


def test_a_request_for_a_connector_whose_owner_has_died_waits_for_the_next_one(
    workers: Workers,
) -> None:
    first, second = workers.start(), workers.start()
    eventually(lambda: are_shared([first, second], ()))
    name = next(name for name in NAMES if slot_of(name) in second.worker.ownership.slots)
    assert create(first, name).status_code == 201
    second.die()
    found = first.http.get(f"/connectors/{name}/status").json()["connector"]
    assert (found["state"], found["worker_id"]) == ("UNASSIGNED", "")
    assert first.http.post(f"/connectors/{name}/restart").status_code == 204
    eventually(lambda: name in first.host.plans)


def test_a_worker_that_is_started_again_takes_its_old_place_without_a_rebalance(
    workers: Workers,
) -> None:
    first, second = workers.start(), workers.start()
    both = [first, second]
    eventually(lambda: are_shared(both, ()))
    for name in NAMES:
        assert create(first, name).status_code == 201
    eventually(lambda: are_shared(both))
    calls, slots = list(first.host.calls), second.worker.ownership.slots
    second.die()
    port = second.worker_id.rpartition(":")[2]
    again = workers.start({"rest.advertised.port": port})
    eventually(lambda: are_shared([first, again]))
    assert again.worker.ownership.slots == slots
    assert first.host.calls == calls


def test_two_workers_with_the_same_address_are_told_so(workers: Workers) -> None:
    first = workers.start({"rest.advertised.port": "1234"})
    eventually(lambda: len(first.worker.ownership.slots) == 64)
    second = workers.start({"rest.advertised.port": "1234"})
    eventually(lambda: len(second.worker.ownership.slots) == 64)
    eventually(lambda: not first.worker.ownership.slots)
    answer = first.http.get("/health")
    assert answer.status_code == 500
    assert "rest.advertised.host.name" in answer.json()["message"]


def test_a_worker_that_is_suspended_leaves_its_connectors_to_the_worker_that_took_them_over(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = workers.start(), workers.start()
    both = [first, second]
    eventually(lambda: are_shared(both, ()))
    for name in NAMES:
        assert create(first, name).status_code == 201
    eventually(lambda: are_shared(both))
    member = second.worker.ownership._member
    assert member is not None
    is_suspended, resumed, beat = threading.Event(), threading.Event(), member._beat

    def suspended(cluster: Cluster) -> None:
        is_suspended.set()
        assert resumed.wait(90)
        beat(cluster)

    monkeypatch.setattr(member, "_beat", suspended)
    assert is_suspended.wait(60)
    eventually(lambda: set(second.host.plans) == set(owned_by(second)))
    moved = set(second.host.plans)
    before = {name: second.host.plans[name].generation for name in moved}
    # The group has told it nothing, but it sees that another worker began new checkpoints, and
    # does not begin others in turn.
    eventually(lambda: moved <= set(first.host.plans))
    eventually(lambda: not second.host.plans)
    assert {name: first.host.plans[name].generation for name in moved} == {
        name: generation + 1 for name, generation in before.items()
    }
    started = starts([first])
    assert {name: started[name] for name in moved} == dict.fromkeys(moved, 1)
    resumed.set()
    eventually(lambda: are_shared(both))


def test_a_worker_that_cannot_reach_the_coordinator_stops_its_connectors(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = workers.start()
    assert create(worker, "c").status_code == 201
    eventually(lambda: are_shared([worker], ["c"]))
    member = worker.worker.ownership._member
    assert member is not None

    def unreachable(cluster: Cluster) -> None:
        raise Unreachable("no route")

    with monkeypatch.context() as patch:
        patch.setattr(member, "_beat", unreachable)
        patch.setattr(member, "_join", unreachable)
        eventually(lambda: not worker.host.plans)
        found = worker.http.get("/connectors/c/status").json()["connector"]
        assert (found["state"], found["worker_id"]) == ("UNASSIGNED", "")
        assert "no route" in worker.http.get("/health").json()["message"]
    eventually(lambda: are_shared([worker], ["c"]))
    assert worker.http.get("/health").status_code == 200
