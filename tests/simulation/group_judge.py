"""What the coordinators of groups promise, judged by what members were told.

- A committed offset that was acknowledged is found afterwards, unless a later commit replaced it.
- In one generation (classic protocol) or epoch (consumer protocol) a partition has one member.
- A partition goes to another member only if the first one has given it up, or was silent for a
  session time-out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

NOTHING_COMMITTED = -1


class Place(NamedTuple):
    """Where a group commits an offset."""

    group: str
    partition: int


@dataclass(eq=False, slots=True)
class Commit:
    """One attempt to commit an offset. Each attempt has an offset of its own."""

    place: Place
    offset: int
    begun_s: float
    acknowledged_s: float | None = None
    refused: bool = False
    """Whether the coordinator said that it did not happen."""


@dataclass(slots=True)
class _Owner:
    """What a member believes to own."""

    partitions: frozenset[int] = frozenset()
    heard_s: float = 0.0
    """When it sent its last heartbeat that was answered well."""


class GroupJudge:
    """Hears from all members of all groups what they were told."""

    def __init__(
        self, now_s: Callable[[], float], broken: Callable[[str], Exception], session_s: float
    ) -> None:
        self._now_s = now_s
        self._broken = broken
        self._session_s = session_s
        self._commits: dict[Place, dict[int, Commit]] = {}
        self._offsets = count()
        self._holders: dict[tuple[str, int], dict[int, str]] = {}
        self._owners: dict[str, dict[str, _Owner]] = {}
        self.acknowledged_commits = 0
        self.reads = 0
        self.assignments = 0

    # ------------------------------------------------------------------------------- offsets

    def begin_commit(self, place: Place) -> Commit:
        """A member is about to commit."""
        commit = Commit(place, next(self._offsets), self._now_s())
        self._commits.setdefault(place, {})[commit.offset] = commit
        return commit

    def acknowledge(self, commit: Commit) -> None:
        """The coordinator said that the commit has happened."""
        commit.acknowledged_s = self._now_s()
        self.acknowledged_commits += 1

    def found(self, place: Place, offset: int, since_s: float) -> None:
        """The coordinator answered a question that was asked at `since_s`."""
        self.reads += 1
        commits = self._commits.get(place, {})
        commit = commits.get(offset)
        if offset != NOTHING_COMMITTED and (commit is None or commit.refused):
            raise self._broken(f"{place} has offset {offset}, whose commit never happened")
        from_s = -1.0
        if commit is not None:
            if commit.acknowledged_s is None:
                return  # it may have happened at any time
            from_s = commit.acknowledged_s
        for later in commits.values():
            acknowledged_s = later.acknowledged_s
            if acknowledged_s is not None and acknowledged_s < since_s and later.begun_s > from_s:
                raise self._broken(
                    f"{place} has offset {offset}, though {later.offset} was committed after it "
                    f"and acknowledged at {acknowledged_s:.4f}"
                )

    # --------------------------------------------------------------------------- assignments

    def assigned(self, group: str, epoch: int, member: str, partitions: frozenset[int]) -> None:
        """A member was told its partitions in a generation or epoch."""
        self.assignments += 1
        holders = self._holders.setdefault((group, epoch), {})
        for partition in partitions:
            holder = holders.setdefault(partition, member)
            if holder != member:
                raise self._broken(
                    f"in epoch {epoch} of group {group}, partition {partition} was assigned to "
                    f"{holder} and to {member}"
                )

    def owns(self, group: str, member: str, partitions: frozenset[int], heard_s: float) -> None:
        """A member of the consumer protocol has taken these partitions, and no others."""
        owners = self._owners.setdefault(group, {})
        for other, owner in owners.items():
            silent_s = self._now_s() - owner.heard_s
            both = owner.partitions & partitions
            if other != member and both and silent_s < self._session_s:
                raise self._broken(
                    f"{other} owns {sorted(both)} of group {group} and was heard {silent_s:.3f} s "
                    f"ago, but {member} was told to take them"
                )
        owners[member] = _Owner(partitions, heard_s)

    def gives_up(self, group: str, member: str, partitions: frozenset[int]) -> None:
        """A member has stopped to use these partitions."""
        owner = self._owners.setdefault(group, {}).setdefault(member, _Owner())
        owner.partitions -= partitions
