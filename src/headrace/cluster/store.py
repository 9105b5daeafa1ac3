"""The port to wherever the cluster's metadata is kept.

Shaped so that SQLite and ZooKeeper both can be behind it: a few coarse nodes at paths, each with a
version that grows with every write, and commits of several changes of which all happen or none.
A path is `/parent/name`; parents need not exist.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias


class Node(NamedTuple):
    """What stands at a path, and how often it was written (0 at its creation)."""

    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """A new node; a conflict if there is one already."""

    path: str
    value: bytes


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


Change: TypeAlias = Create | Put | Delete


class Conflict(Exception):
    """Someone else was first: a node is not in the state that a commit expected."""

    def __init__(self, path: str) -> None:
        super().__init__(f"metadata node {path} was changed by someone else")
        self.path = path


class StoreError(Exception):
    """The store cannot be used; says what it is, why, and what to look at."""


class Store(Protocol):
    """Metadata that outlives the process."""

    def get(self, path: str) -> Node | None:
        """The node at `path`, or None."""

    def children(self, path: str) -> dict[str, Node]:
        """The nodes directly below `path`, by their names."""

    def commit(self, changes: Sequence[Change]) -> None:
        """All of `changes`, durably, or none of them and Conflict."""

    def close(self) -> None:
        """Let go of what lies behind the port."""
