"""What the last commits touched: the value of the one ZooKeeper node that every commit sets.

Whoever follows reads it when it changes, and then only the nodes that it names. One who is further
behind than the journal reaches back reads everything again.

    {"id": "6f1c...", "number": 17, "commits": [["/topics/a"], ["/topics/b", "/deleted/c"]]}

`commits` are those up to `number`, the newest last. `id` was drawn when the store was new: whoever
finds another one, or a smaller number than before, is looking at other data.
"""

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

COMMITS = 100
PATH_BYTES = 20_000
"""Of all commits, so that the value stays small; but the newest commit is always there."""


@dataclass(frozen=True, slots=True)
class Journal:
    """The number of the newest commit, and which paths it and those before it touched."""

    id: str
    number: int = 0
    commits: tuple[tuple[str, ...], ...] = ()

    def after(self, paths: Iterable[str]) -> "Journal":
        """As it is once a commit has touched `paths`."""
        commits = [*self.commits[-(COMMITS - 1) :], tuple(dict.fromkeys(paths))]
        size = sum(map(_size, commits))
        while size > PATH_BYTES and len(commits) > 1:
            size -= _size(commits.pop(0))
        return Journal(self.id, self.number + 1, tuple(commits))

    def since(self, number: int) -> set[str] | None:
        """The paths touched after commit `number`; None if that is too long ago to tell."""
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
    """That of a store in which nothing has happened yet."""
    return Journal(uuid.uuid4().hex)
