"""The interface of a metadata store, implemented with SQLite and with ZooKeeper.

It holds a few coarse nodes at paths, each with a version that grows with every write. A commit
applies several changes atomically.
A path is `/parent/name`; parents need not exist.

Brokers show by ephemeral nodes that they are alive: such a node is removed when the session of the
store that created it ends, by `close`, by a kill or by a session timeout.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

logger = logging.getLogger(__name__)

LIVE = "/live"
"""The parent of all ephemeral nodes."""


class StoreNode(NamedTuple):
    """A node's value and its version (0 at its creation)."""

    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """Creates a node; a conflict if it exists.

    An ephemeral node is a direct child of LIVE, and is removed when this store's session ends.
    """

    path: str
    value: bytes
    ephemeral: bool = False

    def __post_init__(self) -> None:
        assert not self.ephemeral or parent_and_name(self.path)[0] == LIVE, (
            f"an ephemeral node stands directly below {LIVE}, {self.path} does not"
        )


@dataclass(frozen=True, slots=True)
class Put:
    """Sets a node's value; a conflict unless the node has `version`."""

    path: str
    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes a node; a conflict unless the node has `version`."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class CheckVersion:
    """No change; a conflict unless the node has `version`."""

    path: str
    version: int


Change: TypeAlias = Create | Put | Delete | CheckVersion


class StoreSession(Enum):
    """The state of the session that owns a store's ephemeral nodes."""

    CONNECTED = "connected"
    """The session is alive, with all its nodes."""
    SUSPENDED = "suspended"
    """Unknown: the nodes may have been removed. CONNECTED or EXPIRED follows."""
    EXPIRED = "expired"
    """The nodes were removed. A new session has begun: a live broker creates them again."""


class Conflict(Exception):
    """A node does not have the version that a commit expected."""

    def __init__(self, path: str) -> None:
        super().__init__(f"metadata node {path} was changed by another broker")
        self.path = path


class StoreError(Exception):
    """The store cannot be used; the message says which store, why, and what to check."""


class StoreUnreachable(StoreError):
    """The store does not answer at present. The same call may succeed later."""


class Store(Protocol):
    """Metadata that outlives the process.

    Every call returns or raises within a few seconds.
    """

    def get(self, path: str) -> StoreNode | None:
        """The node at `path`, or None.

        At least as new as every notification that was delivered, every commit of this store, and
        the cause of each Conflict of this store. While SUSPENDED: the last known value.
        """

    def children(self, path: str) -> dict[str, StoreNode]:
        """The nodes directly below `path`, by their names; as new as `get`."""

    def commit(self, changes: Sequence[Change]) -> None:
        """Apply all of `changes` durably; raises Conflict and applies none if one does not match.

        Raises StoreError, immediately while SUSPENDED. If the connection was lost during the
        commit, its outcome is unknown; reads show it after CONNECTED or EXPIRED.
        """

    def watch(self, changed: Callable[[], None]) -> None:
        """Have `changed` called, from any thread, soon after any commit or removal of an ephemeral
        node. Calls may be spurious, but none is missed.
        """

    def on_session(self, listener: Callable[[StoreSession], None]) -> None:
        """Call `listener`, from any thread, with the session's state now and when it changes."""

    def close(self) -> None:
        """End the session, which removes its ephemeral nodes, and release all resources."""


def parent_and_name(path: str) -> tuple[str, str]:
    """`/parent/name` split into parent and name; the parent of `/name` is empty."""
    parent, _, name = path.rpartition("/")
    return parent, name


def tell_all(listeners: Iterable[Callable[..., None]], *news: StoreSession) -> None:
    """Call every listener; an error of one is logged and does not affect the others."""
    for listener in listeners:
        try:
            listener(*news)
        except Exception:
            logger.exception("a listener to the metadata store failed")
