"""How much an epoch takes of each partition, and how tasks share it."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pipelines.source.ranges import (
    OffsetRange,
    StreamOffset,
    bounded,
    from_stored,
    gather,
    limited,
    split,
    to_stored,
)
from headrace.types import TopicPartition

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 5))
ends = st.dictionaries(partitions, st.integers(0, 10_000), min_size=1)


@settings(deadline=None)
@given(ends, st.data())
def test_a_limit_is_kept_and_everything_is_read_in_the_end(
    end: dict[TopicPartition, int], data: st.DataObject
) -> None:
    most = data.draw(st.integers(50, 3000))
    start = {at: data.draw(st.integers(0, stop)) for at, stop in end.items()}
    while start != end:
        chosen = limited(start, end, most)
        taken = sum(chosen.values()) - sum(start.values())
        waiting = sum(end[at] > start[at] for at in end)
        # One record for each that would get none may come on top.
        assert 0 < taken < most + waiting
        assert all(start[at] <= chosen[at] <= end[at] for at in end)
        assert all(chosen[at] > start[at] for at in end if end[at] > start[at])
        start = chosen


def test_a_limit_is_shared_in_proportion() -> None:
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    assert limited({a: 0, b: 100}, {a: 900, b: 200}, 100) == {a: 90, b: 110}


@given(
    st.lists(st.integers(1, 500), min_size=1, max_size=5),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 100),
)
def test_tasks_cover_every_offset_once(
    sizes: list[int], least: int | None, most: int | None
) -> None:
    ranges = [OffsetRange(TopicPartition("t", n), 7, 7 + size) for n, size in enumerate(sizes)]
    pieces = split(ranges, least, most)
    for whole in ranges:
        own = [piece for piece in pieces if piece.partition == whole.partition]
        assert [n for p in own for n in range(p.start, p.stop)] == list(range(7, whole.stop))
    if most is not None:
        assert max(piece.stop - piece.start for piece in pieces) <= most
    if least is None and most is None:
        assert pieces == ranges


def test_one_partition_is_shared_by_as_many_tasks_as_are_wanted() -> None:
    pieces = split([OffsetRange(TopicPartition("t", 0), 0, 100)], 4, None)
    assert [(piece.start, piece.stop) for piece in pieces] == [
        (0, 25),
        (25, 50),
        (50, 75),
        (75, 100),
    ]


OFFSETS = {TopicPartition("t", 10): 5, TopicPartition("t", 2): 7, TopicPartition("a", 0): 1}


def test_offsets_are_stored_as_sparks_own_source_stores_them() -> None:
    stored = to_stored(StreamOffset(OFFSETS))
    assert json.dumps(stored) == '{"a": {"0": 1}, "t": {"2": 7, "10": 5}}'
    assert from_stored(stored) == StreamOffset(OFFSETS)


def test_topic_ids_and_the_initial_offsets_stand_beside_the_offsets() -> None:
    found = StreamOffset(OFFSETS, {"t": "an-id"}, {TopicPartition("t", 2): 6})
    stored = to_stored(found)
    assert stored == {
        "a": {"0": 1, "initial": {}},
        "t": {"2": 7, "10": 5, "id": "an-id", "initial": {"2": 6}},
    }
    assert from_stored(stored) == found
    assert json.dumps(to_stored(from_stored(stored))) == json.dumps(stored)
    from_nothing = StreamOffset(OFFSETS, {}, {})
    assert from_stored(to_stored(from_nothing)) == from_nothing


def test_offsets_without_an_id_are_of_any_topic_of_that_name() -> None:
    old, first, second = (StreamOffset(OFFSETS, ids) for ids in ({}, {"t": "1"}, {"t": "2"}))
    assert old.same_topic(first, "t")
    assert first.same_topic(old, "t")
    assert not first.same_topic(second, "t")
    assert not old.same_place(first)


def test_small_ranges_share_a_task_and_large_ones_have_their_own() -> None:
    def of(partition: int, records: int) -> OffsetRange:
        return OffsetRange(TopicPartition("t", partition), 10, 10 + records)

    small = [of(0, 100), of(1, 100), of(2, 299)]
    assert gather(small) == [tuple(small)]
    large = [of(0, 500), of(1, 10_000)]
    assert gather(large) == [(large[0],), (large[1],)]
    mixed = [of(0, 100), of(1, 450), of(2, 5), of(3, 600), of(4, 1)]
    assert gather(mixed) == [(mixed[0], mixed[1]), (mixed[2], mixed[3]), (mixed[4],)]
    assert gather([]) == []


def test_a_bounded_stream_reads_up_to_its_bounds_and_never_back() -> None:
    at = [TopicPartition("a", number) for number in range(4)]
    start = {at[0]: 5, at[1]: 9, at[3]: 4}
    end = {at[0]: 20, at[1]: 20, at[2]: 7, at[3]: 9}
    bounds = {at[0]: 12, at[1]: 8}
    # One is ahead of its bound already; one is new, and one is known but has no bound.
    assert bounded(start, end, bounds) == {at[0]: 12, at[1]: 9, at[3]: 4}
    assert bounded(start, {at[0]: 7}, bounds) == {at[0]: 7}
