"""The port to wherever the cluster's metadata is kept.

Shaped so that SQLite and ZooKeeper both can be behind it: a few coarse nodes at paths, each with a
version that grows with every write, and commits of several changes of which all happen or none.
A path is `/parent/name`; parents need not exist.

Brokers show by ephemeral nodes that they are alive: such a node goes when the session of the store
that made it ends, be it by `close`, by a kill or because nobody has heard of it for too long.
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
    """What stands at a path, and how often it was written (0 at its creation)."""

    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """A new node; a conflict if there is one already.

    An ephemeral one stands directly below LIVE, and goes when this store's session ends.
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
    """A new value for a node; a conflict unless the node has `version`."""

    path: str
    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """The end of a node; a conflict unless the node has `version`."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class CheckVersion:
    """No change; a conflict unless the node has `version`."""

    path: str
    version: int


Change: TypeAlias = Create | Put | Delete | CheckVersion


class StoreSession(Enum):
    """What becomes of the session that holds a store's ephemeral nodes."""

    CONNECTED = "connected"
    """The session stands, with all its nodes."""
    SUSPENDED = "suspended"
    """Nobody knows: the nodes may be gone already, or soon. CONNECTED or EXPIRED follows."""
    EXPIRED = "expired"
    """The nodes are gone. A new session has begun: whoever is alive makes them again."""


class Conflict(Exception):
    """Someone else was first: a node is not in the state that a commit expected."""

    def __init__(self, path: str) -> None:
        super().__init__(f"metadata node {path} was changed by someone else")
        self.path = path


class StoreError(Exception):
    """The store cannot be used; says what it is, why, and what to look at."""


class StoreUnreachable(StoreError):
    """The store does not answer at present. The same call may succeed later."""


class Store(Protocol):
    """Metadata that outlives the process.

    Every call returns or raises within a few seconds.
    """

    def get(self, path: str) -> StoreNode | None:
        """The node at `path`, or None.

        At least as new as every notification that was delivered, every commit of this store, and
        what a commit of this store was in conflict with. While SUSPENDED: what was known last.
        """

    def children(self, path: str) -> dict[str, StoreNode]:
        """The nodes directly below `path`, by their names; as new as `get`."""

    def commit(self, changes: Sequence[Change]) -> None:
        """All of `changes`, durably, or none of them and Conflict.

        StoreError, at once while SUSPENDED. Where the store was lost in mid-commit, that may also
        mean that all of them happened, or still will: reads tell once CONNECTED or EXPIRED came.
        """

    def watch(self, changed: Callable[[], None]) -> None:
        """Have `changed` called, from any thread, soon after anybody's commit or an ephemeral
        node's end. Perhaps too often, never too seldom.
        """

    def on_session(self, told: Callable[[StoreSession], None]) -> None:
        """Have `told` called, from any thread, with the session's state now and when it changes."""

    def close(self) -> None:
        """End the session, and with it its ephemeral nodes, and let go of what lies behind."""


def parent_and_name(path: str) -> tuple[str, str]:
    """`/parent/name` taken apart; the parent of `/name` is empty."""
    parent, _, name = path.rpartition("/")
    return parent, name


def tell_all(listeners: Iterable[Callable[..., None]], *news: StoreSession) -> None:
    """Call every listener; whatever is wrong with one of them, the others hear of it."""
    for listener in listeners:
        try:
            listener(*news)
        except Exception:
            logger.exception("a listener to the metadata store failed")
