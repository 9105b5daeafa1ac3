"""Where the nodes of a store are in ZooKeeper, and the requests that read them.

The node `/topics/orders` is ZooKeeper's node of that path below the chroot; one without a parent,
as `/cluster`, is at `/top/cluster`; a parent of several names, as `/a/b`, is one name, `a%2Fb`. So
no node of ours has another below it, and ZooKeeper's versions are ours. `/changes` is the journal
(`zookeeper_journal.py`).
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import NodeExistsError, NoNodeError

from headrace.cluster.store import (
    LIVE,
    Change,
    Create,
    Delete,
    Put,
    StoreNode,
    parent_and_name,
)
from headrace.cluster.zookeeper_journal import Journal, load_journal, new_journal
from headrace.cluster.zookeeper_reads import ReadNodes

_CHANGES = "changes"
_TOP = "top"
_READ_AT_ONCE = 200
_PIPELINED = 100
"""Requests in flight; kazoo blocks at a few hundred while the connection is lost."""

Found: TypeAlias = dict[str, StoreNode | None]
"""Nodes by path; None for a missing one."""
_Question: TypeAlias = Callable[[], Any]  # starts a kazoo request and returns its pending result


class JournalState(NamedTuple):
    """The journal with its version, and the names of the ephemeral nodes."""

    journal: Journal
    version: int
    living: frozenset[str]


class ZookeeperTree:
    """Reads and creates the nodes of one store; a request that takes too long raises."""

    def __init__(self, client: KazooClient, root: str, changed: Callable[[], None]) -> None:
        """`changed` is called when the journal or the ephemeral nodes change."""
        self._client = client
        self._root = root
        self._changed = changed
        self._changes = f"{root}/{_CHANGES}"
        self._containers: set[str] = set()

    # ------------------------------------------------------------------------------- write

    def create_journal(self, deadline: float) -> None:
        """Prepare a new store; does nothing if it exists."""
        self.make_container(f"{LIVE}/", deadline)
        with suppress(NodeExistsError):
            wait(self._client.create_async(self._changes, new_journal().dump()), deadline)

    def make_container(self, path: str, deadline: float) -> None:
        """Make the node that is the parent of this path."""
        container = self._container(parent_and_name(path)[0])
        if container not in self._containers:
            with suppress(NodeExistsError):
                wait(self._client.create_async(container, b"", makepath=True), deadline)
            self._containers.add(container)

    def forget_containers(self) -> None:
        """Another program has removed a parent."""
        self._containers.clear()

    def transaction(
        self, changes: Iterable[Change], journal: Journal, version: int
    ) -> TransactionRequest:
        """The request that applies the changes and sets the journal, which has this version."""
        transaction: TransactionRequest = self._client.transaction()
        for change in changes:
            self._add(transaction, change)
        transaction.set_data(self._changes, journal.dump(), version)
        return transaction

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

    # -------------------------------------------------------------------------------- read

    def sync(self, deadline: float) -> None:
        """Have the server catch up with the one that accepted our last commit."""
        wait(self._client.sync_async(self._changes), deadline)

    def read_all(self, deadline: float) -> Found:
        """All nodes, in no consistent state if others commit at the same time."""
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
        return _found(paths, self._ask_all(self._reads(paths), deadline))

    def read(self, paths: Iterable[str], deadline: float) -> tuple[Found, JournalState | None]:
        """These nodes, and then the state of the journal, which is watched from now on.

        The state is None if there is no journal.
        """
        paths = list(paths)
        watches = [
            partial(self._client.get_async, self._changes, self._watched),
            partial(self._children, self._container(LIVE), self._watched),
        ]
        *answers, changes, living = self._ask_all([*self._reads(paths), *watches], deadline)
        found = _found(paths, answers)
        if changes is None or living is None:
            return found, None
        value, stat = changes
        return found, JournalState(load_journal(value), stat.version, frozenset(living))

    def _watched(self, event: object) -> None:
        self._changed()

    def _children(self, *arguments: Any) -> Any:
        return self._client.get_children_async(*arguments)

    def _reads(self, paths: Iterable[str]) -> list[_Question]:
        places = map(self._place, paths)
        reads: list[_Question] = []
        while some := tuple(islice(places, _READ_AT_ONCE)):
            reads.append(partial(self._read_nodes, ReadNodes(some)))
        return reads

    def _read_nodes(self, request: ReadNodes) -> Any:
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
                    answers.append(wait(answer, deadline))
                except NoNodeError:
                    answers.append(None)
        return answers

    # ------------------------------------------------------------------------------- paths

    def _container(self, parent: str) -> str:
        assert parent not in (f"/{_TOP}", f"/{_CHANGES}"), f"{parent} is the store's own"
        return f"{self._root}/{quote(parent[1:], safe='') or _TOP}"

    def _place(self, path: str) -> str:
        parent, name = parent_and_name(path)
        return f"{self._container(parent)}/{name}"


def wait(asked: Any, deadline: float) -> Any:
    """The result of a kazoo request; KazooTimeoutError at the deadline."""
    return asked.get(timeout=max(0, deadline - time.monotonic()))


def _parent(container: str) -> str:
    """The inverse of `_container`."""
    return "" if container == _TOP else f"/{unquote(container)}"


def _found(paths: Iterable[str], answers: Iterable[list[StoreNode | None]]) -> Found:
    return dict(zip(paths, chain.from_iterable(answers), strict=True))
