"""Any sequence of calls, restarts and power cuts against a model that is a plain list."""

from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.disk.failpoints import ANY, Fault, Killed
from headrace.disk.memory import MemoryDisk
from headrace.errors import ErrorCode, KafkaError
from headrace.log.log import Log
from headrace.wire.batch import CONTROL, TRANSACTIONAL, read_header
from headrace.wire.markers import decode_marker, encode_marker
from tests.log.samples import (
    NOW,
    ORDERS,
    ORDERS_ID,
    SMALL,
    append,
    batch,
    contents,
    open_directory,
    remove_dropped,
)

TRANSACTIONAL_PRODUCERS = (3, 4)


class Entry(NamedTuple):
    base: int
    records: int
    data: bytes
    producer: int
    sequence: int
    epoch: int = 0
    commit: bool | None = None
    """What a marker says; None for data."""

    @property
    def end(self) -> int:
        return self.base + self.records


class Transaction(NamedTuple):
    producer: int
    batches: tuple[Entry, ...]
    marker: Entry | None

    @property
    def first(self) -> int:
        return self.batches[0].base


def transactions(entries: list[Entry]) -> list[Transaction]:
    """All transactions in the log, in the order of their ends, the open ones last."""
    found: list[Transaction] = []
    open_now: dict[int, list[Entry]] = {}
    for entry in entries:
        if entry.commit is not None:
            batches = open_now.pop(entry.producer, [])
            if batches:
                found.append(Transaction(entry.producer, tuple(batches), entry))
        elif entry.producer in TRANSACTIONAL_PRODUCERS:
            open_now.setdefault(entry.producer, []).append(entry)
    return found + [Transaction(pid, tuple(batches), None) for pid, batches in open_now.items()]


class LogMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**16))
    def begin(self, seed: int) -> None:
        self.disk = MemoryDisk(seed)
        self.directory = open_directory(self.disk)
        self.log: Log = self.directory.create(ORDERS, ORDERS_ID, SMALL)
        self.log.flush()
        self.entries: list[Entry] = []
        self.start = 0
        self.saved_start = 0
        self.synced = 0
        self.end = 0
        self.serial = 0
        # What is being appended, for the case that it is the last thing that happens.
        self.unsure: Entry | None = None
        # A power cut may take a snapshot along, and so what it knew of deleted records.
        self.forgetful = False

    def _epoch(self, producer: int) -> int:
        sent = [entry for entry in self.entries if entry.producer == producer]
        return sent[-1].epoch if sent else 0

    def _next_sequence(self, producer: int) -> int:
        epoch = self._epoch(producer)
        sent = [
            entry
            for entry in self.entries
            if entry.producer == producer and entry.epoch == epoch and entry.commit is None
        ]
        return sent[-1].sequence + sent[-1].records if sent else 0

    @rule(
        count=st.integers(1, 4),
        size=st.integers(0, 80),
        producer=st.sampled_from([-1, 1, 2, *TRANSACTIONAL_PRODUCERS]),
    )
    def append(self, count: int, size: int, producer: int) -> None:
        self.serial += 1
        sequence = self._next_sequence(producer) if producer >= 0 else -1
        epoch = self._epoch(producer) if producer >= 0 else -1
        data = batch(
            count,
            timestamp=NOW + self.serial * 10,
            producer_id=producer,
            epoch=epoch,
            sequence=sequence,
            value=b"%d" % self.serial + b"x" * size,
            attributes=TRANSACTIONAL if producer in TRANSACTIONAL_PRODUCERS else 0,
        )
        known = self.log.producers.producers.get(producer)
        if self.forgetful and sequence > 0 and known is not None and not known.batches:
            # Only the marker of this epoch is left, and nobody knows how far the sequence was.
            return
        entry = Entry(self.end, count, bytes(data[16:]), producer, sequence, epoch)
        self.unsure = entry
        assert append(self.log, data, epoch=self.serial // 20) == entry.base
        self.entries.append(entry)
        self.end += count

    @rule(count=st.integers(1, 4), producer=st.sampled_from(TRANSACTIONAL_PRODUCERS))
    def append_in_a_transaction(self, count: int, producer: int) -> None:
        self.append(count, 20, producer)

    @rule(
        producer=st.sampled_from(TRANSACTIONAL_PRODUCERS),
        commit=st.booleans(),
        new_epoch=st.booleans(),
    )
    def end_transaction(self, producer: int, commit: bool, new_epoch: bool) -> None:
        self.serial += 1
        epoch = self._epoch(producer) + new_epoch
        data = encode_marker(producer, epoch, commit, 1, NOW + self.serial * 10)
        assert append(self.log, data, epoch=self.serial // 20) == self.end
        self.entries.append(Entry(self.end, 1, bytes(data[16:]), producer, -1, epoch, commit))
        self.end += 1

    def _idempotent(self) -> list[Entry]:
        return [
            e for e in self.entries if e.producer >= 0 and e.end > self.start and e.commit is None
        ]

    @precondition(lambda self: bool(self._idempotent()))
    @rule(data=st.data())
    def append_again(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self._idempotent()))
        repeated = bytearray(16) + bytearray(entry.data)
        newest = [e for e in self.entries if e.producer == entry.producer][-1]
        if entry is newest:
            assert append(self.log, repeated) == entry.base
        else:
            answer: int | ErrorCode
            try:
                answer = append(self.log, repeated)
            except KafkaError as error:
                answer = error.code
            assert answer in (
                entry.base,
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                ErrorCode.INVALID_PRODUCER_EPOCH,
            )

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == self.end
        self.synced = self.end

    @rule()
    def checkpoint(self) -> None:
        self.directory.checkpoint()
        self.saved_start = self.start

    @rule(back=st.integers(0, 30))
    def truncate(self, back: int) -> None:
        target = max(self.end - back, self.start)
        self.log.truncate_to(target)
        kept = [entry for entry in self.entries if entry.end <= target]
        if len(kept) < len(self.entries):
            target = min(target, self.entries[len(kept)].base)
        self.entries = kept
        self.end = target
        self.start = min(self.start, self.end)
        self.synced = min(self.synced, self.end)
        # A lower recovery point is saved at once, and the start offsets with it.
        self.saved_start = min(self.saved_start, self.log.start_offset)

    @rule(forward=st.integers(0, 30))
    def delete_records(self, forward: int) -> None:
        target = min(self.start + forward, self.end)
        assert self.log.delete_records_before(target) == target
        self.start = target
        remove_dropped(self.log)

    @rule()
    def reopen(self) -> None:
        self.directory.close()
        self.directory = open_directory(self.disk)
        assert self.directory.folder.stopped_cleanly
        self.log = self.directory.get(ORDERS, SMALL)
        self.synced = self.end
        self.saved_start = self.start

    @rule()
    def kill(self) -> None:
        self.disk.kill()
        self._recover()
        assert self.log.end_offset == self.end

    @rule(
        work=st.sampled_from(["append", "roll", "flush", "checkpoint", "reopen"]),
        step=st.integers(0, 15),
        after=st.booleans(),
        power=st.booleans(),
    )
    def die_at_some_step(self, work: str, step: int, after: bool, power: bool) -> None:
        self.disk.failpoints.arm(ANY, Fault(kill=True, after=after), skip=step)
        before, self.unsure = self.entries[:], None
        try:
            if work == "append":
                self.append(2, 60, -1)
            else:
                getattr(self, work)()
        except Killed:
            self.entries = before
        self.disk.failpoints.clear()
        unsure = self.__dict__["unsure"]
        if unsure is not None and len(self.entries) == len(before):
            self.entries.append(unsure)  # perhaps; the end says whether
            self.end = unsure.end
        if power:
            self.cut_power()
            return
        self.disk.kill()
        self._recover()
        if unsure is not None and self.log.end_offset == unsure.base:
            self.entries.pop()
            self.end = unsure.base
        assert self.log.end_offset == self.end

    @rule()
    def cut_power(self) -> None:
        self.disk.crash()
        self.forgetful = True
        self._recover()
        end = self.log.end_offset
        assert self.synced <= end <= self.end, "all that was flushed, and nothing new"
        self.entries = [entry for entry in self.entries if entry.end <= end]
        if self.entries and self.entries[-1].end < end:
            assert self.start == end, "the start offset outlived the records: an empty log"
            self.entries = []
        self.end = end

    def _recover(self) -> None:
        self.directory = open_directory(self.disk)
        if (
            not self.directory.folder.stopped_cleanly
        ):  # a death at the very end of a stop leaves it clean
            # With other replicas a log is a prefix of what it was; alone it keeps what it can.
            self.directory.recover(lambda _: SMALL, is_replicated=lambda _: True)
        self.log = self.directory.get(ORDERS, SMALL, True)
        # Deleting records is durable with the next checkpoint, not before.
        assert self.log.start_offset <= max(self.start, self.saved_start)
        assert self.log.start_offset >= self.saved_start
        self.start = self.saved_start = self.log.start_offset
        self.synced = self.log.end_offset

    @invariant()
    def reads_give_what_was_appended(self) -> None:
        if not hasattr(self, "log"):
            return
        assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
        expected = [(e.base, e.data) for e in self.entries if e.end > self.start]
        assert contents(self.log, 300) == expected

    @invariant()
    def the_last_stable_offset_is_where_the_oldest_open_transaction_begins(self) -> None:
        if not hasattr(self, "log"):
            return
        stable = self.log.last_stable_offset(self.end)
        still_open = [t for t in transactions(self.entries) if t.marker is None]
        expected = max(self.start, min((t.first for t in still_open), default=self.end))
        if not self.forgetful:
            assert stable == expected
            return
        left = [b.base for t in still_open for b in t.batches if b.base >= self.start]
        assert expected <= stable <= min(left, default=self.end)

    @invariant()
    def consumers_of_committed_records_are_shown_all_of_them_and_no_others(self) -> None:
        if not hasattr(self, "log"):
            return
        stable = self.log.last_stable_offset(self.end)
        shown: list[int] = []
        offset = self.start
        while (piece := self.log.read(offset, 400, stable, True)) is not None:
            data = self.disk.pread(piece.file.fd, piece.length, piece.position)
            behind = self.log.segments.offset_after(offset, piece, self.log.end_offset)
            aborted = self.log.transactions.between(offset, behind)
            offset = skip_aborted(data, aborted, shown)
        hidden = {
            batch.base
            for t in transactions(self.entries)
            if t.marker is None or not t.marker.commit
            for batch in t.batches
        }
        expected = [
            e.base
            for e in self.entries
            if self.start < e.end <= stable and e.commit is None and e.base not in hidden
        ]
        assert shown == expected

    @invariant()
    def aborted_transactions_are_listed_for_any_range(self) -> None:
        if not hasattr(self, "log") or self.forgetful:
            return
        stable = self.log.last_stable_offset(self.end)
        start = self.start + (stable - self.start) * (self.serial % 3) // 4
        end = stable - (stable - start) * (self.serial % 2) // 2
        expected = [
            (t.producer, t.first)
            for t in transactions(self.entries)
            if t.marker is not None
            and not t.marker.commit
            and t.marker.base >= start
            and t.first < end
        ]
        assert self.log.transactions.between(start, end) == expected

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data())
    def look_up_a_time(self, data: st.DataObject) -> None:
        time = NOW + data.draw(st.integers(0, self.serial * 10 + 10))
        found = self.log.find_timestamp(time)
        expected = None
        for entry in self.entries:
            stamp = int.from_bytes(entry.data[11:19], "big")
            for i in range(entry.records):
                if entry.base + i >= self.start and stamp + i >= time and expected is None:
                    expected = entry.base + i
        assert (found.offset if found else None) == expected

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data(), max_bytes=st.integers(1, 2000))
    def read_somewhere(self, data: st.DataObject, max_bytes: int) -> None:
        offset = data.draw(st.integers(self.start, self.end - 1))
        piece = self.log.read(offset, max_bytes, self.end, True)
        assert piece is not None
        first = self.disk.pread(piece.file.fd, 16, piece.position)
        holder = next(entry for entry in self.entries if entry.end > offset)
        assert int.from_bytes(first[:8], "big") == holder.base

    @rule(beyond=st.integers(1, 5))
    def read_past_the_end(self, beyond: int) -> None:
        with pytest.raises(KafkaError) as caught:
            self.log.read(self.end + beyond, 100, self.end, True)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def skip_aborted(data: bytes, aborted: list[tuple[int, int]], shown: list[int]) -> int:
    """Add the batches that a consumer of committed records shows; the offset behind the last."""
    waiting = sorted(aborted, key=lambda one: one[1])
    skipped: set[int] = set()
    at = offset = 0
    while at < len(data):
        header = read_header(data, at)
        size = header.size_bytes
        offset = header.next_offset
        while waiting and waiting[0][1] < offset:
            skipped.add(waiting.pop(0)[0])
        if header.attributes & CONTROL:
            marker = decode_marker(data[at : at + size])
            if marker is not None and not marker.commit:
                skipped.discard(header.producer_id)
        elif not (header.attributes & TRANSACTIONAL and header.producer_id in skipped):
            shown.append(header.base_offset)
        at += size
    return offset


LogMachine.TestCase.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestLogAgainstTheModel = LogMachine.TestCase
