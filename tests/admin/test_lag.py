"""Lag over time and the status by Burrow's rules, without a broker."""

from dataclasses import replace

import pytest

from headrace.admin.group_view import (
    UNKNOWN_COORDINATOR,
    DescribedGroup,
    GroupView,
    PartitionLag,
)
from headrace.admin.lag import Commit, LagHistory, LagStatus, status_of_commits
from headrace.admin.record_times import Gap, RecordTime
from headrace.client.groups import MemberDescription

MINUTE = 60_000
MEMBER = MemberDescription("m-1", "app", "10.0.0.1", None, (), None)


def commits(*rows: tuple[int, int | None], every: int = MINUTE) -> list[Commit]:
    """A commit a minute, by offset and lag."""
    return [Commit(index * every, offset, lag) for index, (offset, lag) in enumerate(rows)]


FALLING = commits((10, 90), (40, 60), (70, 80))
GROWING = commits((10, 10), (20, 20), (30, 30))
CAUGHT_UP_ONCE = commits((10, 0), (20, 20), (30, 30))
SAME = commits((10, 10), (10, 20), (10, 30))
SAME_AFTER_ZERO = commits((10, 0), (10, 20), (10, 30))
REWOUND = commits((10, 10), (50, 10), (20, 40), (30, 40))
REWOUND_FROM_ZERO = commits((50, 0), (50, 0), (0, 60))
RECOVERED = commits((10, 90), (50, 50), (20, 90), (60, 60))
UNKNOWN_BETWEEN = commits((10, 10), (20, None), (30, 15))
LAST = 3 * MINUTE


@pytest.mark.parametrize(
    ("history", "ends", "lag", "now_ms", "status"),
    [
        (FALLING, [150], 80, LAST, LagStatus.OK),
        (GROWING, [60], 30, LAST, LagStatus.WARNING),
        (UNKNOWN_BETWEEN, [45], 15, LAST, LagStatus.WARNING),
        # Zero lag anywhere in the window is ok, whatever came after it.
        (CAUGHT_UP_ONCE, [60], 30, LAST, LagStatus.OK),
        (SAME_AFTER_ZERO, [40], 30, LAST, LagStatus.OK),
        (SAME, [40], 30, LAST, LagStatus.STALLED),
        # Stopped as soon as the silence is longer than the commits span, and not before.
        (GROWING, [60], 30, 4 * MINUTE, LagStatus.WARNING),
        (GROWING, [60], 30, 4 * MINUTE + 1, LagStatus.STOPPED),
        (CAUGHT_UP_ONCE, [60], 30, 9 * MINUTE, LagStatus.STOPPED),
        (SAME, [40], 30, 9 * MINUTE, LagStatus.STOPPED),
        # A group that had read everything a moment ago is not stopped by one new record.
        (CAUGHT_UP_ONCE, [31, 30, 30], 1, 9 * MINUTE, LagStatus.OK),
        (REWOUND, [70], 40, LAST, LagStatus.REWIND),
        (REWOUND_FROM_ZERO, [60], 60, LAST, LagStatus.REWIND),
        (RECOVERED, [120], 60, LAST, LagStatus.OK),
        # Without lag nothing is wrong.
        (GROWING, [30], 0, 60 * MINUTE, LagStatus.OK),
        (GROWING, [], None, 60 * MINUTE, LagStatus.UNKNOWN),
        ([], [10], 10, LAST, LagStatus.OK),
    ],
)
def test_the_status_follows_burrows_rules(
    history: list[Commit], ends: list[int], lag: int | None, now_ms: int, status: LagStatus
) -> None:
    assert status_of_commits(history, ends, lag, now_ms) is status


def view(
    committed: int | None, end: int | None, *, owned: bool = True, topic: str = "t"
) -> GroupView:
    group = DescribedGroup("g", "Stable", "classic", "consumer", "range", UNKNOWN_COORDINATOR, ())
    row = PartitionLag(topic, 0, committed, end, MEMBER if owned else None, delay_s=1.5)
    return GroupView(group, (row,))


def observed(*looks: GroupView) -> tuple[LagHistory, int]:
    """A history with a look a minute, and the time of the last."""
    history = LagHistory()
    for minute, look in enumerate(looks):
        history.observe([look], minute * MINUTE)
    return history, (len(looks) - 1) * MINUTE


def test_a_short_history_says_ok_and_that_it_is_not_complete() -> None:
    look = view(10, 50)
    history, now_ms = observed(*[look] * 10)
    found = history.status(look, now_ms)
    assert (found.status, found.complete) == (LagStatus.OK, False)
    history, now_ms = observed(*[look] * 11)
    found = history.status(look, now_ms)
    assert (found.status, found.complete) == (LagStatus.STALLED, True)


def test_an_offset_that_stays_is_stalled_with_a_member_and_stopped_without() -> None:
    history, now_ms = observed(*[view(10, 50, owned=False)] * 12)
    assert history.status(view(10, 50), now_ms).status is LagStatus.STOPPED
    history, now_ms = observed(*[view(10, 50)] * 12)
    assert history.status(view(10, 50), now_ms).status is LagStatus.STALLED


def test_a_group_that_reads_more_slowly_than_records_arrive_is_a_warning() -> None:
    looks = [view(10 * minute, 30 + 15 * minute) for minute in range(12)]
    history, now_ms = observed(*looks)
    assert history.status(looks[-1], now_ms).status is LagStatus.WARNING


def test_the_worst_partition_decides_for_the_group() -> None:
    good, bad = view(50, 50), view(10, 50, topic="u")
    both = replace(good, partitions=good.partitions + bad.partitions)
    history, now_ms = observed(*[both] * 12)
    found = history.status(both, now_ms)
    assert found.status is LagStatus.STALLED
    assert [each.status for each in found.partitions] == [LagStatus.OK, LagStatus.STALLED]


def test_points_over_time_are_kept_by_partition_and_summed_by_group() -> None:
    one, two = view(10, 30), view(5, 7, topic="u")
    history = LagHistory()
    history.observe([replace(one, partitions=one.partitions + two.partitions)], 1000)
    (point,) = history.points("g", "t", 0)
    assert (point.time_ms, point.lag, point.delay_ms) == (1000, 20, 1500)
    (total,) = history.group_points("g")
    assert (total.lag, total.delay_ms) == (22, 1500)
    assert history.points("g", "other", 0) == []


def test_unknown_offsets_stay_unknown() -> None:
    history, _ = observed(view(None, None))
    (point,) = history.points("g", "t", 0)
    assert (point.committed, point.end, point.lag) == (None, None, None)
    assert history.group_points("g") == []


def test_the_sum_is_unknown_while_the_end_of_a_partition_is() -> None:
    """A chart that left the partition out would show a lag that falls."""
    known = view(10, 30)
    history = LagHistory()
    for time_ms, end in ((1, 7), (2, None)):
        other = view(5, end, topic="u")
        history.observe([replace(known, partitions=known.partitions + other.partitions)], time_ms)
    assert [(each.time_ms, each.lag) for each in history.group_points("g")] == [(1, 22), (2, None)]


def test_a_status_without_a_lag_is_unknown() -> None:
    for look in (view(10, None), view(None, 50)):
        history, now_ms = observed(*[look] * 12)
        assert history.status(look, now_ms).status is LagStatus.UNKNOWN
        history, now_ms = observed(look)
        assert history.status(look, now_ms).status is LagStatus.UNKNOWN, "a short history"
        assert LagHistory().status(look, 0).status is LagStatus.UNKNOWN, "no history"
    empty = view(None, 0)
    history, now_ms = observed(*[empty] * 12)
    assert history.status(empty, now_ms).status is LagStatus.OK, "there is nothing to read"


def test_a_group_whose_offsets_cannot_be_read_has_no_status() -> None:
    refused = replace(view(1, 2), partitions=(), problem="not authorized")
    history, now_ms = observed(*[refused] * 12)
    assert history.status(refused, now_ms).status is LagStatus.UNKNOWN


def test_the_history_is_bounded_by_moments_by_points_and_by_age() -> None:
    history = LagHistory(points=100, points_each=50)
    for moment in range(60):
        history.observe([view(moment, 100)], moment)
    assert [each.time_ms for each in history.points("g", "t", 0)] == list(range(10, 60))
    rows = tuple(replace(view(1, 2).partitions[0], partition=index) for index in range(5))
    history.observe([replace(view(1, 2), partitions=rows)], 60)
    assert len(history.points("g", "t", 0)) == 20, "a hundred points for five partitions"
    history.observe([], 61 * MINUTE + 60)
    assert history.points("g", "t", 0) == []


def test_a_group_before_transaction_markers_only_has_read_everything() -> None:
    look = view(10, 11)
    marked = RecordTime(None, Gap.ONLY_MARKERS)
    row = replace(look.partitions[0], next_record=marked, delay_s=0.0)
    assert row.caught_up
    look = replace(look, partitions=(row,))
    history, now_ms = observed(*[look] * 12)
    assert history.status(look, now_ms).status is LagStatus.OK
