"""The SQLite store: crashes, processes of one machine, and older files."""

import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import pytest

from headrace.cluster import sqlite_store
from headrace.cluster.sqlite_store import FILE_NAME, SESSIONS_FILE_NAME, SqliteStore
from headrace.cluster.store import Create, Put, StoreError, StoreNode
from tests.support.stores import eventually, python_process


def test_what_is_committed_survives_a_kill(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from headrace.cluster.sqlite_store import SqliteStore\n"
        "from headrace.cluster.store import Create\n"
        "store = SqliteStore(sys.argv[1])\n"
        "store.commit([Create('/a', b'1')])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with python_process(script, str(tmp_path)) as process:
        assert process.wait(60) == -signal.SIGKILL
    assert SqliteStore(str(tmp_path)).get("/a") == StoreNode(b"1", 0)


def test_a_file_that_is_no_store_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"something else entirely" * 100)
    with pytest.raises(StoreError, match=FILE_NAME):
        SqliteStore(str(tmp_path))


def test_a_folder_that_is_not_there_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        SqliteStore(str(tmp_path / "nowhere"))


def test_a_file_of_the_first_version_opens_with_all_its_nodes(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / FILE_NAME)
    old.execute("pragma journal_mode = wal")
    old.execute(
        "create table nodes (parent text not null, name text not null, value blob not null, "
        "version integer not null, primary key (parent, name)) without rowid"
    )
    old.execute("insert into nodes values ('/topics', 'a', x'31', 7)")
    old.commit()
    old.close()
    store = SqliteStore(str(tmp_path))
    store.commit([Put("/topics/a", b"2", 7), Create("/live/1", b"", ephemeral=True)])
    assert store.get("/topics/a") == StoreNode(b"2", 8)
    store.close()


def test_after_a_kill_of_all_no_broker_is_live(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from headrace.cluster.sqlite_store import SqliteStore\n"
        "from headrace.cluster.store import Create\n"
        "store = SqliteStore(sys.argv[1])\n"
        "store.commit([Create('/live/1', b'', ephemeral=True)])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    for _ in range(2):
        with python_process(script, str(tmp_path)) as process:
            assert process.wait(60) == -signal.SIGKILL
        store = SqliteStore(str(tmp_path))
        assert store.children("/live") == {}
        store.close()


def test_processes_that_are_killed_while_they_commit_tear_nothing(tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from headrace.cluster.sqlite_store import SqliteStore\n"
        "from headrace.cluster.store import Conflict, Create, Put\n"
        "store, own = SqliteStore(sys.argv[1]), '/own/' + sys.argv[2]\n"
        "store.watch(lambda: None)\n"
        "store.commit([Create('/live/' + sys.argv[2], b'', ephemeral=True)])\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    mine, all_ = store.get(own), store.get('/all')\n"
        "    plus = lambda node: b'%d' % (int(node.value) + 1)\n"
        "    try:\n"
        "        store.commit([Put(own, plus(mine), mine.version),\n"
        "                      Put('/all', plus(all_), all_.version)])\n"
        "    except Conflict:\n"
        "        pass\n"
        "    time.sleep(0.01)\n"  # SQLite lets others starve behind one that never pauses
    )
    store = SqliteStore(str(tmp_path))
    store.commit([Create("/all", b"0"), *(Create(f"/own/{number}", b"0") for number in range(3))])
    random = Random(1)

    def total() -> int:
        return sum(int(node.value) for node in store.children("/own").values())

    for _ in range(4):
        before = total()
        with ExitStack() as stack:
            processes = [
                stack.enter_context(python_process(script, str(tmp_path), str(number)))
                for number in range(3)
            ]
            for process in processes:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
            eventually(lambda: total() > before + 10, "they count")  # noqa: B023
            for process in random.sample(processes, 3):
                process.kill()
                process.wait()
        everything = store.get("/all")
        assert everything is not None
        assert int(everything.value) == total()
    store.watch(lambda: None)
    eventually(lambda: store.children("/live") == {}, "the killed are cleared up behind")
    store.close()


def test_a_session_that_begins_under_its_own_watch_is_not_taken_for_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(str(tmp_path))
    watching = sqlite3.connect(store.path, isolation_level=None)
    transaction = sqlite_store._transaction

    @contextmanager
    def looked_at(connection: sqlite3.Connection) -> Iterator[None]:
        """As when the watch looks in the very moment after a commit."""
        with transaction(connection):
            yield
        if connection is store._connection:
            store._clear_up(watching)

    monkeypatch.setattr(sqlite_store, "_transaction", looked_at)
    store.commit([Create("/live/1", b"", ephemeral=True)])
    assert watching.execute("select count(*) from sessions").fetchone() == (1,)
    watching.close()
    store.close()


def test_opening_does_not_end_the_sessions_of_others(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path))
    store.commit([Create("/live/1", b"", ephemeral=True)])
    for _ in range(2):
        other = SqliteStore(str(tmp_path))
        assert other.children("/live") == {"1": StoreNode(b"", 0)}
        other.close()
    store.close()


def test_a_store_alone_pays_for_neither_a_thread_nor_a_session(tmp_path: Path) -> None:
    before = threading.active_count()
    store = SqliteStore(str(tmp_path))
    store.commit([Create("/a", b"")])
    assert threading.active_count() == before
    assert not (tmp_path / SESSIONS_FILE_NAME).exists()
    store.close()


def test_only_the_owner_reads_a_new_file_and_those_beside_it(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path))
    store.commit([Create("/a", b"1")])
    databases = [path for path in tmp_path.iterdir() if path.name.startswith(FILE_NAME)]
    assert len(databases) > 1
    assert {path.stat().st_mode & 0o777 for path in databases} == {0o600}
    store.close()


@pytest.mark.parametrize(
    ("mode", "wanted"), [(0o644, 0o600), (0o664, 0o660), (0o640, 0o600), (0o600, 0o600)]
)
def test_files_of_earlier_versions_are_restricted(
    tmp_path: Path, mode: int, wanted: int, caplog: pytest.LogCaptureFixture
) -> None:
    store, other = SqliteStore(str(tmp_path)), SqliteStore(str(tmp_path))
    store.commit([Create("/cluster", b"{}")])
    databases = list(tmp_path.glob(f"{FILE_NAME}*"))
    assert len(databases) == 3
    for path in databases:
        path.chmod(mode)
    store.close()
    with caplog.at_level("WARNING"):
        SqliteStore(str(tmp_path)).close()
    assert {path.stat().st_mode & 0o777 for path in databases} == {wanted}
    assert bool(caplog.records) == (mode != wanted)
    other.close()
