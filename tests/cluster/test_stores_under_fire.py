"""Processes that count in an ensemble while its servers are killed and their connections are cut.

Each process increments its own counter and a common one, in one commit. After a commit whose
outcome is unknown it waits until the session is connected again, and reads: the value
must be correct, because no other process writes its own counter.
"""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from headrace.cluster.store import Create
from headrace.cluster.zookeeper_store import ZookeeperStore
from tests.support import zookeeper
from tests.support.link import Link
from tests.support.stores import eventually, python_process
from tests.support.zookeeper import ZooKeeper

pytestmark = [pytest.mark.java, pytest.mark.slow]

COUNT = """
import json, sys, threading
from headrace.cluster.store import Conflict, Create, Put, StoreError, StoreSession
from headrace.cluster.zookeeper_store import ZookeeperStore
address, number = sys.argv[1:]
store = ZookeeperStore(address, session_timeout_ms=2000)
own, told = f"/own/{number}", []
stands, stop = threading.Event(), threading.Event()

def hear(news):
    told.append(news.name)
    stands.clear() if news is StoreSession.SUSPENDED else stands.set()

def live():
    try:
        store.commit([Create(f"/live/{number}", b"", ephemeral=True)])
    except (Conflict, StoreError):
        pass  # tried again with the next news

store.on_session(hear)
threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
while store.get(own) is None:
    try:
        store.commit([Create(own, b"0")])
    except (Conflict, StoreError):
        stop.wait(0.2)  # ZooKeeper may be slow on a busy machine
print("ready", flush=True)
known = unknown = conflicts = 0
while not stop.is_set():
    if store.get(f"/live/{number}") is None:
        live()
    mine, all_ = store.get(own), store.get("/all")
    try:
        store.commit([
            Put(own, b"%d" % (int(mine.value) + 1), mine.version),
            Put("/all", b"%d" % (int(all_.value) + 1), all_.version),
        ])
        known += 1
    except Conflict as conflict:
        conflicts += 1
        if conflict.path == own:
            print(json.dumps({"lied": [mine.version, store.get(own).version], "told": told}))
            sys.exit(1)
    except StoreError:
        unknown += 1
        stands.wait()
stands.wait()
print(json.dumps({"known": known, "unknown": unknown, "conflicts": conflicts, "told": told}))
store.close()
"""

PROCESSES = 3


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[ZooKeeper]:
    if reason := zookeeper.missing():
        pytest.skip(reason)
    with ZooKeeper(tmp_path, servers=3) as running:
        yield running


def hurt(random: Random, ensemble: ZooKeeper, links: list[list[Link]]) -> None:
    """One fault, for a while: never more than one server is down, so the ensemble goes on."""
    victim = random.randrange(3)
    ways = [row[victim] for row in links]
    fault = random.choice(["kill", "kill leader", "cut one", "cut all", "hang up"])
    if fault in ("kill", "kill leader"):
        server = ensemble.leader() if fault == "kill leader" else ensemble.servers[victim]
        server.kill()
        time.sleep(random.uniform(0.1, 2))
        server.start()
        server.wait_until_it_serves()
    elif fault == "hang up":
        for link in ways:
            link.hang_up()
    else:
        # One process loses all servers, or one server all processes.
        cut = links[random.randrange(PROCESSES)] if fault == "cut one" else ways
        for link in cut:
            link.cut()
        time.sleep(random.uniform(0.1, 4))
        for link in cut:
            link.hang_up()
            link.heal()


MORE = [pytest.param(seed, 40, marks=pytest.mark.endurance) for seed in range(2, 12)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("seed", "faults"), [(1, 6), *MORE])
def test_nothing_is_lost_or_torn_and_unknown_outcomes_become_known(
    ensemble: ZooKeeper, seed: int, faults: int
) -> None:
    random = Random(seed)
    store = ZookeeperStore(ensemble.address("/headrace"))
    store.commit([Create("/all", b"0")])
    with ExitStack() as stack:
        links = [
            [stack.enter_context(Link(server.port)) for server in ensemble.servers]
            for _ in range(PROCESSES)
        ]
        processes = []
        for number, row in enumerate(links):
            hosts = ",".join(f"127.0.0.1:{link.port}" for link in row)
            address = f"zookeeper://{hosts}/headrace"
            processes.append(stack.enter_context(python_process(COUNT, address, str(number))))
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for _ in range(faults):
            hurt(random, ensemble, links)
            time.sleep(random.uniform(0, 1))
        reports = []
        for process in processes:
            said, _ = process.communicate("stop", timeout=60)
            assert process.returncode == 0, said
            reports.append(json.loads(said))
    eventually(lambda: store.children("/live") == {}, "all sessions have ended")
    fresh = ZookeeperStore(ensemble.address("/headrace"))
    own = [int(fresh.children("/own")[str(number)].value) for number in range(PROCESSES)]
    print(reports)  # shown if something below fails
    for report, count in zip(reports, own, strict=True):
        assert report["known"] <= count <= report["known"] + report["unknown"], report
        assert report["known"] > 10, "hardly anything went through"
    shared = fresh.get("/all")
    assert shared is not None
    assert int(shared.value) == sum(own), "a commit was torn"
    assert any(report["unknown"] for report in reports), "no fault landed"
    fresh.close()
    store.close()
