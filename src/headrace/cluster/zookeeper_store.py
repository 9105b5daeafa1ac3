"""Metadata in a ZooKeeper ensemble: for a cluster on several machines.

The node `/topics/orders` is ZooKeeper's node of that path below the chroot; one without a parent,
as `/cluster`, is at `/top/cluster`; a parent of several names, as `/a/b`, is one name, `a%2Fb`. So
no node of ours has another below it, and ZooKeeper's versions are ours.

A commit is one ZooKeeper transaction, which also sets `/changes`, the journal of what was touched
(`zookeeper_journal.py`). Every store holds all nodes in memory and follows the journal with one
watch, and ephemeral nodes, which end without a commit, with one more. The journal's version is
checked in every commit, so a commit succeeds only if the store had seen all earlier commits.
"""

import logging
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

from kazoo.client import KazooClient, TransactionRequest
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
from kazoo.security import make_digest_acl

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
from headrace.cluster.zookeeper_connection import ConnectionHandler
from headrace.cluster.zookeeper_journal import Journal, load_journal, new_journal
from headrace.cluster.zookeeper_reads import ReadNodes

logger = logging.getLogger(__name__)

SCHEME = "zookeeper://"
SESSION_TIMEOUT_MS = 2000
CONNECT_TIMEOUT_MS = 18_000
CALL_SECONDS = 3.0
"""The longest time of a commit, with all retries."""
COMMIT_BYTES = 1_000_000
"""ZooKeeper accepts 1,048,575 bytes per request (`jute.maxbuffer`), including the journal."""

_HOST = r"(?:\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::\d{1,5})?"
_ADDRESS = re.compile(
    rf"{SCHEME}(?P<hosts>{_HOST}(?:,{_HOST})*)(?P<chroot>(?:/[\w-][\w.-]*)*)/?", re.ASCII
)
_CHANGE_BYTES = 100
"""Overhead of a change in a request, beside its value and its path (also in the journal)."""
_CHANGES = "changes"
_TOP = "top"
_READ_AT_ONCE = 200
_PIPELINED = 100
"""Requests in flight; kazoo blocks at a few hundred while the connection is lost."""
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
_Question: TypeAlias = Callable[[], Any]  # starts a kazoo request and returns its pending result


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
        hosts, self._root = _parse(address)
        self._nodes: _Nodes = {}
        self._containers: set[str] = set()
        self._journal: Journal | None = None  # as long as nothing was read
        self._journal_version = -1
        # Held during ZooKeeper requests: serialises commits and catching up.
        self._asking = threading.Lock()
        # Held while listeners are called, so that session events arrive in order.
        self._telling = threading.RLock()
        self._session = StoreSession.SUSPENDED
        self._losses = 0
        self._expired = False
        self._told: list[Callable[[StoreSession], None]] = []
        self._changed: list[Callable[[], None]] = []
        self._stopped = threading.Event()
        self._news = threading.Event()
        self._client = _client(hosts, session_timeout_ms, login, tls)
        self._children = self._client.get_children_async
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
        with self._readable_errors():
            try:
                with self._turn(deadline):
                    self._check_connected()
                    while not self._try(changes, deadline):
                        self._catch_up(deadline)
            except (KazooException, KazooTimeoutError):
                # The commit may have happened, or may still happen; ZooKeeper answers in order, so
                # the outcome is known after catching up.
                self._suspend()
                self._news.set()
                raise

    def watch(self, changed: Callable[[], None]) -> None:
        self._changed.append(changed)

    def on_session(self, told: Callable[[StoreSession], None]) -> None:
        with self._telling:
            self._told.append(told)
            told(self._session)

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
                self._make_container(change.path, deadline)
        assert self._journal is not None, "everything was read at the start"
        journal = self._journal.after(
            change.path for change in changes if not isinstance(change, CheckVersion)
        )
        transaction: TransactionRequest = self._client.transaction()
        for change in changes:
            self._add(transaction, change)
        transaction.set_data(self._changes, journal.dump(), self._journal_version)
        results = _wait(transaction.commit_async(), deadline)
        for change, result in zip(changes, results, strict=False):
            if isinstance(result, RolledBackError):
                continue
            if isinstance(change, Create) and isinstance(result, NoNodeError):
                self._containers.clear()  # another program removed the parent
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

    def _add(self, transaction: TransactionRequest, change: Change) -> None:
        path = self._place(change.path)
        if isinstance(change, Create):
            transaction.create(path, change.value, ephemeral=change.ephemeral)
            return
        assert change.version >= 0, f"{change}: to ZooKeeper -1 is any version"
        if isinstance(change, Put):
            transaction.set_data(path, change.value, change.version)
        elif isinstance(change, Delete):
            transaction.delete(path, change.version)
        else:
            transaction.check(path, change.version)

    def _make_container(self, path: str, deadline: float) -> None:
        container = self._container(parent_and_name(path)[0])
        if container not in self._containers:
            with suppress(NodeExistsError):
                _wait(self._client.create_async(container, b"", makepath=True), deadline)
            self._containers.add(container)

    # --------------------------------------------------------------------------- following

    def _start(self, connect_seconds: float, stop_requested: Callable[[], bool] | None) -> None:
        """Connect, read everything, and begin to follow."""
        began = time.monotonic()
        log_at = began + _WAITING_LOG_SECONDS
        live = self._client.start_async()
        try:
            while (losses := self._read_first(live)) is None:
                self._check_not_refused()
                now = time.monotonic()
                timed_out = now >= began + connect_seconds
                if timed_out:
                    self._check_resolvable()
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
        with self._telling:
            if losses == self._losses:
                self._session = StoreSession.CONNECTED
                self._expired = False  # no earlier session had registered nodes
        self._thread.start()

    def _read_first(self, live: threading.Event) -> int | None:
        """Read everything if connected; the number of connections lost so far, or None."""
        if self._client.client_state == KeeperState.AUTH_FAILED:
            raise StoreError(f"{self.address}: ZooKeeper refuses the login")
        if not live.wait(_CONNECTED_POLL_SECONDS):
            return None
        losses = self._losses
        deadline = time.monotonic() + _FOLLOW_SECONDS
        try:
            with self._readable_errors():
                self._make_container(f"{LIVE}/", deadline)
                with suppress(NodeExistsError):
                    _wait(self._client.create_async(self._changes, new_journal().dump()), deadline)
                self._catch_up(deadline)
        except StoreUnreachable as error:
            logger.warning("cannot read the metadata yet: %s; retrying", error)
            return None
        return losses

    def _check_not_refused(self) -> None:
        """StoreError if TLS is possible with no server."""
        refusals: dict[str, str] = self._client.handler.refusals
        if len(refusals) < len(self._client.hosts):
            return
        servers = "; ".join(f"{server}: {why}" for server, why in refusals.items())
        raise StoreError(
            f"{self.address}: no TLS connection to ZooKeeper ({servers}). Check "
            "zookeeper.ssl.truststore.location, zookeeper.ssl.keystore.location, the names in the "
            "servers' certificates, and that the port is the secureClientPort"
        )

    def _check_resolvable(self) -> None:
        """StoreError if no host name can be resolved."""
        names = [name for name, _ in self._client.hosts]
        for name in names:
            with suppress(socket.gaierror):
                socket.getaddrinfo(name, None)
                return
        raise StoreError(
            f"{self.address}: the host name{'s' if len(names) > 1 else ''} {', '.join(names)} "
            "cannot be resolved; check the address and the name service"
        )

    def _follow(self) -> None:
        """The thread that updates the nodes in memory and calls the listeners."""
        while not self._stopped.is_set():
            self._news.wait()
            self._news.clear()
            losses = self._losses
            deadline = time.monotonic() + _FOLLOW_SECONDS
            try:
                with self._readable_errors(), self._turn(deadline):
                    self._catch_up(deadline)
            except StoreError as error:
                if self._stopped.is_set():
                    return
                self._suspend()
                # Not connected: the next connection triggers another attempt.
                if self._client.connected:
                    logger.error("cannot follow the metadata: %s", error)
                    self._stopped.wait(_TRY_AGAIN_SECONDS)
                    self._news.set()
                continue
            self._connected(losses)
            tell_all(self._changed)

    def _watched(self, event: object) -> None:
        self._news.set()

    def _catch_up(self, deadline: float) -> None:
        """Read what changed since the last time; the nodes then are a consistent snapshot."""
        if self._session is StoreSession.SUSPENDED:
            # This server may be behind the one that accepted our last commit.
            _wait(self._client.sync_async(self._changes), deadline)
        nodes, journal = self._nodes, self._journal
        changes, living = self._ask_all(self._looks(), deadline)
        for _ in range(_ROUNDS):
            before, journal = journal, self._checked(changes, living)
            version = changes[1].version
            touched = None if before is None else journal.since(before.number)
            if touched is None:
                nodes = self._read_all(deadline)
                changes, living = self._ask_all(self._looks(), deadline)
                continue
            # Ephemeral nodes expire without a commit.
            touched |= {f"{LIVE}/{name}" for name in nodes.get(LIVE, {}).keys() ^ set(living)}
            if not touched:
                break
            *answers, changes, living = self._ask_all(
                [*self._reads(touched), *self._looks()], deadline
            )
            nodes = _with_nodes(nodes, _found(touched, answers))
        self._nodes, self._journal, self._journal_version = nodes, journal, version

    def _checked(self, changes: Any, living: Any) -> Journal:
        """The journal; StoreError if it does not belong to the nodes read before.

        With other data all topics would appear deleted, and brokers would remove their logs.
        """
        journal = None if changes is None or living is None else load_journal(changes[0])
        if journal is None or not (self._journal is None or journal.continues(self._journal)):
            raise StoreError(
                f"{self.address}: these are not the metadata that were there before; ZooKeeper has "
                "lost its data, or was set back. Stop the brokers, and restore ZooKeeper's data"
            )
        return journal

    def _read_all(self, deadline: float) -> _Nodes:
        (names,) = self._ask_all([partial(self._children, self._root or "/")], deadline)
        names = [name for name in names if name != _CHANGES]
        places = [f"{self._root}/{name}" for name in names]
        below = self._ask_all([partial(self._children, place) for place in places], deadline)
        self._containers = set(places)
        paths = [
            f"{_parent(name)}/{child}"
            for name, children in zip(names, below, strict=True)
            for child in children or ()
        ]
        return _with_nodes({}, _found(paths, self._ask_all(self._reads(paths), deadline)))

    def _looks(self) -> list[_Question]:
        """Watch the nodes that signal a change."""
        return [
            partial(self._client.get_async, self._changes, self._watched),
            partial(self._children, self._container(LIVE), self._watched),
        ]

    def _reads(self, paths: Iterable[str]) -> list[_Question]:
        places = map(self._place, paths)
        reads: list[_Question] = []
        while some := tuple(islice(places, _READ_AT_ONCE)):
            reads.append(partial(self._read, ReadNodes(some)))
        return reads

    def _read(self, request: ReadNodes) -> Any:
        answer = self._client.handler.async_result()
        self._client._call(request, answer)
        return answer

    def _ask_all(self, questions: Iterable[_Question], deadline: float) -> list[Any]:
        """The results of many concurrent reads, None for a missing node."""
        answers: list[Any] = []
        remaining = iter(questions)
        while asked := [ask() for ask in islice(remaining, _PIPELINED)]:
            for answer in asked:
                try:
                    answers.append(_wait(answer, deadline))
                except NoNodeError:
                    answers.append(None)
        return answers

    # ----------------------------------------------------------------------------- session

    def _connection_changed(self, state: str) -> None:
        """Called by kazoo, in the thread that reads from the connection."""
        if state == KazooState.CONNECTED:
            self._news.set()  # listeners are called after catching up
        else:
            self._suspend(expired=state == KazooState.LOST)

    def _suspend(self, *, expired: bool = False) -> None:
        with self._telling:
            self._losses += 1
            self._expired |= expired
            if self._session is not StoreSession.SUSPENDED:
                logger.warning("ZooKeeper is out of reach")
                self._session = StoreSession.SUSPENDED
                tell_all(self._told, StoreSession.SUSPENDED)

    def _connected(self, losses: int) -> None:
        """Report that the store has caught up, unless the connection was lost again."""
        with self._telling:
            if self._session is StoreSession.SUSPENDED and losses == self._losses:
                news = StoreSession.EXPIRED if self._expired else StoreSession.CONNECTED
                logger.warning("ZooKeeper is within reach again; the session: %s", news.value)
                self._expired = False
                self._session = StoreSession.CONNECTED
                tell_all(self._told, news)

    # ------------------------------------------------------------------------------- paths

    @property
    def _changes(self) -> str:
        return f"{self._root}/{_CHANGES}"

    def _container(self, parent: str) -> str:
        assert parent not in (f"/{_TOP}", f"/{_CHANGES}"), f"{parent} is the store's own"
        return f"{self._root}/{quote(parent[1:], safe='') or _TOP}"

    def _place(self, path: str) -> str:
        parent, name = parent_and_name(path)
        return f"{self._container(parent)}/{name}"

    # ------------------------------------------------------------------------------ errors

    def _check_connected(self) -> None:
        if self._session is StoreSession.SUSPENDED:
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
    def _readable_errors(self) -> Iterator[None]:
        try:
            yield
        except NoAuthError as error:
            raise StoreError(
                f"{self.address}: ZooKeeper does not let us at a node; it was made with another "
                "login, or with none"
            ) from error
        except KazooTimeoutError as error:
            raise StoreUnreachable(f"{self.address}: ZooKeeper did not answer in time") from error
        except _TRANSIENT as error:
            name = type(error).__name__
            raise StoreUnreachable(f"{self.address}: ZooKeeper does not answer ({name})") from error
        except KazooException as error:
            raise StoreError(f"{self.address}: {type(error).__name__} {error}") from error


def _client(
    hosts: str,
    session_timeout_ms: int,
    login: tuple[str, str] | None,
    tls: Callable[[], ssl.SSLContext] | None,
) -> KazooClient:
    session_seconds = session_timeout_ms / 1000
    return KazooClient(
        hosts,
        timeout=session_seconds,
        handler=ConnectionHandler(session_seconds / (hosts.count(",") + 2), tls),
        connection_retry={"max_tries": -1, "delay": 0.05, "max_delay": 0.2},
        auth_data=[("digest", ":".join(login))] if login else None,
        default_acl=[make_digest_acl(*login, all=True)] if login else None,
        logger=_kazoo_logger(),
    )


def _kazoo_logger() -> logging.Logger:
    """Kazoo logs several lines a second while no server answers; this module logs what matters."""
    kazoo = logger.getChild("kazoo")
    kazoo.setLevel(logging.DEBUG if logger.isEnabledFor(logging.DEBUG) else logging.ERROR)
    return kazoo


def _parse(address: str) -> tuple[str, str]:
    """The hosts, and the path below which everything is; empty for ZooKeeper's root."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise StoreError(
            f"'{address}' is no address of a ZooKeeper; expected is "
            f"{SCHEME}HOST:PORT,HOST:PORT/PATH (without a port it is 2181, the path is optional)"
        )
    return found["hosts"], found["chroot"]


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


def _wait(asked: Any, deadline: float) -> Any:
    return asked.get(timeout=max(0, deadline - time.monotonic()))


def _parent(container: str) -> str:
    """The inverse of `_container`."""
    return "" if container == _TOP else f"/{unquote(container)}"


def _found(
    paths: Iterable[str], answers: Iterable[list[StoreNode | None]]
) -> dict[str, StoreNode | None]:
    return dict(zip(paths, chain.from_iterable(answers), strict=True))


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
