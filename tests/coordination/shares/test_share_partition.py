"""Delivery in a share group keeps its promises for any sequence of events.

The state machine compares `SharePartition` with a model that holds every offset by itself. Whatever
members, timers, failed writes and restarts do: an accepted record is not delivered again, no record
is lost, two members never hold the same record, and deliveries are bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headrace.coordination.shares.delivery import (
    COMPLETE,
    Acknowledgement,
    AcknowledgeType,
    Acquired,
    AcquireMode,
    DeliveryState,
    FetchedBatch,
    StateBatch,
    ranges_of_types,
    updated,
)
from headrace.coordination.shares.share_partition import (
    LIMIT_REACHED,
    REJECTED,
    AcquireLimits,
    SharePartition,
    StateWrite,
)
from headrace.errors import ErrorCode, KafkaError

LOCK_MS = 1000
MAX_DELIVERIES = 2
MAX_LOCKS = 12
MEMBERS = st.sampled_from("abc")
AVAILABLE, ACQUIRED = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED
BATCHED = AcquireLimits(100, 100, AcquireMode.BATCH_OPTIMIZED, 1000)


def log_of(*sizes: int) -> list[FetchedBatch]:
    batches, at = [], 0
    for size in sizes:
        batches.append(FetchedBatch(at, at + size - 1, True))
        at += size
    return batches


def written(partition: SharePartition, now_ms: int = 0) -> StateWrite:
    write = partition.begin_write()
    partition.end_write(True, now_ms)
    return write


def accept(partition: SharePartition, member: str, first: int, last: int) -> None:
    ack = Acknowledgement(first, last, AcknowledgeType.ACCEPT)
    partition.acknowledge(member, [ack], 0, LOCK_MS)


def test_records_of_a_member_are_not_given_to_another_before_their_lock_expires() -> None:
    partition = SharePartition(0, (), MAX_DELIVERIES)
    assert partition.acquire("a", 0, log_of(5), BATCHED, 0, LOCK_MS) == [Acquired(0, 4, 1)]
    assert partition.next_offset(1000) == 5
    partition.expire(LOCK_MS - 1)
    assert not partition.must_write
    partition.expire(LOCK_MS)
    assert written(partition).batches == (StateBatch(0, 4, AVAILABLE, 1),)
    assert partition.next_offset(1000) == 0
    assert partition.acquire("b", 0, log_of(5), BATCHED, 0, LOCK_MS) == [Acquired(0, 4, 2)]


def test_the_start_offset_moves_when_the_first_records_are_accepted_and_stored() -> None:
    partition = SharePartition(0, (), MAX_DELIVERIES)
    partition.acquire("a", 0, log_of(10), BATCHED, 0, LOCK_MS)
    accept(partition, "a", 5, 9)
    assert written(partition) == StateWrite(0, 5, (StateBatch(5, 9, ACKNOWLEDGED, 1),), ())
    accept(partition, "a", 0, 4)
    write = partition.begin_write()
    assert (write.start, write.batches) == (10, ())
    assert partition.start == 0  # not before it is stored
    partition.end_write(True, 0)
    assert (partition.start, partition.end) == (10, 10)


def test_a_failed_write_leaves_the_records_locked_until_the_lock_expires() -> None:
    partition = SharePartition(0, (), MAX_DELIVERIES)
    partition.acquire("a", 0, log_of(3), BATCHED, 0, LOCK_MS)
    accept(partition, "a", 0, 2)
    partition.begin_write()
    partition.end_write(False, 10)
    assert partition.in_flight().acquired == 3
    accept(partition, "a", 0, 2)  # the member tries again
    assert written(partition).start == 3


@pytest.mark.parametrize("bad", [("b", 0, 4), ("a", 0, 5), ("a", 3, 20)])
def test_acknowledging_what_the_member_does_not_hold_changes_nothing(
    bad: tuple[str, int, int],
) -> None:
    partition = SharePartition(0, (), MAX_DELIVERIES)
    partition.acquire("a", 0, log_of(5), BATCHED, 0, LOCK_MS)
    partition.acquire("b", 5, [FetchedBatch(5, 9, True)], BATCHED, 0, LOCK_MS)
    with pytest.raises(KafkaError) as refused:
        accept(partition, *bad)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
    assert not partition.must_write


def test_a_renewed_lock_expires_later_and_needs_no_write() -> None:
    partition = SharePartition(0, (), MAX_DELIVERIES)
    partition.acquire("a", 0, log_of(2), BATCHED, 0, LOCK_MS)
    renew = Acknowledgement(0, 1, AcknowledgeType.RENEW)
    partition.acknowledge("a", [renew], 900, LOCK_MS)
    assert not partition.must_write
    assert partition.next_deadline_ms() == 900 + LOCK_MS


def test_rejected_and_worn_out_records_are_dead_letters_with_their_reason() -> None:
    partition = SharePartition(0, (), 1)
    partition.acquire("a", 0, log_of(4), BATCHED, 0, LOCK_MS)
    acks = ranges_of_types(0, 3, (3, 3, 2, 1))
    partition.acknowledge("a", acks, 0, LOCK_MS)
    write = written(partition)
    assert [tuple(one) for one in write.dead_letters] == [
        (0, 1, 1, REJECTED),
        (2, 2, 1, LIMIT_REACHED),
    ]
    assert partition.start == 4


def test_the_record_limit_is_exact_and_the_batch_mode_takes_whole_batches() -> None:
    for mode, last in ((AcquireMode.RECORD_LIMIT, 2), (AcquireMode.BATCH_OPTIMIZED, 9)):
        partition = SharePartition(0, (), MAX_DELIVERIES)
        limits = AcquireLimits(3, 100, mode, 1000)
        assert partition.acquire("a", 0, log_of(10, 10), limits, 0, LOCK_MS) == [
            Acquired(0, last, 1)
        ]


def test_acquired_records_are_cut_where_batches_end_once_there_are_enough() -> None:
    partition = SharePartition(0, (), MAX_DELIVERIES)
    limits = AcquireLimits(100, 4, AcquireMode.BATCH_OPTIMIZED, 1000)
    got = partition.acquire("a", 0, log_of(3, 3, 3), limits, 0, LOCK_MS)
    assert got == [Acquired(0, 5, 1), Acquired(6, 8, 1)]


def test_no_more_records_are_read_than_may_be_locked() -> None:
    partition = SharePartition(0, (), MAX_DELIVERIES)
    limits = AcquireLimits(100, 100, AcquireMode.RECORD_LIMIT, 4)
    assert partition.acquire("a", 0, log_of(10), limits, 0, LOCK_MS) == [Acquired(0, 3, 1)]
    assert partition.next_offset(4) is None
    accept(partition, "a", 0, 0)
    written(partition)
    assert partition.next_offset(4) == 4


def test_gaps_and_control_batches_are_not_delivered() -> None:
    partition = SharePartition(0, (), MAX_DELIVERIES)
    fetched = [FetchedBatch(2, 3, True), FetchedBatch(4, 4, False), FetchedBatch(6, 6, True)]
    got = partition.acquire("a", 0, fetched, BATCHED, 0, LOCK_MS)
    assert got == [Acquired(2, 3, 1), Acquired(6, 6, 1)]
    assert partition.start == 2


def test_types_of_an_acknowledgement_become_ranges() -> None:
    kinds = AcknowledgeType
    assert ranges_of_types(5, 9, (1,)) == [(5, 9, kinds.ACCEPT)]
    assert ranges_of_types(5, 8, (1, 1, 3, 0)) == [
        (5, 6, kinds.ACCEPT),
        (7, 7, kinds.REJECT),
        (8, 8, kinds.GAP),
    ]
    for first, last, types in ((5, 4, (1,)), (0, 2, (1, 1)), (0, 0, (9,)), (-1, 0, (1,))):
        with pytest.raises(ValueError):
            ranges_of_types(first, last, types)


# ------------------------------------------------------------------------------------ the model


@dataclass
class One:
    """The state of one offset."""

    state: DeliveryState = AVAILABLE
    count: int = 0
    member: str = ""
    deadline_ms: int = 0
    target: DeliveryState | None = None
    writing: bool = False


class Deliveries(RuleBasedStateMachine):
    """Members, time, storage and restarts, in any order."""

    implementation: type[SharePartition] = SharePartition

    @initialize()
    def begin(self) -> None:
        self.log: list[FetchedBatch] = []
        self.log_start = 0
        self.now_ms = 0
        self.offsets: dict[int, One] = {}
        self.write: StateWrite | None = None
        self.stored_start = 0
        self.stored: tuple[StateBatch, ...] = ()
        self.final: set[int] = set()
        """Offsets whose completion was stored."""
        self.partition = self.implementation(0, (), MAX_DELIVERIES)

    @property
    def log_end(self) -> int:
        return self.log[-1].last + 1 if self.log else 0

    @rule(size=st.integers(1, 6), deliverable=st.sampled_from([True, True, True, False]))
    def produce(self, size: int, deliverable: bool) -> None:
        self.log.append(FetchedBatch(self.log_end, self.log_end + size - 1, deliverable))

    @rule(member=MEMBERS, most=st.integers(1, 8), mode=st.sampled_from(AcquireMode))
    def fetch(self, member: str, most: int, mode: AcquireMode) -> None:
        partition = self.partition
        partition.log_starts_at(self.log_start)
        self._forget_deleted()
        offset = partition.next_offset(MAX_LOCKS)
        free = [at for at, one in self.offsets.items() if one.state is AVAILABLE]
        assert offset is None or offset == min([*free, partition.end])
        if offset is None:
            assert not free
            return
        fetched = [batch for batch in self.log if batch.last >= offset]
        limits = AcquireLimits(most, 100, mode, MAX_LOCKS)
        got = partition.acquire(member, offset, fetched, limits, self.now_ms, LOCK_MS)
        for at in range(self._end, partition.end):
            self.offsets[at] = One()
        for batch in self.log:
            if not batch.deliverable:
                self._archive_free(batch.first, min(batch.last, partition.end - 1))
        taken = 0
        for first, last, count in got:
            for at in range(first, last + 1):
                one = self.offsets[at]
                assert one.state is AVAILABLE, f"offset {at} is delivered while it is {one}"
                assert at not in self.final, f"offset {at} is delivered after it was completed"
                one.state, one.count, one.member = ACQUIRED, one.count + 1, member
                one.deadline_ms = self.now_ms + LOCK_MS
                assert one.count == count <= MAX_DELIVERIES
                taken += 1
        if mode is AcquireMode.RECORD_LIMIT:
            assert taken <= most
        deliverable = [
            at for at in free if any(b.first <= at <= b.last and b.deliverable for b in fetched)
        ]
        assert taken or not deliverable, "a record that is available was not delivered"
        self._settle()

    @property
    def _end(self) -> int:
        return max(self.offsets, default=self._start - 1) + 1

    _start = 0

    def _archive_free(self, first: int, last: int) -> None:
        for at in range(first, last + 1):
            if at in self.offsets and self.offsets[at].state is AVAILABLE:
                self.offsets[at].state = ARCHIVED

    def _forget_deleted(self) -> None:
        if self.log_start > self._start:
            for at in range(self._end, self.log_start):
                self.offsets[at] = One()
            self._archive_free(self._start, self.log_start - 1)
            self._settle()

    def _settle(self) -> None:
        while self._start in self.offsets and self.offsets[self._start].state in COMPLETE:
            del self.offsets[self._start]
            self._start += 1

    @precondition(lambda self: any(one.state is ACQUIRED for one in self.offsets.values()))
    @rule(member=MEMBERS, data=st.data())
    def acknowledge(self, member: str, data: st.DataObject) -> None:
        first = data.draw(st.integers(self._start, self._end - 1))
        last = data.draw(st.integers(first, min(first + 5, self._end)))
        types = data.draw(
            st.lists(st.sampled_from(AcknowledgeType), min_size=last - first + 1,
                     max_size=last - first + 1)
        )  # fmt: skip
        acks = ranges_of_types(first, last, types)
        mine = all(
            at in self.offsets
            and self.offsets[at].state is ACQUIRED
            and self.offsets[at].member == member
            and self.offsets[at].target is None
            for at in range(first, last + 1)
        )
        try:
            self.partition.acknowledge(member, acks, self.now_ms, LOCK_MS)
        except KafkaError:
            assert not mine
            return
        assert mine, "a member acknowledged a record that it does not hold"
        for at, kind in zip(range(first, last + 1), types, strict=True):
            one = self.offsets[at]
            match kind:
                case AcknowledgeType.RENEW:
                    one.deadline_ms = self.now_ms + LOCK_MS
                case AcknowledgeType.ACCEPT:
                    one.target = ACKNOWLEDGED
                case AcknowledgeType.RELEASE:
                    self._release(one)
                case _:
                    one.target = ARCHIVED

    def _release(self, one: One) -> None:
        one.target = ARCHIVED if one.count >= MAX_DELIVERIES else AVAILABLE

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        self.partition.release_member(member)
        for one in self.offsets.values():
            if one.state is ACQUIRED and one.member == member and one.target is None:
                self._release(one)

    @rule(ms=st.sampled_from([1, LOCK_MS // 2, LOCK_MS]))
    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.partition.expire(self.now_ms)
        for one in self.offsets.values():
            if one.state is ACQUIRED and one.target is None and one.deadline_ms <= self.now_ms:
                self._release(one)

    @precondition(lambda self: self.write is None and self.partition.must_write)
    @rule()
    def begin_write(self) -> None:
        self.write = self.partition.begin_write()
        for one in self.offsets.values():
            one.writing = one.target is not None

    @precondition(lambda self: self.write is not None)
    @rule(stored=st.booleans(), answered=st.booleans())
    def end_write(self, stored: bool, answered: bool) -> None:
        """`answered` is False if the state was stored and the response was lost."""
        assert self.write is not None
        if stored:
            self._store(self.write)
        self.write = None
        self.partition.end_write(stored and answered, self.now_ms)
        for one in self.offsets.values():
            if not one.writing:
                continue
            assert one.target is not None
            if stored and answered:
                one.state, one.member = one.target, ""
            else:
                one.deadline_ms = max(one.deadline_ms, self.now_ms + 1000)
            one.target, one.writing = None, False
        self._settle()

    def _store(self, write: StateWrite) -> None:
        self.stored = updated(self.stored, write.batches, write.start)
        self.stored_start = max(write.start, self.stored_start)
        for at in range(self.stored_start):
            one = self.offsets.get(at)
            done = one is None or one.state in COMPLETE or (one.writing and one.target in COMPLETE)
            assert done or at in self.final, f"the start offset was stored beyond {at}, {one}"
            self.final.add(at)
        for batch in self.stored:
            if batch.state in COMPLETE:
                self.final.update(range(batch.first, batch.last + 1))

    @precondition(lambda self: self.write is None)
    @rule(member=MEMBERS)
    def fail(self, member: str) -> None:
        """A member fetches records, and dies."""
        self.fetch(member, 8, AcquireMode.BATCH_OPTIMIZED)
        self.leave(member)
        if self.partition.must_write:
            self.begin_write()
            self.end_write(True, True)

    @rule(by=st.integers(1, 5))
    def delete_records(self, by: int) -> None:
        bounds = [batch.first for batch in self.log if batch.first > self.log_start]
        if bounds:
            self.log_start = bounds[min(by, len(bounds)) - 1]
            self.log = [batch for batch in self.log if batch.first >= self.log_start]

    @rule(stored=st.booleans())
    def restart(self, stored: bool) -> None:
        """Another broker leads the partition; a write in flight may have been stored."""
        if self.write is not None and stored:
            self._store(self.write)
        self.write = None
        self._start = self.stored_start
        self.partition = self.implementation(self.stored_start, self.stored, MAX_DELIVERIES)
        self.offsets = {}
        for batch in self.stored:
            for at in range(self._end, batch.first):
                self.offsets[at] = One()
            for at in range(batch.first, batch.last + 1):
                self.offsets[at] = One(batch.state, batch.deliveries)
        self._settle()

    @invariant()
    def same_as_the_model(self) -> None:
        if not hasattr(self, "partition"):
            return
        partition = self.partition
        assert (partition.start, partition.end) == (self._start, self._end)
        states = [one.state for one in self.offsets.values()]
        flight = partition.in_flight()
        assert flight.available == states.count(AVAILABLE)
        assert flight.acquired == states.count(ACQUIRED)
        deadlines = [
            one.deadline_ms
            for one in self.offsets.values()
            if one.state is ACQUIRED and one.target is None
        ]
        assert partition.next_deadline_ms() == min(deadlines, default=None)


FEW = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def test_any_sequence_of_events_keeps_the_promises() -> None:
    run_state_machine_as_test(Deliveries, settings=FEW)


# --------------------------------------------------------------------------------- planted bugs


class ForgetsTheMember(SharePartition):
    """Any member may acknowledge a locked record."""

    def _holds(self, run: Any, member: str) -> bool:
        return bool(run.is_locked)


class BelievesAFailedWrite(SharePartition):
    """A failed write counts as stored."""

    def end_write(self, stored: bool, now_ms: int) -> None:
        super().end_write(True, now_ms)


class DeliversForever(SharePartition):
    """The delivery limit is ignored."""

    def _release(self, run: Any) -> None:
        run.target, run.reason = AVAILABLE, ""


class StoresTheEnd(SharePartition):
    """The stored start offset is beyond records that are still locked."""

    def begin_write(self) -> StateWrite:
        return super().begin_write()._replace(start=self.end)


class ForgetsStoredStates(SharePartition):
    """A new leader ignores what was stored after the start offset."""

    def __init__(self, start: int, batches: Any, max_deliveries: int) -> None:
        super().__init__(start, (), max_deliveries)


class NeverExpires(SharePartition):
    """Locks do not expire."""

    def expire(self, now_ms: int) -> None:
        pass


@pytest.mark.parametrize(
    "bug",
    [
        ForgetsTheMember,
        BelievesAFailedWrite,
        DeliversForever,
        StoresTheEnd,
        ForgetsStoredStates,
        NeverExpires,
    ],
)
def test_a_planted_bug_is_found(bug: Callable[..., SharePartition]) -> None:
    machine = type("Planted", (Deliveries,), {"implementation": bug})
    many = settings(FEW, max_examples=1000, phases=[Phase.generate], database=None)
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(machine, settings=many)
