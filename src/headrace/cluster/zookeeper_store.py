"""Metadata in a ZooKeeper ensemble: for a cluster on several machines.

A commit is one ZooKeeper transaction, which also sets the journal of what was touched
(`zookeeper_journal.py`). Every store holds all nodes in memory and follows the journal with one
watch, and ephemeral nodes, which end without a commit, with one more. The journal's version is
checked in every commit, so a commit succeeds only if the store had seen all earlier commits.
`zookeeper_tree.py` has the places of the nodes in ZooKeeper.
"""

import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    RolledBackError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState

from headrace.cluster.store import (
    LIVE,
    Change,
    CheckVersion,
    Conflict,
    Create,
    Delete,
    Put,
    StoreError,
    StoreNode,
    StoreSession,
    StoreUnreachable,
    parent_and_name,
    tell_all,
)
from headrace.cluster.zookeeper_connection import (
    check_not_refused,
    check_resolvable,
    make_client,
    parse_address,
)
from headrace.cluster.zookeeper_journal import Journal
from headrace.cluster.zookeeper_session import ZookeeperSession
from headrace.cluster.zookeeper_tree import JournalState, ZookeeperTree, wait

logger = logging.getLogger(__name__)

SESSION_TIMEOUT_MS = 2000
CONNECT_TIMEOUT_MS = 18_000
CALL_SECONDS = 3.0
"""The longest time of a commit, with all retries."""
COMMIT_BYTES = 1_000_000
"""ZooKeeper accepts 1,048,575 bytes per request (`jute.maxbuffer`), including the journal."""

_CHANGE_BYTES = 100
"""Overhead of a change in a request, beside its value and its path (also in the journal)."""
_FOLLOW_SECONDS = 30.0
_TRY_AGAIN_SECONDS = 1.0
_CONNECTED_POLL_SECONDS = 0.1
_WAITING_LOG_SECONDS = 5.0
_TRANSIENT = (
    ConnectionClosedError,
    ConnectionLoss,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
_ROUNDS = 100
"""How often to repeat a read because of a concurrent commit before using the result."""

_Nodes: TypeAlias = Mapping[str, Mapping[str, StoreNode]]  # by parent and name


class ZookeeperStore:
    """The nodes of `store.py` in ZooKeeper, all of them also in memory."""

    def __init__(
        self,
        address: str,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        login: tuple[str, str] | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
        stop_requested: Callable[[], bool] | None = None,
    ) -> None:
        """`address` is zookeeper://host:port,host:port/chroot; `login` a user and a password; nodes
        that this store creates are accessible only with them; `tls` returns the context for a new
        connection.

        Raises StoreUnreachable if no ZooKeeper answers within `connect_timeout_ms`. With
        `stop_requested` it waits for a ZooKeeper until that returns True; only host names that
        cannot be resolved for `connect_timeout_ms` are an error then.
        """
        self.address = address
        hosts, root = parse_address(address)
        self._nodes: _Nodes = {}
        self._journal: Journal | None = None  # as long as nothing was read
        self._journal_version = -1
        # Held during ZooKeeper requests: serialises commits and catching up.
        self._asking = threading.Lock()
        self._session = ZookeeperSession()
        self._changed: list[Callable[[], None]] = []
        self._stopped = threading.Event()
        self._news = threading.Event()
        self._client = make_client(hosts, session_timeout_ms, login, tls)
        self._tree = ZookeeperTree(self._client, root, self._news.set)
        self._client.add_listener(self._connection_changed)
        self._thread = threading.Thread(target=self._follow, name="metadata watch", daemon=True)
        self._start(connect_timeout_ms / 1000, stop_requested)

    def get(self, path: str) -> StoreNode | None:
        parent, name = parent_and_name(path)
        return self._nodes.get(parent, {}).get(name)

    def children(self, path: str) -> dict[str, StoreNode]:
        return dict(self._nodes.get(path, {}))

    def commit(self, changes: Sequence[Change]) -> None:
        _check_size(changes)
        deadline = time.monotonic() + CALL_SECONDS
        self._check_connected()
        with _readable_errors(self.address):
            try:
                with self._turn(deadline):
                    self._check_connected()
                    while not self._try(changes, deadline):
                        self._catch_up(deadline)
            except (KazooException, KazooTimeoutError):
                # The commit may have happened, or may still happen; ZooKeeper answers in order, so
                # the outcome is known after catching up.
                self._session.suspend()
                self._news.set()
                raise

    def watch(self, changed: Callable[[], None]) -> None:
        self._changed.append(changed)

    def on_session(self, listener: Callable[[StoreSession], None]) -> None:
        self._session.listen(listener)

    def close(self) -> None:
        self._stopped.set()
        self._news.set()
        self._client.remove_listener(self._connection_changed)
        self._client.stop()
        self._client.close()
        self._thread.join()

    # ----------------------------------------------------------------------------- commits

    def _try(self, changes: Sequence[Change], deadline: float) -> bool:
        """Whether the commit succeeded; False if newer commits must be read first."""
        for change in changes:
            if isinstance(change, Create):
                self._tree.make_container(change.path, deadline)
        assert self._journal is not None, "everything was read at the start"
        journal = self._journal.after(
            change.path for change in changes if not isinstance(change, CheckVersion)
        )
        transaction = self._tree.transaction(changes, journal, self._journal_version)
        results = wait(transaction.commit_async(), deadline)
        for change, result in zip(changes, results, strict=False):
            if isinstance(result, RolledBackError):
                continue
            if isinstance(change, Create) and isinstance(result, NoNodeError):
                self._tree.forget_containers()
                return False
            if isinstance(result, BadVersionError | NodeExistsError | NoNodeError):
                self._catch_up(deadline)
                raise Conflict(change.path)
            if isinstance(result, Exception):
                raise result
        if isinstance(results[-1], BadVersionError | NoNodeError):
            return False
        if isinstance(results[-1], Exception):
            raise results[-1]
        self._journal = journal
        self._journal_version = results[-1].version
        self._nodes = _with_commit(self._nodes, changes)
        return True

    # --------------------------------------------------------------------------- following

    def _start(self, connect_seconds: float, stop_requested: Callable[[], bool] | None) -> None:
        """Connect, read everything, and begin to follow."""
        began = time.monotonic()
        log_at = began + _WAITING_LOG_SECONDS
        live = self._client.start_async()
        try:
            while (losses := self._read_first(live)) is None:
                check_not_refused(self.address, self._client)
                now = time.monotonic()
                timed_out = now >= began + connect_seconds
                if timed_out:
                    check_resolvable(self.address, self._client)
                if timed_out if stop_requested is None else stop_requested():
                    raise StoreUnreachable(
                        f"{self.address}: no ZooKeeper answered within {connect_seconds:g} s; "
                        "check the address, and that the servers run and have a leader"
                    )
                if now >= log_at:
                    log_at = now + _WAITING_LOG_SECONDS
                    logger.warning(
                        "%s: no ZooKeeper has answered for %.0f s; waiting for it. Check the "
                        "address, and that the servers run and have a leader",
                        self.address, now - began,
                    )  # fmt: skip
        except BaseException:
            self._client.stop()
            self._client.close()
            raise
        self._session.begin(losses)
        self._thread.start()

    def _read_first(self, live: threading.Event) -> int | None:
        """Read everything if connected; the number of connections lost so far, or None."""
        if self._client.client_state == KeeperState.AUTH_FAILED:
            raise StoreError(f"{self.address}: ZooKeeper refuses the login")
        if not live.wait(_CONNECTED_POLL_SECONDS):
            return None
        losses = self._session.losses
        deadline = time.monotonic() + _FOLLOW_SECONDS
        try:
            with _readable_errors(self.address):
                self._tree.create_journal(deadline)
                self._catch_up(deadline)
        except StoreUnreachable as error:
            logger.warning("cannot read the metadata yet: %s; retrying", error)
            return None
        return losses

    def _follow(self) -> None:
        """The thread that updates the nodes in memory and calls the listeners."""
        while not self._stopped.is_set():
            self._news.wait()
            self._news.clear()
            losses = self._session.losses
            deadline = time.monotonic() + _FOLLOW_SECONDS
            try:
                with _readable_errors(self.address), self._turn(deadline):
                    self._catch_up(deadline)
            except StoreError as error:
                if self._stopped.is_set():
                    return
                self._session.suspend()
                # Not connected: the next connection triggers another attempt.
                if self._client.connected:
                    logger.error("cannot follow the metadata: %s", error)
                    self._stopped.wait(_TRY_AGAIN_SECONDS)
                    self._news.set()
                continue
            self._session.resume(losses)
            tell_all(self._changed)

    def _catch_up(self, deadline: float) -> None:
        """Read what changed since the last time; the nodes then are a consistent snapshot."""
        if self._session.is_suspended:
            # This server may be behind the one that accepted our last commit.
            self._tree.sync(deadline)
        nodes, journal = self._nodes, self._journal
        _, state = self._tree.read((), deadline)
        for _ in range(_ROUNDS):
            seen = self._checked(state)
            touched = None if journal is None else seen.journal.since(journal.number)
            journal = seen.journal
            if touched is None:
                nodes = _with_nodes({}, self._tree.read_all(deadline))
                _, state = self._tree.read((), deadline)
                continue
            # Ephemeral nodes expire without a commit.
            touched |= {f"{LIVE}/{name}" for name in nodes.get(LIVE, {}).keys() ^ seen.living}
            if not touched:
                break
            found, state = self._tree.read(touched, deadline)
            nodes = _with_nodes(nodes, found)
        self._nodes, self._journal, self._journal_version = nodes, journal, seen.version

    def _checked(self, state: JournalState | None) -> JournalState:
        """The state; StoreError if its journal does not belong to the nodes read before.

        With other data all topics would appear deleted, and brokers would remove their logs.
        """
        if state is None or not (self._journal is None or state.journal.continues(self._journal)):
            raise StoreError(
                f"{self.address}: these are not the metadata that were there before; ZooKeeper has "
                "lost its data, or was set back. Stop the brokers, and restore ZooKeeper's data"
            )
        return state

    def _connection_changed(self, state: str) -> None:
        """Called by kazoo, in the thread that reads from the connection."""
        if state == KazooState.CONNECTED:
            self._news.set()  # listeners are called after catching up
        else:
            self._session.suspend(expired=state == KazooState.LOST)

    def _check_connected(self) -> None:
        if self._session.is_suspended:
            raise StoreUnreachable(f"{self.address}: no connection to ZooKeeper; trying to get one")

    @contextmanager
    def _turn(self, deadline: float) -> Iterator[None]:
        if not self._asking.acquire(timeout=max(0, deadline - time.monotonic())):
            raise KazooTimeoutError
        try:
            yield
        finally:
            self._asking.release()


@contextmanager
def _readable_errors(address: str) -> Iterator[None]:
    try:
        yield
    except NoAuthError as error:
        raise StoreError(
            f"{address}: ZooKeeper refuses access to a node, which was created with another "
            "login or without one"
        ) from error
    except KazooTimeoutError as error:
        raise StoreUnreachable(f"{address}: ZooKeeper did not answer in time") from error
    except _TRANSIENT as error:
        name = type(error).__name__
        raise StoreUnreachable(f"{address}: ZooKeeper does not answer ({name})") from error
    except KazooException as error:
        raise StoreError(f"{address}: {type(error).__name__} {error}") from error


def _check_size(changes: Sequence[Change]) -> None:
    """Refuse a request that is too large: ZooKeeper would close the connection without an error."""
    sizes = {
        change.path: len(change.value) if isinstance(change, Create | Put) else 0
        for change in changes
    }
    total = sum(size + 2 * len(path) + _CHANGE_BYTES for path, size in sizes.items())
    if total > COMMIT_BYTES:
        path = max(sizes, key=lambda path: sizes[path])
        raise StoreError(
            f"a change of {len(sizes):,} metadata nodes would have {total:,} bytes, "
            f"{sizes[path]:,} of them for {path}; ZooKeeper takes {COMMIT_BYTES:,} at once. Change "
            "fewer topics at once, or give a topic fewer partitions"
        )


def _with_commit(nodes: _Nodes, changes: Iterable[Change]) -> _Nodes:
    found: dict[str, StoreNode | None] = {}
    for change in changes:
        if isinstance(change, Create):
            found[change.path] = StoreNode(change.value, 0)
        elif isinstance(change, Put):
            found[change.path] = StoreNode(change.value, change.version + 1)
        elif isinstance(change, Delete):
            found[change.path] = None
    return _with_nodes(nodes, found)


def _with_nodes(nodes: _Nodes, found: Mapping[str, StoreNode | None]) -> _Nodes:
    """Replace the dictionaries: readers see all of a commit or nothing."""
    changed: dict[str, dict[str, StoreNode]] = {}
    for path, node in found.items():
        parent, name = parent_and_name(path)
        below = changed.get(parent)
        if below is None:
            below = changed[parent] = dict(nodes.get(parent, {}))
        if node is None:
            below.pop(name, None)
        else:
            below[name] = node
    return {**nodes, **changed}
