"""The paths that the last commits changed: the value of a ZooKeeper node that every commit sets.

A store that watches it reads only the nodes that it names. A store that is further behind than the
oldest commit in the journal reads everything again.

    {"id": "6f1c...", "number": 17, "commits": [["/topics/a"], ["/topics/b", "/deleted/c"]]}

`commits` are those up to `number`, the newest last. `id` is random, from the creation of the store:
another id, or a smaller number than before, means that the data was replaced.
"""

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

COMMITS = 100
PATH_BYTES = 20_000
"""Limit for all commits, to keep the value small; the newest commit is always included."""


@dataclass(frozen=True, slots=True)
class Journal:
    """The number of the newest commit, and which paths it and those before it touched."""

    id: str
    number: int = 0
    commits: tuple[tuple[str, ...], ...] = ()

    def after(self, paths: Iterable[str]) -> "Journal":
        """The journal after a commit that changed `paths`."""
        commits = [*self.commits[-(COMMITS - 1) :], tuple(dict.fromkeys(paths))]
        size = sum(map(_size, commits))
        while size > PATH_BYTES and len(commits) > 1:
            size -= _size(commits.pop(0))
        return Journal(self.id, self.number + 1, tuple(commits))

    def since(self, number: int) -> set[str] | None:
        """The paths changed after commit `number`; None if the journal does not reach back so
        far.
        """
        behind = self.number - number
        if not 0 <= behind <= len(self.commits):
            return None
        return {path for commit in self.commits[len(self.commits) - behind :] for path in commit}

    def continues(self, other: "Journal") -> bool:
        """Whether this is the same journal as `other`, now or later."""
        return self.id == other.id and self.number >= other.number

    def dump(self) -> bytes:
        """The node's value."""
        content = {"id": self.id, "number": self.number, "commits": self.commits}
        return json.dumps(content, separators=(",", ":")).encode()


def _size(paths: Iterable[str]) -> int:
    return sum(map(len, paths))


def load_journal(value: bytes) -> Journal:
    """The journal in a node's value."""
    content = json.loads(value)
    commits = tuple(tuple(paths) for paths in content["commits"])
    return Journal(content["id"], content["number"], commits)


def new_journal() -> Journal:
    """The journal of a new store."""
    return Journal(uuid.uuid4().hex)
