"""The intervals against brute force, and the rules against hand-made tables."""

from collections.abc import Mapping

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.lake import verify as proof
from headrace.pipelines.lake.verify import Offsets, PartitionReport, Wanted
from headrace.pipelines.sink.epoch import Epoch
from headrace.types import TopicPartition
from tests.pipelines.lake.lakes import Lake, rows

ORDERS_0 = TopicPartition("orders", 0)
FIRST, SECOND = Epoch("query-1", 0), Epoch("query-1", 1)

offset_lists = st.lists(st.integers(0, 40), min_size=1, max_size=60)


def sorted_runs(lists: list[list[int]]) -> tuple[Offsets, Offsets]:
    pairs = [proof.runs_of(np.array(each, np.int64)) for each in lists]
    starts = np.concatenate([pair[0] for pair in pairs])
    ends = np.concatenate([pair[1] for pair in pairs])
    order = np.lexsort((ends, starts))
    return starts[order], ends[order]


def expanded(intervals: tuple[Offsets, Offsets]) -> list[int]:
    return [o for a, b in zip(*intervals, strict=True) for o in range(a, b + 1)]


@given(offset_lists)
def test_runs_hold_exactly_the_offsets_given(offsets: list[int]) -> None:
    assert expanded(proof.runs_of(np.array(offsets, np.int64))) == offsets


@given(st.lists(offset_lists, min_size=1, max_size=5))
def test_union_overlaps_and_holes_agree_with_counting(lists: list[list[int]]) -> None:
    runs = sorted_runs(lists)
    counts = np.bincount([o for each in lists for o in each], minlength=45)
    covered = proof.union(*runs)
    assert expanded(covered) == list(np.flatnonzero(counts))
    assert expanded(proof.overlaps(*runs)) == list(np.flatnonzero(counts > 1))
    assert expanded(proof.complement(covered, 5, 42)) == [o for o in range(5, 43) if not counts[o]]
    asked = np.arange(45)
    assert list(proof.inside(asked, covered)) == list(counts > 0)


class Topic:
    """A topic with one partition whose visible records are known."""

    def __init__(self, visible: list[int], start: int, end: int) -> None:
        self.visible, self.start, self.end = np.array(visible, np.int64), start, end
        self.asked: list[tuple[int, int]] = []

    def bounds(self, topic: str) -> Mapping[int, tuple[int, int]]:
        return {0: (self.start, self.end)}

    def offsets(self, place: TopicPartition, first: int, last: int) -> Offsets:
        self.asked.append((first, last))
        return self.visible[(self.visible >= first) & (self.visible <= last)]


def check(lake: Lake, topic: Topic, wanted: Wanted | None = None) -> PartitionReport:
    (report,) = proof.verify(lake.view(), wanted or Wanted("orders"), topic, lambda *_: None)
    return report


def found(report: PartitionReport) -> list[tuple[str, int, int]]:
    return [(each.kind, each.first, each.last) for each in report.findings]


def test_markers_between_records_are_no_loss(lake: Lake) -> None:
    lake.commit(FIRST, rows([0, 1, 2, 4, 5]))
    lake.commit(SECOND, rows([7, 8]))
    topic = Topic([0, 1, 2, 4, 5, 7, 8], 0, 10)
    report = check(lake, topic)
    assert (report.rows, report.first, report.last, report.behind) == (7, 0, 8, 0)
    assert found(report) == []


def test_a_complete_table_needs_no_look_at_the_records(lake: Lake) -> None:
    lake.commit(FIRST, rows(range(100)))
    topic = Topic(list(range(100)), 0, 100)
    assert found(check(lake, topic)) == []
    assert topic.asked == []


def test_a_gap_is_missing(lake: Lake) -> None:
    lake.commit(FIRST, rows([0, 1, 4, 5]), rows([9]))
    assert found(check(lake, Topic(list(range(10)), 0, 10))) == [
        ("missing", 2, 3),
        ("missing", 6, 8),
    ]


def test_a_beginning_that_is_not_in_the_table_is_missing_unless_waived(lake: Lake) -> None:
    lake.commit(FIRST, rows([5, 6]))
    topic = Topic(list(range(7)), 3, 7)
    assert found(check(lake, topic)) == [("missing", 3, 4)]
    assert found(check(lake, topic, Wanted("orders", from_table_start=True))) == []


def test_a_duplicate_is_found_in_one_file_in_one_epoch_and_across_queries(lake: Lake) -> None:
    lake.commit(FIRST, rows([0, 1, 1, 2]), rows([2, 3]))
    lake.commit(Epoch("query-2", 0), rows([3, 4]))
    assert found(check(lake, Topic(list(range(5)), 0, 5))) == [("duplicate", 1, 3)]


def test_a_reordering_within_a_file_and_between_epochs_is_found(lake: Lake) -> None:
    lake.commit(FIRST, rows([4, 5, 2, 3]))
    lake.commit(SECOND, rows([0, 1]))
    topic = Topic(list(range(6)), 0, 6)
    assert found(check(lake, topic)) == [("reordered", 0, 1), ("reordered", 2, 3)]
    assert found(check(lake, topic, Wanted("orders", any_order=True))) == []


def test_a_replayed_duplicate_is_not_called_a_reordering_too(lake: Lake) -> None:
    lake.commit(FIRST, rows(range(6)))
    lake.commit(SECOND, rows([2, 3]))
    assert found(check(lake, Topic(list(range(6)), 0, 6))) == [("duplicate", 2, 3)]


def test_what_the_table_has_not_yet_is_behind_and_missing_only_if_asked(lake: Lake) -> None:
    lake.commit(FIRST, rows([0, 1]))
    topic = Topic([0, 1, 2, 4], 0, 6)
    report = check(lake, topic)
    assert (report.behind, found(report)) == (2, [])
    complete = check(lake, topic, Wanted("orders", complete=True))
    assert found(complete) == [("missing", 2, 2), ("missing", 4, 4)]


def test_a_hole_below_the_logs_start_is_explained_by_the_commit_that_saw_it(lake: Lake) -> None:
    lake.commit(FIRST, rows([0, 1, 4, 5]))
    lake.commit(SECOND, rows([8, 9]))
    report = check(lake, Topic([], 10, 10))
    # 2 and 3 were holes when epoch 0 read them; nobody can say what 6 and 7 were.
    assert found(report) == [("unknown", 6, 7)]


def test_rows_beyond_the_topics_end_are_not_the_topics(lake: Lake) -> None:
    lake.commit(FIRST, rows([0, 1, 2]))
    assert found(check(lake, Topic([0], 0, 1))) == [("foreign", 1, 2)]


def test_a_full_check_finds_rows_that_a_reader_of_committed_records_never_saw(lake: Lake) -> None:
    lake.commit(FIRST, rows(range(6)))
    topic = Topic([0, 1, 5], 0, 6)
    assert found(check(lake, topic)) == []
    assert found(check(lake, topic, Wanted("orders", full=True))) == [("foreign", 2, 4)]


def test_rows_deleted_from_the_table_are_missing_though_their_commit_named_them(
    lake: Lake,
) -> None:
    lake.commit(FIRST, rows(range(6)))
    lake.table.table().delete("offset = 3")
    assert found(check(lake, Topic(list(range(6)), 0, 6))) == [("missing", 3, 3)]
    # And retention does not hide it: the commit says six, the rows are five.
    assert found(check(lake, Topic([], 6, 6))) == [("unknown", 3, 3)]
