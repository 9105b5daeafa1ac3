"""The simulated store has exactly the delays, disconnections and unknown outcomes of its seed."""

import heapq
from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from headrace.cluster.store import (
    Change,
    Conflict,
    Create,
    Delete,
    Put,
    StoreError,
    StoreNode,
    StoreSession,
)
from tests.simulation.store import Ensemble, SimulatedStore


class Time:
    """A clock that only moves when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (self.now + seconds, self._count, action))

    def pass_by(self, seconds: float) -> None:
        until = self.now + seconds
        while self._due and self._due[0][0] <= until:
            self.now, _, action = heapq.heappop(self._due)
            action()
        self.now = until


def world(seed: int = 1) -> tuple[Time, Ensemble]:
    time = Time()
    return time, Ensemble(Random(seed), time.later)


def told(store: SimulatedStore) -> list[StoreSession]:
    news: list[StoreSession] = []
    store.on_session(news.append)
    return news


def test_notifications_are_late_but_arrive() -> None:
    time, ensemble = world()
    store, other = ensemble.open(), ensemble.open()
    heard: list[float] = []
    store.watch(lambda: heard.append(time.now))
    other.commit([Create("/a", b"1")])
    assert store.get("/a") is None
    assert heard == []
    time.pass_by(ensemble.lateness_s)
    assert store.get("/a") == StoreNode(b"1", 0)
    assert len(heard) == 1
    assert 0 < heard[0] < ensemble.lateness_s


@pytest.mark.parametrize("heals", [False, True])
def test_a_disconnected_store_is_notified_and_loses_its_session_unless_it_heals(
    heals: bool,
) -> None:
    time, ensemble = world()
    store, other = ensemble.open(), ensemble.open()
    news = told(store)
    store.commit([Create("/live/1", b"", ephemeral=True)])
    time.pass_by(1)
    ensemble.cut(store)
    time.pass_by(ensemble.session_timeout_s * 2 / 3)
    assert news == [StoreSession.CONNECTED, StoreSession.SUSPENDED]
    with pytest.raises(StoreError):
        store.commit([Create("/a", b"")])
    if heals:
        ensemble.heal(store)
    time.pass_by(10)
    assert (other.get("/live/1") is None) != heals
    ensemble.heal(store)
    time.pass_by(1)
    assert news[2:] == [StoreSession.CONNECTED if heals else StoreSession.EXPIRED]
    assert store.children("/live") == other.children("/live")
    store.commit([Create("/live/2", b"", ephemeral=True)])


def test_a_paused_store_keeps_using_an_expired_session() -> None:
    time, ensemble = world()
    store, other = ensemble.open(), ensemble.open()
    news = told(store)
    store.commit([Create("/live/1", b"", ephemeral=True)])
    time.pass_by(1)
    ensemble.pause(store)
    time.pass_by(10)
    assert other.get("/live/1") is None
    assert store.get("/live/1") is not None
    assert news == [StoreSession.CONNECTED]
    with pytest.raises(StoreError):
        store.commit([Put("/live/1", b"zombie", 0)])
    ensemble.heal(store)
    time.pass_by(1)
    assert news == [StoreSession.CONNECTED, StoreSession.SUSPENDED, StoreSession.EXPIRED]


def test_a_killed_store_gets_no_notifications_and_its_session_ends() -> None:
    time, ensemble = world()
    store, other = ensemble.open(), ensemble.open()
    store.commit([Create("/live/1", b"", ephemeral=True)])
    time.pass_by(1)
    news = told(store)
    store.watch(lambda: news.append(StoreSession.CONNECTED))
    ensemble.kill(store)
    other.commit([Create("/a", b"")])
    ensemble.heal(store)
    time.pass_by(10)
    assert news == [StoreSession.CONNECTED]
    assert other.children("/live") == {}


@pytest.mark.parametrize("happens", [False, True])
def test_of_a_lost_commit_reads_tell_later_whether_it_happened(happens: bool) -> None:
    time, ensemble = world()
    store = ensemble.open()
    news = told(store)
    store.lose_next_commit(happens=happens)
    with pytest.raises(StoreError):
        store.commit([Create("/a", b"")])
    assert store.get("/a") is None
    time.pass_by(1)
    assert news == [StoreSession.CONNECTED, StoreSession.SUSPENDED, StoreSession.CONNECTED]
    assert (store.get("/a") is not None) == happens


def walk(seed: int) -> list[object]:
    """A random life of three stores; checks what must always hold, and returns what happened."""
    time, ensemble = world(seed)
    random = Random(seed + 1)
    stores = [ensemble.open() for _ in range(3)]
    news = [told(store) for store in stores]
    trace: list[object] = []
    for _ in range(60):
        number = random.randrange(3)
        store, path = stores[number], f"/n/{random.randrange(3)}"
        node = store.get(path)
        change: Change = Create(path, b"") if node is None else Put(path, b"", node.version)
        if node is not None and random.random() < 0.3:
            change = Delete(path, node.version)
        fault = random.choice(["", "", "", "cut", "pause", "expire", "heal", "heal", "lose"])
        if fault == "lose":
            store.lose_next_commit(happens=random.random() < 0.5)
        elif fault:
            getattr(ensemble, fault)(store)
        before = len(ensemble.history)
        try:
            store.commit([change])
            trace.append("ok")
            assert len(ensemble.history) == before + 1
        except Conflict:
            trace.append("conflict")
            assert store.get(path) == ensemble.nodes.get(path)
        except StoreError:
            trace.append("unknown")
            assert news[number][-1] is StoreSession.SUSPENDED
        time.pass_by(random.uniform(0, 1))
    for store in stores:
        ensemble.heal(store)
    time.pass_by(10)
    for store, heard in zip(stores, news, strict=True):
        assert store.children("/n") == {
            path.removeprefix("/n/"): node for path, node in ensemble.nodes.items()
        }
        assert heard[-1] is not StoreSession.SUSPENDED
        kinds = [one is StoreSession.SUSPENDED for one in heard]
        assert all(a != b for a, b in pairwise(kinds)), heard
    return [*trace, *news]


def test_every_seed_keeps_the_guarantees_and_has_other_steps() -> None:
    stories = [walk(seed) for seed in range(200)]
    assert len({str(story) for story in stories}) > 190
    assert {"ok", "conflict", "unknown"} < {str(event) for story in stories for event in story}


def test_a_seed_always_has_the_same_steps() -> None:
    for seed in range(5):
        assert walk(seed) == walk(seed)
