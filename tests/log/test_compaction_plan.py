"""When a log is due for compaction, and which part of it."""

from dataclasses import dataclass, replace

import pytest

from headrace.log.compaction.job import (
    Answer,
    Cleaned,
    Failed,
    Finished,
    Job,
    decode_answer,
    decode_job,
    encode_answer,
    encode_job,
)
from headrace.log.compaction.plan import (
    CompactionPlan,
    SourceSegment,
    first_dirty_offset,
    groups,
    plan,
)
from headrace.settings import LogSettings

NOW = 1_000_000
SETTINGS = LogSettings()
JOB = Job(
    folder="/data/a-0",
    segments=((0, 10), (5, 10)),
    first_dirty=3,
    end=20,
    aborted=((7, 1, 4, 5),),
    producers=((7, -1, 2),),
    now_ms=NOW,
    delete_retention_ms=1,
    segment_bytes=100,
    segment_index_bytes=50,
    index_interval_bytes=10,
    max_decompressed_bytes=1 << 20,
    map_bytes=1 << 20,
    map_load_factor=0.9,
    bytes_per_second=1.7976931348623157e308,
)


@dataclass(slots=True)
class Stub:
    base_offset: int
    size: int
    latest_ms: int = 0
    first_ms: int = 0

    def newest_ms(self) -> int:
        return self.latest_ms

    def first_time(self) -> int:
        return self.first_ms


SEGMENTS = [Stub(0, 100), Stub(10, 200), Stub(20, 300), Stub(30, 400)]


@pytest.mark.parametrize(
    ("first_dirty", "stable", "expected"),
    [
        (0, 40, CompactionPlan(0, 30, 0, 600, False)),
        (10, 40, CompactionPlan(10, 30, 100, 500, False)),
        (30, 40, CompactionPlan(30, 30, 600, 0, False)),
        (0, 30, CompactionPlan(0, 30, 0, 600, False)),
        (0, 29, CompactionPlan(0, 20, 0, 300, False)),
        (0, 5, CompactionPlan(0, 0, 0, 0, False)),
        (15, 40, CompactionPlan(15, 30, 300, 500, False)),
        (30, 12, CompactionPlan(30, 10, 100, 0, False)),
    ],
)
def test_what_is_sealed_committed_and_not_yet_compacted_is_dirty(
    first_dirty: int, stable: int, expected: CompactionPlan
) -> None:
    assert plan(SEGMENTS, first_dirty, stable, SETTINGS, NOW) == expected


def test_a_log_is_due_above_its_dirty_ratio() -> None:
    half = plan(SEGMENTS, 20, 40, SETTINGS, NOW)
    assert half.dirty_ratio == 0.5
    assert not half.is_due(replace(SETTINGS, min_cleanable_dirty_ratio=0.5))
    assert half.is_due(replace(SETTINGS, min_cleanable_dirty_ratio=0.49))
    none = plan(SEGMENTS, 30, 40, SETTINGS, NOW)
    assert not none.is_due(replace(SETTINGS, min_cleanable_dirty_ratio=0.0))


def test_young_records_are_safe() -> None:
    settings = replace(SETTINGS, min_compaction_lag_ms=1000)
    segments = [
        Stub(0, 1, NOW - 5000),
        Stub(10, 1, NOW - 999),
        Stub(20, 1, NOW - 5000),
        Stub(30, 1),
    ]
    assert plan(segments, 0, 40, settings, NOW).end == 10
    assert plan(segments, 0, 40, settings, NOW + 1).end == 30


def test_records_that_wait_too_long_make_a_log_due() -> None:
    settings = replace(SETTINGS, max_compaction_lag_ms=1000)
    segments = [Stub(0, 99, first_ms=1), Stub(10, 1, first_ms=NOW - 1000), Stub(20, 1)]
    assert not plan(segments, 10, 40, settings, NOW).is_due(settings)
    assert plan(segments, 10, 40, settings, NOW + 1).is_due(settings)
    assert not plan(segments, 20, 40, settings, NOW + 1).is_due(settings)


@pytest.mark.parametrize(
    ("cleaned_to", "expected"), [(None, 5), (3, 5), (5, 5), (9, 9), (20, 20), (21, 5)]
)
def test_a_checkpoint_outside_of_the_log_is_ignored(cleaned_to: int | None, expected: int) -> None:
    assert first_dirty_offset(cleaned_to, 5, 20) == expected


def grouped(*sources: SourceSegment, job: Job = JOB) -> list[list[int]]:
    return [[base for base, _ in group] for group in groups(sources, job)]


def test_a_group_keeps_to_the_sizes_of_one_segment() -> None:
    assert grouped(
        SourceSegment(0, 50, 1, 1), SourceSegment(1, 50, 1, 1), SourceSegment(2, 1, 1, 1)
    ) == [[0, 1], [2]]
    assert grouped(
        SourceSegment(0, 1, 25, 1), SourceSegment(1, 1, 25, 1), SourceSegment(2, 1, 1, 1)
    ) == [[0, 1], [2]]
    assert grouped(SourceSegment(0, 1, 1, 25), SourceSegment(1, 1, 1, 26)) == [[0], [1]]
    assert grouped(SourceSegment(0, 500, 1, 1), SourceSegment(1, 1, 1, 1)) == [[0], [1]]


def test_a_group_keeps_to_the_offsets_of_one_segment() -> None:
    far = replace(JOB, end=2**31 + 1)
    assert grouped(SourceSegment(0, 1, 1, 1), SourceSegment(9, 1, 1, 1), job=far) == [[0], [9]]
    assert grouped(SourceSegment(0, 1, 1, 1), SourceSegment(9, 0, 1, 1), job=far) == [[0, 9]]
    assert grouped(
        SourceSegment(0, 1, 1, 1), SourceSegment(9, 1, 1, 1), job=replace(JOB, end=2**31)
    ) == [[0, 9]]


def test_a_job_is_one_line() -> None:
    line = encode_job(JOB)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode_job(line) == JOB


@pytest.mark.parametrize(
    "answer",
    [Cleaned((0, 5), 17, (4,)), Finished(20, 5, 4, 300, 200, 0.5), Failed("no\nspace")],
    ids=["cleaned", "finished", "failed"],
)
def test_an_answer_is_one_line(answer: Answer) -> None:
    line = encode_answer(answer)
    assert line.count(b"\n") == 1
    assert decode_answer(line) == answer


@pytest.mark.parametrize("line", [b"{}", b'{"kind": "cleaned"}', b'{"kind": "x"}', b"Segmentation"])
def test_what_is_no_answer_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        decode_answer(line)
