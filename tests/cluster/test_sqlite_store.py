"""The store's promises: versions, all or nothing, and still there after a crash."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cluster.sqlite_store import FILE_NAME, SqliteStore
from headrace.cluster.store import Conflict, Create, Delete, Node, Put, StoreError


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(str(tmp_path))


def test_a_node_counts_its_writes(store: SqliteStore) -> None:
    store.commit([Create("/a/b", b"1")])
    assert store.get("/a/b") == Node(b"1", 0)
    store.commit([Put("/a/b", b"2", 0)])
    assert store.get("/a/b") == Node(b"2", 1)
    store.commit([Delete("/a/b", 1)])
    assert store.get("/a/b") is None


@pytest.mark.parametrize(
    "change",
    [Create("/a", b""), Put("/a", b"", 7), Put("/b", b"", 0), Delete("/a", 7), Delete("/b", 0)],
)
def test_a_change_of_something_else_is_a_conflict_and_nothing_happens(
    store: SqliteStore, change: Create | Put | Delete
) -> None:
    store.commit([Create("/a", b"1")])
    with pytest.raises(Conflict, match=change.path):
        store.commit([Create("/new", b""), change])
    assert store.get("/a") == Node(b"1", 0)
    assert store.get("/new") is None


def test_children_are_those_directly_below(store: SqliteStore) -> None:
    store.commit(
        [Create("/t/a", b"1"), Create("/t/b", b"2"), Create("/t/a/x", b""), Create("/t", b"")]
    )
    assert store.children("/t") == {"a": Node(b"1", 0), "b": Node(b"2", 0)}


def test_two_stores_on_one_file_see_each_other(store: SqliteStore, tmp_path: Path) -> None:
    other = SqliteStore(str(tmp_path))
    store.commit([Create("/a", b"1")])
    other.commit([Put("/a", b"2", 0)])
    with pytest.raises(Conflict):
        store.commit([Put("/a", b"3", 0)])
    assert store.get("/a") == Node(b"2", 1)


def test_what_is_committed_survives_a_kill(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from headrace.cluster.sqlite_store import SqliteStore\n"
        "from headrace.cluster.store import Create\n"
        "store = SqliteStore(sys.argv[1])\n"
        "store.commit([Create('/a', b'1')])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = os.pathsep.join(entry for entry in sys.path if entry)
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], env={"PYTHONPATH": path}, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    assert SqliteStore(str(tmp_path)).get("/a") == Node(b"1", 0)


def test_a_file_that_is_no_store_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"something else entirely" * 100)
    with pytest.raises(StoreError, match=FILE_NAME):
        SqliteStore(str(tmp_path))


def test_a_folder_that_is_not_there_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        SqliteStore(str(tmp_path / "nowhere"))
