"""The ZooKeeper store: expired sessions and lost connections."""

import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from headrace.broker.metadata_stores import open_store
from headrace.cluster.store import (
    Conflict,
    Create,
    Delete,
    Put,
    StoreError,
    StoreNode,
    StoreSession,
)
from headrace.cluster.zookeeper_journal import COMMITS, load_journal
from headrace.cluster.zookeeper_store import COMMIT_BYTES, ZookeeperStore
from headrace.settings import Settings
from tests.support.link import Link
from tests.support.ports import free_port
from tests.support.stores import LONG_SESSION_MS, SHORT_SESSION_MS, eventually, python_process
from tests.support.zookeeper import ZooKeeper

pytestmark = pytest.mark.java

TELL_OF_THE_SESSION = """
import sys
from headrace.cluster.store import Create
from tests.support.stores import SHORT_SESSION_MS, open_store
store = open_store(sys.argv[1], SHORT_SESSION_MS)
store.commit([Create("/live/7", b"", ephemeral=True)])
store.on_session(lambda news: print(news.name, sorted(store.children("/live")), flush=True))
sys.stdin.read()
"""

Open = Callable[..., ZookeeperStore]


@pytest.fixture
def chroot() -> str:
    return f"/{uuid.uuid4().hex}"


@pytest.fixture
def opened(zookeeper: ZooKeeper, chroot: str) -> Iterator[Open]:
    """Opens stores, directly or through a link, and closes them in the end.

    Through a link their sessions end soon after a cut, unless they are `lasting`.
    """
    with ExitStack() as stack:

        def open_one(link: Link | None = None, *, lasting: bool = False) -> ZookeeperStore:
            port = zookeeper.servers[0].port if link is None else link.port
            store = ZookeeperStore(
                f"zookeeper://127.0.0.1:{port}{chroot}",
                session_timeout_ms=SHORT_SESSION_MS if link and not lasting else LONG_SESSION_MS,
            )
            stack.callback(store.close)
            return store

        yield open_one


@pytest.fixture
def link(zookeeper: ZooKeeper) -> Iterator[Link]:
    with Link(zookeeper.servers[0].port) as link:
        yield link


class Told:
    """What a store said of its session."""

    def __init__(self, store: ZookeeperStore) -> None:
        self.news: list[StoreSession] = []
        store.on_session(self.news.append)

    def wait_for(self, *news: StoreSession) -> None:
        expected = [StoreSession.CONNECTED, *news]
        eventually(lambda: self.news == expected, f"{expected}; told was {self.news}")


# --------------------------------------------------------------------------------------- sessions


def test_a_lost_connection_is_reported_and_restored_with_the_session(
    opened: Open, link: Link
) -> None:
    store, other = opened(link, lasting=True), opened()
    store.commit([Create("/live/1", b"", ephemeral=True), Create("/a", b"")])
    seen: list[StoreNode | None] = []
    store.on_session(lambda news: seen.append(store.get("/a")))
    told = Told(store)
    link.refuse()
    told.wait_for(StoreSession.SUSPENDED)
    other.commit([Put("/a", b"meanwhile", 0)])
    link.heal()
    told.wait_for(StoreSession.SUSPENDED, StoreSession.CONNECTED)
    assert seen[-1] == StoreNode(b"meanwhile", 1), "told before the reads were as new"
    assert other.children("/live").keys() == {"1"}
    changed = threading.Event()
    store.watch(changed.set)
    other.commit([Put("/a", b"later", 1)])
    assert changed.wait(60), "the watch did not outlive the connection"


def test_a_silent_cut_is_reported_then_the_expiry_and_nothing_waits_meanwhile(
    opened: Open, link: Link
) -> None:
    store, other = opened(link), opened()
    store.commit([Create("/live/1", b"", ephemeral=True)])
    told = Told(store)
    link.cut()
    told.wait_for(StoreSession.SUSPENDED)
    for _ in range(1000):  # would take most of an hour if each waited for an answer
        with pytest.raises(StoreError, match="no connection"):
            store.commit([Create("/a", b"")])
    assert store.children("/live").keys() == {"1"}, "reads show what was known last"
    eventually(lambda: other.children("/live") == {}, "the session has ended for the others")
    link.hang_up()
    link.heal()
    told.wait_for(StoreSession.SUSPENDED, StoreSession.EXPIRED)
    assert store.children("/live") == {}
    assert store.get("/a") is None
    store.commit([Create("/live/1", b"again", ephemeral=True)])
    eventually(lambda: other.get("/live/1") == StoreNode(b"again", 0), "it is seen alive again")


def test_a_process_that_was_stopped_for_too_long_is_notified_of_its_expired_session(
    zookeeper: ZooKeeper, chroot: str, opened: Open
) -> None:
    store = opened()
    with python_process(TELL_OF_THE_SESSION, zookeeper.address(chroot)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "CONNECTED ['7']\n"
        eventually(lambda: store.children("/live").keys() == {"7"}, "it is seen alive")
        process.send_signal(signal.SIGSTOP)
        eventually(lambda: store.children("/live") == {}, "it is taken for dead")
        process.send_signal(signal.SIGCONT)
        assert process.stdout.readline() == "SUSPENDED ['7']\n"
        assert process.stdout.readline() == "EXPIRED []\n"


# ------------------------------------------------------------------------------- unknown outcomes


def test_a_commit_whose_answer_is_lost_is_an_error_and_reads_show_that_it_happened(
    opened: Open, link: Link
) -> None:
    store, other = opened(link), opened()
    store.commit([Create("/a", b"")])
    told = Told(store)
    link.cut_behind(b"happened")
    with pytest.raises(StoreError):
        store.commit([Put("/a", b"happened", 0)])
    link.hang_up()
    link.heal()
    eventually(lambda: told.news[-1] is not StoreSession.SUSPENDED, f"told was {told.news}")
    assert store.get("/a") == StoreNode(b"happened", 1)
    eventually(lambda: other.get("/a") == StoreNode(b"happened", 1), "the others see it too")


def test_a_commit_that_never_arrived_is_an_error_and_reads_show_that_it_did_not_happen(
    opened: Open, link: Link
) -> None:
    store = opened(link)
    store.commit([Create("/a", b"")])
    told = Told(store)
    link.cut_before(b"never")
    with pytest.raises(StoreError):
        store.commit([Put("/a", b"never", 0)])
    link.hang_up()
    link.heal()
    eventually(lambda: told.news[-1] is not StoreSession.SUSPENDED, f"told was {told.news}")
    assert store.get("/a") == StoreNode(b"", 0)
    store.commit([Put("/a", b"now", 0)])


def test_a_commit_that_takes_too_long_suspends_the_session_until_it_is_known(
    link: Link, chroot: str
) -> None:
    """The connection stands all the time: nobody gives up within a minute."""
    address = f"zookeeper://127.0.0.1:{link.port}{chroot}"
    store = ZookeeperStore(address, session_timeout_ms=LONG_SESSION_MS)
    store.commit([Create("/a", b"")])
    told = Told(store)
    link.cut_behind(b"happens")
    with pytest.raises(StoreError, match="in time"):
        store.commit([Put("/a", b"happens", 0)])
    assert told.news == [StoreSession.CONNECTED, StoreSession.SUSPENDED]
    assert store.get("/a") == StoreNode(b"", 0)
    link.heal()
    told.wait_for(StoreSession.SUSPENDED, StoreSession.CONNECTED)
    assert store.get("/a") == StoreNode(b"happens", 1)
    store.close()


# ------------------------------------------------------------------------------------- the mirror


def test_one_who_fell_further_behind_than_the_journal_reaches_reads_everything(
    opened: Open, link: Link
) -> None:
    store, other = opened(link), opened()
    other.commit([Create("/t/stays", b""), Create("/t/goes", b"")])
    eventually(lambda: len(store.children("/t")) == 2, "the beginning is seen")
    told = Told(store)
    link.refuse()
    told.wait_for(StoreSession.SUSPENDED)
    other.commit([Delete("/t/goes", 0), Create("/u/new", b"")])
    for number in range(COMMITS + 1):
        other.commit([Create(f"/v/{number}", b"")])
    link.heal()
    eventually(lambda: told.news[-1] is not StoreSession.SUSPENDED, f"told was {told.news}")
    for parent in ("/t", "/u", "/v"):
        assert store.children(parent) == other.children(parent)
    assert store.children("/t").keys() == {"stays"}
    assert len(store.children("/v")) == COMMITS + 1


def test_all_of_a_commit_is_seen_or_nothing(opened: Open) -> None:
    store, other = opened(), opened()
    other.commit([Create("/pair", b"0")])
    torn: list[tuple[StoreNode | None, StoreNode | None]] = []
    done = threading.Event()

    def look() -> None:
        pair = store.children("")
        if pair.get("pair") != pair.get("twin") and "twin" in pair:
            torn.append((pair["pair"], pair["twin"]))
        if pair["pair"].value == b"end":
            done.set()

    store.watch(look)
    other.commit([Create("/twin", b"1"), Delete("/pair", 0), Create("/pair", b"1")])
    for number in range(50):
        value = b"%d" % number
        other.commit([Put("/pair", value, number), Put("/twin", value, number)])
    other.commit([Put("/pair", b"end", 50), Put("/twin", b"end", 50)])
    assert done.wait(60)
    assert torn == []


def test_nodes_are_where_the_documents_say(zookeeper: ZooKeeper, chroot: str, opened: Open) -> None:
    store = opened()
    store.commit([Create("/cluster", b"1"), Create("/topics/a", b"2"), Create("/x/y/z", b"3")])
    store.commit([Create("/live/4", b"4", ephemeral=True)])
    client = KazooClient(zookeeper.servers[0].address)
    client.start()
    try:
        for path, value in [
            ("top/cluster", b"1"),
            ("topics/a", b"2"),
            ("x%2Fy/z", b"3"),
            ("live/4", b"4"),
        ]:
            assert client.get(f"{chroot}/{path}")[0] == value
        assert client.get(f"{chroot}/live/4")[1].ephemeralOwner != 0
        journal = load_journal(client.get(f"{chroot}/changes")[0])
        assert journal.number == 2
        assert journal.commits == (("/cluster", "/topics/a", "/x/y/z"), ("/live/4",))
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize("becomes", ["nothing", "new", "older"])
def test_metadata_that_are_not_the_same_any_more_are_never_taken_for_deleted(
    zookeeper: ZooKeeper, chroot: str, opened: Open, becomes: str
) -> None:
    """Brokers would delete their data."""
    client = KazooClient(zookeeper.servers[0].address)
    client.start()
    store = opened()
    store.commit([Create("/topics/a", b"")])
    old = client.get(f"{chroot}/changes")[0]
    store.commit([Create("/topics/b", b"")])
    told = Told(store)
    if becomes == "older":  # as from a backup
        client.delete(f"{chroot}/topics/b")
        client.set(f"{chroot}/changes", old)
    else:
        client.delete(chroot, recursive=True)
        if becomes == "new":
            opened()
    client.stop()
    client.close()
    told.wait_for(StoreSession.SUSPENDED)
    with pytest.raises(StoreError):
        store.commit([Create("/topics/c", b"")])
    assert store.children("/topics").keys() == {"a", "b"}


# ------------------------------------------------------------------------------- mistakes, limits


def test_a_node_that_zookeeper_would_not_take_is_named_and_the_store_goes_on(opened: Open) -> None:
    store = opened()
    store.commit([Create("/topics/wide", b"x" * (COMMIT_BYTES - 200))])
    with pytest.raises(StoreError, match="1,000,001 of them for /topics/too-wide"):
        store.commit(
            [Create("/topics/small", b"x"), Create("/topics/too-wide", b"x" * (COMMIT_BYTES + 1))]
        )
    assert store.children("/topics").keys() == {"wide"}
    store.commit([Create("/topics/small", b"x")])


def test_as_many_nodes_as_are_allowed_are_taken_at_once(opened: Open) -> None:
    """With the longest names and a full journal."""
    store, other = opened(), opened()
    for number in range(80):
        store.commit([Create(f"/t/{number:0249}", b"")])
    names = [f"{number:0249}" for number in range(100, 100 + COMMIT_BYTES // 700)]
    changes = [Create(f"/t/{name}", b"x" * (700 - 604)) for name in names]
    store.commit(changes)
    eventually(lambda: len(other.children("/t")) == 80 + len(names), "the others see them")
    with pytest.raises(StoreError, match=r"a change of 1,429 metadata nodes"):
        store.commit([Delete(f"/t/{name}", 0) for name in names] + [Create("/u", b"x" * 400_000)])


@pytest.mark.parametrize(
    "address",
    [
        "zookeeper://",
        "zookeeper:///path",
        "zookeeper://a,,b",
        "zookeeper://a:port",
        "zookeeper://a//b",
        "zookeeper://a/..",
        "zk://a",
        "a:2181",
    ],
)
def test_what_is_no_address_is_named_with_what_was_expected(address: str) -> None:
    with pytest.raises(StoreError, match=r"HOST:PORT,HOST:PORT/PATH") as raised:
        ZookeeperStore(address)
    assert f"'{address}'" in str(raised.value)


def test_without_a_zookeeper_there_the_error_names_the_address() -> None:
    address = f"zookeeper://127.0.0.1:{free_port()}/headrace"
    with pytest.raises(StoreError, match=f"{address}: no ZooKeeper answered within 0.5 s"):
        ZookeeperStore(address, connect_timeout_ms=500)


def test_with_a_login_other_clients_cannot_read_or_write(zookeeper: ZooKeeper, chroot: str) -> None:
    address = zookeeper.address(chroot)
    store = ZookeeperStore(
        address, login=("headrace", "secret"), session_timeout_ms=LONG_SESSION_MS
    )
    store.commit([Create("/a", b"1")])
    for login in (None, ("headrace", "guessed")):
        with pytest.raises(StoreError, match="another login"):
            ZookeeperStore(address, login=login)
    given = {"headrace.metadata": address, "headrace.metadata.login": "headrace:secret"}
    again = open_store(Settings.parse(given), "").store
    assert again.get("/a") == StoreNode(b"1", 0)
    again.close()
    store.close()


# --------------------------------------------------------------------------------------- ensemble


def test_commits_go_on_when_the_leader_of_an_ensemble_is_killed(tmp_path: Path) -> None:
    with ZooKeeper(tmp_path, servers=3) as ensemble:
        store = ZookeeperStore(ensemble.address("/headrace"), session_timeout_ms=SHORT_SESSION_MS)
        store.commit([Create("/counter", b"0")])

        def add_one() -> None:
            """Whatever becomes of each attempt: read, and try again unless it happened."""
            before = store.get("/counter")
            assert before is not None
            value = b"%d" % (int(before.value) + 1)

            def happened() -> bool:
                try:
                    node = store.get("/counter")
                    if node == before:
                        store.commit([Put("/counter", value, before.version)])
                except (StoreError, Conflict):
                    pass  # only we write: it has happened, or nobody knows
                return store.get("/counter") == StoreNode(value, before.version + 1)

            eventually(happened, "one more")

        for _ in range(20):
            add_one()
        killed = ensemble.leader()
        killed.kill()
        for _ in range(20):
            add_one()
        assert ensemble.leader() is not killed
        fresh = ZookeeperStore(ensemble.address("/headrace"))
        assert fresh.get("/counter") == StoreNode(b"40", 40)
        fresh.close()
        store.close()
