"""What retention deletes: single decisions, and a model for each policy with a clock of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.clock import ManualClock
from headrace.disk.memory import MemoryDisk
from headrace.log.directory import LogDirectory
from headrace.log.log import Log
from headrace.log.retention import LogView, Reason, RetentionDecision, Risk, decide, risks
from headrace.settings import LogSettings
from tests.log.samples import NOW, ORDERS, ORDERS_ID, SMALL, append, batch, open_directory

FOREVER = LogSettings(retention_ms=-1)
CONSUMED = replace(FOREVER, cleanup_policy=frozenset({"consumed"}))


@dataclass
class Piece:
    """A segment that is nothing but its numbers."""

    base_offset: int
    size: int
    newest: int = NOW

    def newest_ms(self) -> int:
        return self.newest


def view(*pieces: Piece, end: int, start: int = 0, high_watermark: int | None = None) -> LogView:
    return LogView(pieces, start, end, end if high_watermark is None else high_watermark)


HUNDREDS = (Piece(0, 1000, NOW), Piece(100, 1000, NOW + 10), Piece(200, 1000, NOW + 20))


def reasons(
    log: LogView, chosen: LogSettings, now_ms: int = NOW, committed: Mapping[str, int] | None = None
) -> list[Reason]:
    return list(decide(log, chosen, now_ms, committed or {}).reasons)


def test_without_limits_everything_stays_forever() -> None:
    assert reasons(view(*HUNDREDS, end=300), FOREVER, NOW * 1000) == []


def test_without_a_policy_everything_stays_forever() -> None:
    keep_all = LogSettings(cleanup_policy=frozenset(), retention_ms=0, retention_bytes=0)
    assert reasons(view(*HUNDREDS, end=300), keep_all, NOW * 1000) == []


def test_a_segment_goes_when_its_newest_record_is_older_than_the_limit() -> None:
    week = LogSettings()
    log = view(*HUNDREDS, end=300)
    assert reasons(log, week, NOW + week.retention_ms) == []
    assert reasons(log, week, NOW + week.retention_ms + 1) == [Reason.TIME]
    assert reasons(log, week, NOW + week.retention_ms + 11) == [Reason.TIME] * 2


def test_the_active_segment_goes_too_if_it_has_records() -> None:
    long_after = NOW + 10 * LogSettings().retention_ms
    assert reasons(view(*HUNDREDS, end=300), LogSettings(), long_after) == [Reason.TIME] * 3
    empty = view(*HUNDREDS, Piece(300, 0), end=300)
    assert reasons(empty, LogSettings(), long_after) == [Reason.TIME] * 3


def test_a_young_segment_protects_old_ones_behind_it() -> None:
    log = view(Piece(0, 10, NOW), Piece(10, 10, 0), Piece(20, 10, NOW), end=30)
    assert reasons(log, LogSettings(), NOW) == []


def test_size_counts_whole_segments_and_never_goes_below_the_limit() -> None:
    log = view(*HUNDREDS, end=300)
    assert reasons(log, replace(FOREVER, retention_bytes=2001)) == []
    assert reasons(log, replace(FOREVER, retention_bytes=2000)) == [Reason.SIZE]
    assert reasons(log, replace(FOREVER, retention_bytes=1)) == [Reason.SIZE] * 2
    assert reasons(log, replace(FOREVER, retention_bytes=0)) == [Reason.SIZE] * 3


def test_the_newest_messages_stay_and_never_fewer() -> None:
    log = view(*HUNDREDS, end=250)
    assert reasons(log, replace(FOREVER, retention_messages=151)) == []
    assert reasons(log, replace(FOREVER, retention_messages=150)) == [Reason.MESSAGES]
    assert reasons(log, replace(FOREVER, retention_messages=50)) == [Reason.MESSAGES] * 2
    assert reasons(log, replace(FOREVER, retention_messages=1)) == [Reason.MESSAGES] * 2


def test_nothing_goes_that_is_not_committed() -> None:
    everything = LogSettings(retention_ms=0)
    log = view(*HUNDREDS, end=300, high_watermark=199)
    assert reasons(log, everything, NOW + 1000) == [Reason.TIME]
    log = view(*HUNDREDS, end=300, high_watermark=299)
    assert reasons(log, everything, NOW + 1000) == [Reason.TIME] * 2


def test_a_compacted_log_loses_only_what_lies_below_its_start() -> None:
    compacted = LogSettings(cleanup_policy=frozenset({"compact"}), retention_ms=0)
    log = view(*HUNDREDS, end=300, start=150)
    assert reasons(log, compacted, NOW * 2) == [Reason.START_OFFSET]
    both = replace(compacted, cleanup_policy=frozenset({"compact", "delete"}))
    assert reasons(log, both, NOW * 2) == [Reason.START_OFFSET, Reason.TIME, Reason.TIME]


def test_the_active_segment_stays_even_below_the_start() -> None:
    assert reasons(view(Piece(0, 100), end=10, start=10), FOREVER) == []


@pytest.mark.parametrize(
    ("groups", "committed", "gone"),
    [
        ((), {}, 0),
        ((), {"a": 100}, 1),
        ((), {"a": 300}, 3),
        ((), {"a": 300, "b": 99}, 0),
        ((), {"a": 300, "b": -1}, 0),
        (("a",), {"a": 200, "b": 0}, 2),
        (("a", "c"), {"a": 200, "b": 0}, 0),
    ],
)
def test_a_segment_that_every_registered_group_has_read_goes(
    groups: tuple[str, ...], committed: Mapping[str, int], gone: int
) -> None:
    chosen = replace(CONSUMED, consumed_groups=frozenset(groups))
    found = reasons(view(*HUNDREDS, end=300), chosen, NOW, committed)
    assert found == [Reason.CONSUMED] * gone


def test_records_without_consumers_are_deleted_by_age() -> None:
    chosen = replace(CONSUMED, retention_ms=1000)
    log = view(*HUNDREDS, end=300)
    assert reasons(log, chosen, NOW + 1011) == [Reason.TIME] * 2
    assert reasons(log, chosen, NOW + 1011, {"a": 0, "b": 100}) == [Reason.TIME] * 2


def test_a_group_holds_what_it_has_not_read_up_to_a_size() -> None:
    chosen = LogSettings(retention_ms=0, retention_hold_groups=frozenset({"slow"}))
    log, late = view(*HUNDREDS, Piece(300, 0), end=300), NOW + 1000
    assert decide(log, chosen, late, {"slow": 100}) == RetentionDecision((Reason.TIME,), 2000)
    assert decide(log, chosen, late, {"slow": 300}) == RetentionDecision((Reason.TIME,) * 3, 0)
    assert decide(log, chosen, late, {}) == RetentionDecision((), 3000), (
        "one that never read holds all"
    )
    bounded = replace(chosen, retention_hold_bytes=1500)
    assert decide(log, bounded, late, {}) == RetentionDecision((Reason.HOLD,) * 2, 1000)
    assert decide(log, bounded, late, {"slow": 100}) == RetentionDecision(
        (Reason.TIME, Reason.HOLD), 1000
    )


def test_deleting_records_by_hand_is_not_held_up() -> None:
    chosen = replace(FOREVER, retention_hold_groups=frozenset({"slow"}))
    assert reasons(view(*HUNDREDS, end=300, start=200), chosen) == [Reason.START_OFFSET] * 2


def warned(
    log: LogView, chosen: LogSettings, now_ms: int, committed: Mapping[str, int]
) -> list[Risk]:
    return list(risks(log, chosen, now_ms, committed))


def test_a_group_is_warned_of_when_little_is_left_of_the_time() -> None:
    chosen = LogSettings(retention_ms=1000, retention_warn_ratio=0.25)
    log = view(*HUNDREDS, end=300)
    assert warned(log, chosen, NOW + 749, {"g": 50}) == []
    assert warned(log, chosen, NOW + 750, {"g": 50}) == [Risk("g", 50, Reason.TIME, 250)]
    assert warned(log, chosen, NOW + 750, {"g": 100}) == []
    assert warned(log, replace(chosen, retention_warn_ratio=0.0), NOW + 999, {"g": 50}) == []


def test_a_group_is_warned_of_when_little_is_left_of_the_size_or_of_the_number() -> None:
    log = view(*HUNDREDS, end=300)
    by_size = replace(FOREVER, retention_bytes=2200)
    assert warned(log, by_size, NOW, {"g": 99, "h": 100}) == [Risk("g", 99, Reason.SIZE, 200)]
    by_number = replace(FOREVER, retention_messages=210)
    assert warned(log, by_number, NOW, {"g": 0, "h": 100}) == [Risk("g", 0, Reason.MESSAGES, 10)]


def test_groups_without_unread_records_cause_no_warning() -> None:
    chosen = LogSettings(retention_ms=1000, retention_warn_ratio=1.0)
    log = view(*HUNDREDS, end=300, start=20)
    assert warned(log, chosen, NOW + 999, {"done": 300, "lost": 10, "new": -1}) == []


def test_a_group_that_holds_is_warned_of_when_the_hold_is_nearly_full() -> None:
    chosen = LogSettings(retention_ms=0, retention_hold_groups=frozenset({"g"}))
    log = view(*HUNDREDS, Piece(300, 0), end=300)
    full = replace(chosen, retention_hold_bytes=3100)
    assert warned(log, full, NOW + 1000, {"g": 5}) == [Risk("g", 5, Reason.HOLD, 100)]
    assert warned(log, chosen, NOW + 1000, {"g": 5}) == []


# -- models ------------------------------------------------------------------------------------


class RetentionMachine(RuleBasedStateMachine):
    """A log that is written, read and cleaned; the policy's promises are checked at each pass."""

    policy: ClassVar[LogSettings] = FOREVER

    @initialize(seed=st.integers(0, 2**16))
    def begin(self, seed: int) -> None:
        self.disk = MemoryDisk(seed)
        self.clock = ManualClock(NOW)
        self.settings = replace(
            self.policy, segment_bytes=SMALL.segment_bytes, index_interval_bytes=150
        )
        self.directory: LogDirectory = open_directory(self.disk, self.clock)
        self.log: Log = self.directory.create(ORDERS, ORDERS_ID, self.settings)
        self.times: list[int] = []
        """The timestamp of every record that was ever appended."""
        self.committed: dict[str, int] = {}
        self.start = 0

    @rule(count=st.integers(1, 4), age_ms=st.integers(-50, 500), size=st.integers(0, 90))
    def append(self, count: int, age_ms: int, size: int) -> None:
        timestamp = self.clock.now_ms() - age_ms
        base = append(
            self.log,
            batch(count, timestamp=timestamp, value=b"v" * size),
            now_ms=self.clock.now_ms(),
        )
        assert base == len(self.times)
        self.times += [timestamp + i for i in range(count)]

    @rule(ms=st.integers(0, 300))
    def wait(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule(group=st.sampled_from(["a", "b"]), data=st.data())
    def commit(self, group: str, data: st.DataObject) -> None:
        low = self.committed.get(group, 0)
        self.committed[group] = data.draw(st.integers(low, len(self.times)))

    @rule()
    def files_go(self) -> None:
        self.directory.remove_dropped()

    @rule(forward=st.integers(0, 20))
    def delete_records(self, forward: int) -> None:
        self.start = min(self.start + forward, len(self.times))
        assert self.log.delete_records_before(self.start) == self.start

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        if clean:
            self.directory.close()
        else:
            self.directory.checkpoint()
            self.disk._locks.clear()
        self.directory = open_directory(self.disk, self.clock)
        self.log = self.directory.get(ORDERS, self.settings)

    @rule()
    def look(self) -> None:
        log, now_ms = self.log, self.clock.now_ms()
        before = self.segments()
        view = LogView(log.segments, log.start_offset, log.end_offset, log.end_offset)
        verdict = decide(view, self.settings, now_ms, self.committed)
        if verdict.reasons:
            log.delete_segments(len(verdict.reasons), now_ms)
        kept = self.segments()
        gone = [each for each in before if each not in kept]
        assert kept[: len(before) - len(gone)] == before[len(gone) :], "only the oldest go"
        below = [end <= self.start for _, end in zip(gone, self.ends(before), strict=False)]
        self.start = max(self.start, kept[0][0])
        self.check(gone[sum(below) :], kept, now_ms)

    def segments(self) -> list[tuple[int, int]]:
        """First offset and size of each."""
        return [(segment.base_offset, segment.size) for segment in self.log.segments]

    def check(self, gone: list[tuple[int, int]], kept: list[tuple[int, int]], now_ms: int) -> None:
        """What the policy promises after each pass."""
        assert not gone

    def ends(self, pieces: list[tuple[int, int]]) -> list[int]:
        return [base for base, _ in pieces[1:]] + [self.log.end_offset]

    @invariant()
    def the_log_begins_and_ends_where_it_should(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.start_offset, self.log.end_offset) == (self.start, len(self.times))
            assert self.log.segments[0].base_offset <= self.start


class TimeMachine(RetentionMachine):
    policy = LogSettings(retention_ms=200)

    @rule(ms=st.integers(0, 400))
    def change(self, ms: int) -> None:
        self.settings = replace(self.settings, retention_ms=ms)
        self.log.use_settings(self.settings)

    def check(self, gone: list[tuple[int, int]], kept: list[tuple[int, int]], now_ms: int) -> None:
        oldest = now_ms - self.settings.retention_ms
        for (base, _), end in zip(gone, self.ends(gone + kept), strict=False):
            assert all(time < oldest for time in self.times[base:end])
        base, size = kept[0]
        alone = self.times[base : self.ends(kept)[0]]
        assert size == 0 or end_is_young(alone, oldest), "what is due is gone"


def end_is_young(times: list[int], oldest: int) -> bool:
    return max(times) >= oldest


class SizeMachine(RetentionMachine):
    policy = replace(FOREVER, retention_bytes=1200)

    @rule(limit=st.integers(0, 3000))
    def change(self, limit: int) -> None:
        self.settings = replace(self.settings, retention_bytes=limit)
        self.log.use_settings(self.settings)

    def check(self, gone: list[tuple[int, int]], kept: list[tuple[int, int]], now_ms: int) -> None:
        limit, left = self.settings.retention_bytes, sum(size for _, size in kept)
        assert not gone or left >= limit
        assert not left or left - kept[0][1] < limit


class MessagesMachine(RetentionMachine):
    policy = replace(FOREVER, retention_messages=20)

    @rule(limit=st.integers(1, 60))
    def change(self, limit: int) -> None:
        self.settings = replace(self.settings, retention_messages=limit)
        self.log.use_settings(self.settings)

    def check(self, gone: list[tuple[int, int]], kept: list[tuple[int, int]], now_ms: int) -> None:
        limit, end = self.settings.retention_messages, self.log.end_offset
        assert not gone or end - kept[0][0] >= limit, "never fewer than asked for"
        assert len(kept) == 1 or end - kept[1][0] < limit, "and less than a segment more"


class ConsumedMachine(RetentionMachine):
    policy = replace(LogSettings(retention_ms=1000), cleanup_policy=frozenset({"consumed"}))

    @rule(groups=st.sampled_from([(), ("a",), ("a", "b"), ("nobody",)]))
    def change(self, groups: tuple[str, ...]) -> None:
        self.settings = replace(self.settings, consumed_groups=frozenset(groups))
        self.log.use_settings(self.settings)

    def check(self, gone: list[tuple[int, int]], kept: list[tuple[int, int]], now_ms: int) -> None:
        oldest = now_ms - self.settings.retention_ms
        groups = self.settings.consumed_groups or self.committed
        read = min((self.committed.get(group, -1) for group in groups), default=-1)
        for (base, _), end in zip(gone, self.ends(gone + kept), strict=False):
            assert end <= read or all(time < oldest for time in self.times[base:end])
        base, size = kept[0]
        end = self.ends(kept)[0]
        assert size == 0 or (end > read and end_is_young(self.times[base:end], oldest))


class HoldMachine(RetentionMachine):
    policy = LogSettings(
        retention_ms=100, retention_hold_groups=frozenset({"a"}), retention_hold_bytes=1500
    )

    @rule(limit=st.integers(0, 4000))
    def change(self, limit: int) -> None:
        self.settings = replace(self.settings, retention_hold_bytes=limit)
        self.log.use_settings(self.settings)

    def check(self, gone: list[tuple[int, int]], kept: list[tuple[int, int]], now_ms: int) -> None:
        oldest = now_ms - self.settings.retention_ms
        read = self.committed.get("a", -1)
        due: list[tuple[int, int, int]] = []
        everything = gone + kept
        for (base, size), end in zip(everything, self.ends(everything), strict=True):
            if size == 0 or end_is_young(self.times[base:end], oldest):
                break
            due.append((base, size, end))
        held = sum(size for base, size, end in due[len(gone) :])
        assert held <= self.settings.retention_hold_bytes, "holding is bounded"
        unread = [size for _, size, end in due[: len(gone)] if end > read]
        if unread:
            assert held + unread[-1] > self.settings.retention_hold_bytes, "and goes to the bound"
        elif len(due) > len(gone):
            assert due[len(gone)][2] > read, "what was read is not held"


class ForeverMachine(RetentionMachine):
    def check(self, gone: list[tuple[int, int]], kept: list[tuple[int, int]], now_ms: int) -> None:
        assert not gone


MACHINES = {
    "forever": ForeverMachine,
    "time": TimeMachine,
    "size": SizeMachine,
    "messages": MessagesMachine,
    "consumed": ConsumedMachine,
    "hold": HoldMachine,
}


@pytest.mark.parametrize("policy", MACHINES)
def test_a_policy_keeps_its_promises(policy: str) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        MACHINES[policy],
        settings=settings(
            max_examples=40,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
