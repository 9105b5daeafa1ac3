"""The state of a run over dead letters: which offsets it takes, and how far it is.

It is stored beside the connector's checkpoints before each chunk is written, so that a run that is
interrupted writes the same chunk again, under the same number.
"""

import json
import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from headrace.connect.letter_orders import LetterOrder

OFFSETS_A_CHUNK = 10_000

Offsets = dict[int, int]
"""By partition."""
Ranges = dict[int, list[tuple[int, int]]]
"""Offsets by partition, as (first, last)."""
RUNNING, FINISHED, STOPPED, FAILED = "running", "finished", "stopped", "failed"


@dataclass(slots=True)
class LetterRunState:
    """One run. Offsets are those of the topic with the dead letters."""

    order: LetterOrder
    start: Offsets
    end: Offsets
    taken: Ranges
    """Letters that are replayed or discarded."""
    kept: Ranges
    """Letters of the connector that are not: they go to the end of the topic."""
    position: Offsets
    """The run has done everything before it."""
    chunk: Offsets | None = None
    """The end of the chunk that is being written."""
    number: int = 0
    """Of the chunk."""
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    started_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    state: str = RUNNING
    error: str | None = None
    written: int = 0
    failed: int = 0
    discarded: int = 0
    kept_letters: int = 0

    @property
    def total(self) -> int:
        """How many letters are replayed or discarded."""
        return counted(self.taken)

    @property
    def done(self) -> int:
        """How many of them are behind the position."""
        return sum(counted({at: within(self.taken.get(at, ()), self.start[at], self.position[at])})
                   for at in self.position)  # fmt: skip

    def next_chunk(self, most: int = OFFSETS_A_CHUNK) -> Offsets | None:
        """The end of the next chunk; None if all is done. An unfinished chunk stays as it is."""
        if self.chunk is not None:
            return self.chunk
        left = most
        chunk = dict(self.position)
        for partition, end in sorted(self.end.items()):
            step = min(end - chunk[partition], left)
            chunk[partition] += step
            left -= step
        return None if chunk == self.position else chunk

    def chunk_ended(self) -> None:
        assert self.chunk is not None, "a chunk is being written"
        self.position, self.chunk = self.chunk, None
        self.number += 1

    def report(self) -> dict[str, object]:
        """For the service."""
        return {
            "action": self.order.action,
            "where": self.order.where,
            "limit": self.order.limit,
            "state": self.state,
            "error": self.error,
            "started_at": self.started_ms,
            "total": self.total,
            "done": self.done,
            "written": self.written,
            "failed_again": self.failed,
            "discarded": self.discarded,
            "kept": self.kept_letters,
        }

    def save(self, path: Path) -> None:
        """Store it; it is on disk when this returns."""
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".half")
        with half.open("w") as file:
            json.dump(asdict(self), file)
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)


def load(path: Path) -> LetterRunState | None:
    """The stored state; None if there is none."""
    try:
        stored = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    stored["order"] = LetterOrder(**stored["order"])
    for name in ("start", "end", "position", "chunk"):
        if stored[name] is not None:
            stored[name] = {int(at): offset for at, offset in stored[name].items()}
    for name in ("taken", "kept"):
        stored[name] = {
            int(at): [(first, last) for first, last in each] for at, each in stored[name].items()
        }
    return LetterRunState(**stored)


def ranges_of(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Sorted offsets as ranges."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and found[-1][1] + 1 == offset:
            found[-1] = (found[-1][0], offset)
        else:
            found.append((offset, offset))
    return found


def within(ranges: Iterable[tuple[int, int]], start: int, stop: int) -> list[tuple[int, int]]:
    """The parts of ranges that are in [start, stop)."""
    cut = ((max(first, start), min(last, stop - 1)) for first, last in ranges)
    return [(first, last) for first, last in cut if first <= last]


def counted(ranges: Mapping[int, Iterable[tuple[int, int]]]) -> int:
    return sum(last - first + 1 for each in ranges.values() for first, last in each)


@dataclass(frozen=True, slots=True)
class FoundLetter:
    """A letter of the connector that waits."""

    partition: int
    offset: int
    matches: bool
    letter_id: str | None


def planned(
    order: LetterOrder, start: Offsets, end: Offsets, letters: Sequence[FoundLetter]
) -> LetterRunState:
    """The run for an order, if these letters wait.

    Of letters with the same id, which a crash can leave, only the first is taken; the others are
    neither taken nor kept. With a limit the run ends after the last letter that it takes.
    """
    ids: set[str] = set()
    taken: list[FoundLetter] = []
    for each in sorted(letters, key=lambda letter: (letter.partition, letter.offset)):
        if not each.matches or each.letter_id in ids:
            continue
        if order.limit is not None and len(taken) == order.limit:
            break
        taken.append(each)
        if each.letter_id is not None:
            ids.add(each.letter_id)
    if order.limit is not None and len(taken) == order.limit:
        reached = dict(start)
        for each in taken:
            reached[each.partition] = each.offset + 1
        end = reached
    kept = [each for each in letters if not each.matches and each.offset < end[each.partition]]
    return LetterRunState(order, start, end, _ranges(taken), _ranges(kept), dict(start))


def _ranges(letters: Sequence[FoundLetter]) -> Ranges:
    offsets: dict[int, list[int]] = {}
    for each in letters:
        offsets.setdefault(each.partition, []).append(each.offset)
    return {at: ranges_of(sorted(found)) for at, found in offsets.items()}
