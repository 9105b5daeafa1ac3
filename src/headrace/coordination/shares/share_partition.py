"""The delivery of one partition to one share group, as a state machine without I/O.

Offsets from the start offset to the end offset have been read at least once; they are held as
runs, ranges of offsets in the same state. A run is acquired by a member for the duration of its
lock. An acknowledgement, a release or an expired lock gives runs a target. They reach it when the
share coordinator has stored it (`begin_write`, `end_write`); until then they stay locked, so that
nothing is delivered or answered that a crash could undo. If the write fails they keep their lock,
and it expires later.

`share_partitions.py` reads records, sets timers and writes the state.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from headrace.coordination.shares.delivery import (
    COMPLETE,
    Acknowledgement,
    AcknowledgeType,
    Acquired,
    AcquireMode,
    DeliveryState,
    FetchedBatch,
    StateBatch,
)
from headrace.errors import ErrorCode, KafkaError

RETRY_MS = 1000
"""How long a lock lasts whose release could not be stored."""

REJECTED = "rejected by the consumer"
LIMIT_REACHED = "delivery limit reached"
"""Why a record is a dead letter."""

_first = attrgetter("first")


@dataclass(slots=True)
class _Run:
    """A range of offsets in the same state."""

    first: int
    last: int
    state: DeliveryState
    count: int = 0
    member: str = ""
    deadline_ms: int | None = None
    """When the lock of an acquired run expires."""
    target: DeliveryState | None = None
    """The state that the run has once it is stored."""
    reason: str = ""
    """Why it is going to be a dead letter."""
    writing: bool = False

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def merges_with(self, after: _Run) -> bool:
        return (
            self.last + 1 == after.first
            and self.state is after.state
            and self.count == after.count
            and self.member == after.member
            and self.deadline_ms == after.deadline_ms
            and self.target is after.target
            and self.reason == after.reason
            and self.writing == after.writing
        )

    @property
    def is_free(self) -> bool:
        return self.state is DeliveryState.AVAILABLE

    @property
    def is_locked(self) -> bool:
        return self.state is DeliveryState.ACQUIRED and self.target is None

    @property
    def is_complete(self) -> bool:
        return self.state in COMPLETE

    @property
    def will_be_complete(self) -> bool:
        return self.state in COMPLETE or self.target in COMPLETE

    def free(self) -> None:
        """Forget the lock."""
        self.member, self.deadline_ms = "", None


class AcquireLimits(NamedTuple):
    """The limits of one acquisition."""

    max_records: int
    batch_size: int
    mode: AcquireMode
    max_locks: int
    """How many offsets may lie between the start and the end offset."""


class UndeliverableRecords(NamedTuple):
    """A range of records that will not be delivered again, and why."""

    first: int
    last: int
    deliveries: int
    reason: str


class StateWrite(NamedTuple):
    """What the share coordinator has to store."""

    start: int
    complete_count: int
    """How many offsets after the start are complete."""
    batches: tuple[StateBatch, ...]
    dead_letters: tuple[UndeliverableRecords, ...]


class InFlight(NamedTuple):
    """The number of records between the start and the end offset, by what happens to them."""

    available: int
    acquired: int
    complete: int


class SharePartition:
    """The state of one partition for one share group."""

    def __init__(self, start: int, batches: Iterable[StateBatch], max_deliveries: int) -> None:
        """`batches` are what the share coordinator has stored, in order."""
        self.start = start
        self.end = start
        """The first offset that was never read."""
        self.max_deliveries = max_deliveries
        self._runs: list[_Run] = []
        for batch in batches:
            if batch.last < start:
                continue
            first = max(batch.first, start)
            if first > self.end:  # not stored: it was read, and nothing is known about it
                self._append(self.end, first - 1, DeliveryState.AVAILABLE)
            self._append(first, batch.last, batch.state, batch.deliveries)
        self._settle()

    # -------------------------------------------------------------------------------- questions

    def next_offset(self, max_locks: int) -> int | None:
        """The first offset that a member can acquire; None if locks must be released first."""
        for run in self._runs:
            if run.is_free:
                return run.first
        return self.end if self.end - self.start < max_locks else None

    def next_deadline_ms(self) -> int | None:
        """When the next lock expires."""
        found = (run.deadline_ms for run in self._runs if run.is_locked)
        return min((ms for ms in found if ms is not None), default=None)

    @property
    def must_write(self) -> bool:
        """Whether there are changes to store."""
        return any(run.target is not None and not run.writing for run in self._runs)

    def in_flight(self) -> InFlight:
        """What happens to the records between the start and the end offset."""
        available = sum(run.size for run in self._runs if run.is_free)
        complete = sum(run.size for run in self._runs if run.is_complete)
        return InFlight(available, self.end - self.start - available - complete, complete)

    def members(self) -> set[str]:
        """The members that have acquired records."""
        return {run.member for run in self._runs if run.member}

    # ------------------------------------------------------------------------------- acquisition

    def acquire(
        self,
        member: str,
        offset: int,
        fetched: Sequence[FetchedBatch],
        limits: AcquireLimits,
        now_ms: int,
        lock_ms: int,
    ) -> list[Acquired]:
        """Lock records for a member, of those that were fetched from `offset` on."""
        taken: list[Acquired] = []
        left = limits.max_records
        strict = limits.mode is AcquireMode.RECORD_LIMIT
        at = max(offset, self.start)
        for batch in fetched:
            if left <= 0:
                break
            if batch.last < at:
                continue
            if batch.first > at:
                self._archive(at, batch.first - 1)
            first = max(at, batch.first)
            at = batch.last + 1
            if not batch.deliverable:
                self._archive(first, batch.last)
                continue
            last = batch.last
            if batch.last >= self.end:
                room = max(limits.max_locks - (self.end - self.start), 0)
                if strict:
                    last = min(last, self.end + min(room, left) - 1)
                elif not room:
                    last = self.end - 1
                if last >= self.end:
                    self._append(max(first, self.end), last, DeliveryState.AVAILABLE)
            for run in self._free_runs(first, last, left if strict else None):
                run.state, run.count = DeliveryState.ACQUIRED, run.count + 1
                run.member, run.deadline_ms = member, now_ms + lock_ms
                left -= run.size
                _add(taken, run, limits.batch_size)
            if last < batch.last:
                break
        self._settle()
        return taken

    def _free_runs(self, first: int, last: int, most: int | None) -> Iterable[_Run]:
        """The available runs of a range, cut to it, with at most so many offsets."""
        for run in self._between(first, last):
            if not run.is_free or (most is not None and most <= 0):
                continue
            if most is not None and run.size > most:
                first_offset = run.first
                self._cut(first_offset + most)
                run = self._runs[self._index(first_offset)]
            if most is not None:
                most -= run.size
            yield run

    def _archive(self, first: int, last: int) -> None:
        """There are no records at these offsets, or none that may be delivered."""
        if last >= self.end:
            self._append(max(first, self.end), last, DeliveryState.ARCHIVED)
        for run in self._between(first, min(last, self.end - 1)):
            if run.is_free:
                run.state = DeliveryState.ARCHIVED

    def log_starts_at(self, offset: int) -> None:
        """Records below this offset were deleted."""
        if offset <= self.start:
            return
        if offset > self.end:
            self._append(self.end, offset - 1, DeliveryState.ARCHIVED)
        self._archive(self.start, offset - 1)
        self._settle()

    # --------------------------------------------------------------------------- acknowledgement

    def acknowledge(
        self, member: str, acks: Sequence[Acknowledgement], now_ms: int, lock_ms: int
    ) -> None:
        """Process the acknowledgements of a member: all of them, or none and a KafkaError."""
        known = []
        previous = -1
        for ack in acks:
            if ack.first <= previous:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "acknowledgements are not in the order of offsets"
                )
            previous = ack.last
            if ack.last >= self.start:  # else its records were deleted in the meantime
                known.append(ack._replace(first=max(ack.first, self.start)))
        for ack in known:
            self._check_owner(member, ack)
        for ack in known:
            for run in self._between(ack.first, ack.last):
                match ack.type:
                    case AcknowledgeType.RENEW:
                        run.deadline_ms = now_ms + lock_ms
                    case AcknowledgeType.ACCEPT:
                        run.target = DeliveryState.ACKNOWLEDGED
                    case AcknowledgeType.GAP:
                        run.target = DeliveryState.ARCHIVED
                    case AcknowledgeType.REJECT:
                        run.target, run.reason = DeliveryState.ARCHIVED, REJECTED
                    case AcknowledgeType.RELEASE:
                        self._release(run)
        self._merge()

    def _check_owner(self, member: str, ack: Acknowledgement) -> None:
        """INVALID_RECORD_STATE unless the member has acquired the whole range."""
        if ack.last >= self.end:
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE,
                f"the offsets {ack.first} to {ack.last} were not delivered",
            )
        at = self._index(ack.first)
        while at < len(self._runs) and self._runs[at].first <= ack.last:
            run = self._runs[at]
            if not self._holds(run, member):
                raise KafkaError(
                    ErrorCode.INVALID_RECORD_STATE,
                    f"the records from offset {max(run.first, ack.first)} on are not acquired by "
                    f"member {member}",
                )
            at += 1

    def _holds(self, run: _Run, member: str) -> bool:
        return run.is_locked and run.member == member

    def release_member(self, member: str) -> None:
        """Release all records of a member whose session has ended."""
        for run in self._runs:
            if self._holds(run, member):
                self._release(run)
        self._merge()

    def expire(self, now_ms: int) -> None:
        """Release the records whose locks have expired."""
        for run in self._runs:
            if run.is_locked and run.deadline_ms is not None and run.deadline_ms <= now_ms:
                self._release(run)
        self._merge()

    def _release(self, run: _Run) -> None:
        if run.count >= self.max_deliveries:
            run.target, run.reason = DeliveryState.ARCHIVED, LIMIT_REACHED
        else:
            run.target, run.reason = DeliveryState.AVAILABLE, ""

    # ----------------------------------------------------------------------------------- storing

    def begin_write(self) -> StateWrite:
        """All changes that are not stored yet; `end_write` has to follow."""
        start = self.end
        for run in self._runs:
            if not run.will_be_complete:
                start = run.first
                break
        batches: list[StateBatch] = []
        dead: list[UndeliverableRecords] = []
        complete = 0
        for run in self._runs:
            if run.target is not None:
                run.writing = True
                if run.reason:
                    dead.append(UndeliverableRecords(run.first, run.last, run.count, run.reason))
            if run.last < start:
                continue
            complete += run.size if run.will_be_complete else 0
            if run.target is not None:
                batches.append(StateBatch(run.first, run.last, run.target, run.count))
        return StateWrite(start, complete, tuple(batches), tuple(dead))

    def end_write(self, stored: bool, now_ms: int) -> None:
        """The changes of `begin_write` were stored, or could not be."""
        for run in self._runs:
            if not run.writing:
                continue
            assert run.target is not None, "a run is written because of its target"
            if stored:
                run.state = run.target
                run.free()
            else:
                run.deadline_ms = max(run.deadline_ms or 0, now_ms + RETRY_MS)
            run.target, run.reason, run.writing = None, "", False
        self._settle()

    # -------------------------------------------------------------------------------------- runs

    def _append(self, first: int, last: int, state: DeliveryState, count: int = 0) -> None:
        assert first == self.end, "runs have no gaps"
        self._runs.append(_Run(first, last, state, count))
        self.end = last + 1

    def _index(self, offset: int) -> int:
        return max(bisect_right(self._runs, offset, key=_first) - 1, 0)

    def _cut(self, offset: int) -> None:
        """Let a run begin at this offset."""
        if not self.start < offset < self.end:
            return
        at = self._index(offset)
        run = self._runs[at]
        if run.first == offset:
            return
        before = _Run(
            run.first, offset - 1, run.state, run.count, run.member, run.deadline_ms, run.target,
            run.reason, run.writing,
        )  # fmt: skip
        run.first = offset
        self._runs.insert(at, before)

    def _between(self, first: int, last: int) -> list[_Run]:
        """The runs of exactly this range of offsets."""
        if first > last or not self._runs:
            return []
        self._cut(first)
        self._cut(last + 1)
        begin = self._index(first)
        end = bisect_right(self._runs, last, key=_first)
        return [run for run in self._runs[begin:end] if run.first >= first]

    def _settle(self) -> None:
        """Move the start offset beyond completed records."""
        done = 0
        while done < len(self._runs) and self._runs[done].is_complete:
            done += 1
        if done:
            self.start = self._runs[done - 1].last + 1
            del self._runs[:done]
        self._merge()

    def _merge(self) -> None:
        """Join adjacent runs in the same state."""
        runs = self._runs
        if len(runs) < 2:
            return
        out = [runs[0]]
        for run in runs[1:]:
            if out[-1].merges_with(run):
                out[-1].last = run.last
            else:
                out.append(run)
        self._runs = out


def _add(taken: list[Acquired], run: _Run, batch_size: int) -> None:
    """Add a run to what was acquired, joined with the one before unless that is large enough."""
    if taken:
        before = taken[-1]
        small = before.last - before.first + 1 < batch_size
        if small and before.last + 1 == run.first and before.deliveries == run.count:
            taken[-1] = before._replace(last=run.last)
            return
    taken.append(Acquired(run.first, run.last, run.count))
