"""The guarantees of every store: versions, atomic commits, sessions and notifications."""

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random

import pytest

from headrace.cluster.store import (
    Change,
    CheckVersion,
    Conflict,
    Create,
    Delete,
    Put,
    Store,
    StoreNode,
    StoreSession,
)
from tests.simulation.store import Ensemble
from tests.support.stores import Place, eventually, open_store, python_process
from tests.support.zookeeper import ZooKeeper

INCREMENT = """
import sys
from headrace.cluster.store import Conflict, Put
from tests.support.stores import open_store
store = open_store(sys.argv[1])
for _ in range(int(sys.argv[2])):
    while True:
        node = store.get("/counter")
        try:
            store.commit([Put("/counter", b"%d" % (int(node.value) + 1), node.version)])
            break
        except Conflict:
            pass
store.close()
"""

LIVE_FOREVER = """
import sys
from headrace.cluster.store import Create
from tests.support.stores import SHORT_SESSION_MS, open_store
store = open_store(sys.argv[1], SHORT_SESSION_MS)
store.commit([Create("/stays", b""), Create("/live/7", b"here", ephemeral=True)])
print("ready", flush=True)
sys.stdin.read()
"""


def in_a_while(seconds: float, action: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()


REAL = ["sqlite", pytest.param("zookeeper", marks=pytest.mark.java)]


@pytest.fixture(params=[*REAL, "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "simulated":
        place = Place(Ensemble(Random(7), in_a_while, lateness_s=0.01).open)
    else:
        address = f"sqlite:{tmp_path}"
        if request.param == "zookeeper":
            zookeeper: ZooKeeper = request.getfixturevalue("zookeeper")
            address = zookeeper.address(f"/{uuid.uuid4().hex}/headrace")
        place = Place(partial(open_store, address), address)
    yield place
    place.close_all()


real_only = pytest.mark.parametrize("place", REAL, indirect=True)


def test_a_node_counts_its_writes(place: Place) -> None:
    store = place.open()
    store.commit([Create("/a/b", b"1")])
    assert store.get("/a/b") == StoreNode(b"1", 0)
    store.commit([Put("/a/b", b"2", 0)])
    assert store.get("/a/b") == StoreNode(b"2", 1)
    store.commit([Delete("/a/b", 1)])
    assert store.get("/a/b") is None


@pytest.mark.parametrize(
    "change",
    [
        Create("/a", b""),
        Create("/live/1", b"", ephemeral=True),
        Put("/a", b"", 7),
        Put("/b", b"", 0),
        Delete("/a", 7),
        Delete("/b", 0),
        CheckVersion("/a", 7),
        CheckVersion("/b", 0),
    ],
)
def test_a_change_of_something_else_is_a_conflict_and_nothing_happens(
    place: Place, change: Change
) -> None:
    store = place.open()
    store.commit([Create("/a", b"1"), Create("/live/1", b"1")])
    with pytest.raises(Conflict, match=change.path) as raised:
        store.commit([Create("/new", b""), change, Put("/a", b"2", 0)])
    assert raised.value.path == change.path
    assert store.get("/a") == StoreNode(b"1", 0)
    assert store.get("/new") is None
    assert place.open().children("") == {"a": StoreNode(b"1", 0)}


def test_a_check_changes_nothing(place: Place) -> None:
    store = place.open()
    store.commit([Create("/a", b"1")])
    store.commit([CheckVersion("/a", 0), Create("/b", b"")])
    assert store.children("") == {"a": StoreNode(b"1", 0), "b": StoreNode(b"", 0)}


def test_several_changes_of_one_node_happen_in_their_order(place: Place) -> None:
    store = place.open()
    store.commit([Create("/a", b"1"), Put("/a", b"2", 0), CheckVersion("/a", 1)])
    assert store.get("/a") == StoreNode(b"2", 1)
    store.commit([Delete("/a", 1), Create("/a", b"3")])
    assert store.get("/a") == place.open().get("/a") == StoreNode(b"3", 0)


def test_children_are_those_directly_below(place: Place) -> None:
    store = place.open()
    store.commit(
        [Create("/t/a", b"1"), Create("/t/b", b"2"), Create("/t/a/x", b""), Create("/t", b"")]
    )
    for each in (store, place.open()):
        assert each.children("/t") == {"a": StoreNode(b"1", 0), "b": StoreNode(b"2", 0)}
        assert each.children("") == {"t": StoreNode(b"", 0)}
        assert each.children("/nothing") == {}


def test_children_belong_to_who_asked(place: Place) -> None:
    store = place.open()
    store.commit([Create("/t/a", b"1")])
    store.children("/t").clear()
    assert store.children("/t") == {"a": StoreNode(b"1", 0)}


def test_all_nodes_are_there_when_the_store_is_opened_again(place: Place) -> None:
    store = place.open()
    store.commit([Create(f"/t/{number}", b"%d" % number) for number in range(300)])
    store.commit([Delete("/t/7", 0), Put("/t/8", b"new", 0)])
    expected = store.children("/t")
    place.close(store)
    assert place.open().children("/t") == expected
    assert len(expected) == 299


def test_after_a_conflict_reads_show_what_it_was_in_conflict_with(place: Place) -> None:
    store, other = place.open(), place.open()
    for round_ in range(20):
        store.commit([Create(f"/{round_}", b"1")])
        other.commit([Put(f"/{round_}", b"2", 0)])
        with pytest.raises(Conflict):
            store.commit([Put(f"/{round_}", b"3", 0)])
        assert store.get(f"/{round_}") == StoreNode(b"2", 1)


@real_only
def test_processes_that_count_at_the_same_time_lose_nothing(place: Place) -> None:
    store = place.open()
    store.commit([Create("/counter", b"0")])
    with ExitStack() as stack:
        counting = [
            stack.enter_context(python_process(INCREMENT, place.address, "25")) for _ in range(4)
        ]
        assert [process.wait(60) for process in counting] == [0, 0, 0, 0]
    assert place.open().get("/counter") == StoreNode(b"100", 100)
    eventually(
        lambda: store.get("/counter") == StoreNode(b"100", 100), "the news reached the first"
    )


def random_change(random: Random, nodes: dict[str, StoreNode]) -> Change:
    """Mostly one that fits."""
    path = random.choice(["/a", "/t/a", "/t/b", "/t/a/x", "/live/1", "/live/2"])
    version = nodes[path].version if path in nodes else 0
    if random.random() < 0.1:
        version = random.choice([version + 1, max(0, version - 1)])
    kind = random.choice(
        [Create, Put, Put, Delete, CheckVersion] if path in nodes else [Create, Create, Put]
    )
    if kind is Create:
        return Create(path, random.randbytes(3), path.startswith("/live") and random.random() < 0.5)
    if kind is Put:
        return Put(path, random.randbytes(3), version)
    return kind(path, version)


def below(store: Store, parent: str, nodes: dict[str, StoreNode]) -> bool:
    return store.children(parent) == nodes


@real_only
def test_any_sequence_of_commits_ends_as_in_the_model(place: Place) -> None:
    """The model is the simulated store's inside: what a commit does, and on which node it fails."""
    random = Random(1)
    model = Ensemble(Random(0), lambda _seconds, _action: None)
    stores = {number: place.open() for number in (1, 2)}
    conflicts = 0
    for _ in range(300):
        number = random.choice([1, 2])
        changes = [random_change(random, model.nodes) for _ in range(random.choice([1, 1, 2, 4]))]
        expected = found = None
        try:
            model.apply(changes, number)
        except Conflict as conflict:
            expected = conflict.path
        try:
            stores[number].commit(changes)
        except Conflict as conflict:
            found = conflict.path
        assert found == expected, changes
        conflicts += found is not None
        for path in {change.path for change in changes}:
            assert stores[number].get(path) == model.nodes.get(path), changes
    assert 50 < conflicts < 250
    place.close(stores[1])
    model.end_session(1)
    fresh = place.open()
    for parent in ("", "/t", "/t/a", "/live"):
        expected_nodes = {
            path.removeprefix(f"{parent}/"): node
            for path, node in model.nodes.items()
            if path.rpartition("/")[0] == parent
        }
        assert fresh.children(parent) == expected_nodes
        same = partial(below, stores[2], parent, expected_nodes)
        eventually(same, f"the other one has the same below {parent}")


# ------------------------------------------------------------------------------------------ life


def test_an_ephemeral_node_goes_with_the_session_that_made_it(place: Place) -> None:
    store, other = place.open(), place.open()
    store.commit([Create("/live/1", b"one", ephemeral=True), Create("/stays", b"")])
    other.commit([Create("/live/2", b"two", ephemeral=True)])
    eventually(lambda: other.children("/live").keys() == {"1", "2"}, "both are seen")
    place.close(store)
    eventually(lambda: other.children("/live") == {"2": StoreNode(b"two", 0)}, "the end is seen")
    assert other.get("/stays") == StoreNode(b"", 0)
    assert place.open().children("/live") == {"2": StoreNode(b"two", 0)}


def test_an_ephemeral_node_can_be_written_and_deleted_by_others(place: Place) -> None:
    store, other = place.open(), place.open()
    store.commit([Create("/live/1", b"old", ephemeral=True)])
    other.commit([Put("/live/1", b"new", 0)])
    other.commit([Delete("/live/1", 1)])
    eventually(lambda: store.get("/live/1") is None, "the delete is seen")
    other.commit([Create("/live/1", b"mine", ephemeral=True)])
    place.close(store)  # takes nothing with it: the node is no longer its own
    assert place.open().get("/live/1") == other.get("/live/1") == StoreNode(b"mine", 0)


def test_an_ephemeral_node_can_be_taken_over_in_one_commit(place: Place) -> None:
    """As a broker does that comes back before its last session has ended."""
    before, store, other = place.open(), place.open(), place.open()
    before.commit([Create("/live/1", b"before", ephemeral=True)])
    eventually(lambda: store.get("/live/1") is not None, "it is seen")
    store.commit([Delete("/live/1", 0), Create("/live/1", b"now", ephemeral=True)])
    eventually(lambda: other.get("/live/1") == StoreNode(b"now", 0), "the others see it")
    place.close(before)
    assert place.open().get("/live/1") == StoreNode(b"now", 0)
    place.close(store)
    eventually(lambda: other.get("/live/1") is None, "it goes with its new session")


def test_a_session_may_make_its_node_again(place: Place) -> None:
    store = place.open()
    for _ in range(3):
        store.commit([Create("/live/1", b"", ephemeral=True)])
        store.commit([Delete("/live/1", 0)])
    store.commit([Create("/live/1", b"", ephemeral=True)])
    place.close(store)
    assert place.open().children("/live") == {}


def test_a_persistent_node_below_live_stays(place: Place) -> None:
    store = place.open()
    store.commit([Create("/live/1", b""), Create("/live/2", b"", ephemeral=True)])
    place.close(store)
    assert place.open().children("/live") == {"1": StoreNode(b"", 0)}


@real_only
def test_a_killed_process_takes_its_ephemeral_nodes_with_it(place: Place) -> None:
    store = place.open()
    changed = threading.Event()
    with python_process(LIVE_FOREVER, place.address) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        eventually(lambda: store.get("/live/7") == StoreNode(b"here", 0), "it is seen alive")
        store.watch(changed.set)
        process.kill()
        process.wait()
    eventually(lambda: store.get("/live/7") is None, "its end is seen")
    assert changed.wait(60)
    assert store.get("/stays") == StoreNode(b"", 0)


def test_an_ephemeral_node_elsewhere_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="/topics/a"):
        Create("/topics/a", b"", ephemeral=True)
    with pytest.raises(AssertionError, match="/live/a/b"):
        Create("/live/a/b", b"", ephemeral=True)


def test_a_session_reports_its_state_immediately(place: Place) -> None:
    told: list[StoreSession] = []
    store = place.open()
    store.on_session(told.append)
    store.commit([Create("/live/1", b"", ephemeral=True)])
    assert told == [StoreSession.CONNECTED]


# ------------------------------------------------------------------------------------------ news


def test_a_watch_is_notified_of_all_commits(place: Place) -> None:
    store, other = place.open(), place.open()
    changed = threading.Event()
    store.watch(changed.set)
    for writer in (other, store):
        for round_ in range(3):
            changed.clear()
            writer.commit([Create(f"/{writer is store}/{round_}", b"")])
            assert changed.wait(60)


def test_a_watch_is_notified_of_the_end_of_an_ephemeral_node(place: Place) -> None:
    store, other = place.open(), place.open()
    other.commit([Create("/live/1", b"", ephemeral=True)])
    eventually(lambda: store.get("/live/1") is not None, "it is seen alive")
    lists: list[dict[str, StoreNode]] = []
    store.watch(lambda: lists.append(store.children("/live")))
    place.close(other)
    eventually(lambda: {} in lists, "a notification after which it is gone")


@real_only
def test_every_watch_is_notified_even_if_another_fails(place: Place) -> None:
    store, other = place.open(), place.open()
    failed, changed = threading.Event(), threading.Event()

    def fail() -> None:
        failed.set()
        raise RuntimeError("a mistake in a listener")

    store.watch(fail)
    store.watch(changed.set)
    for round_ in range(2):
        failed.clear()
        changed.clear()
        other.commit([Create(f"/{round_}", b"")])
        assert failed.wait(60)
        assert changed.wait(60)


def test_a_change_can_be_read_after_its_notification(place: Place) -> None:
    """The last notification comes after the last commit, and reads are as new as it."""
    store, other = place.open(), place.open()
    seen: list[int] = []

    def look() -> None:
        node = store.get("/a")
        seen.append(-1 if node is None else node.version)

    store.watch(look)
    other.commit([Create("/a", b"")])
    for version in range(50):
        other.commit([Put("/a", b"", version)])
    eventually(lambda: bool(seen) and seen[-1] == 50, "the last one")
    assert seen == sorted(seen), "reads went back"
