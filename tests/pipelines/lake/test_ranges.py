import pyarrow as pa
import pytest

from headrace.pipelines.lake.ranges import (
    Range,
    RangeCounter,
    from_json,
    merge,
    offsets_by_place,
    to_json,
    tracked,
)
from headrace.types import TopicPartition
from tests.pipelines.lake.lakes import ARROW_SCHEMA, rows

ORDERS_0, ORDERS_1, CLICKS_0 = (
    TopicPartition("orders", 0),
    TopicPartition("orders", 1),
    TopicPartition("clicks", 0),
)


def mixed() -> pa.RecordBatch:
    parts = [rows([5, 6]), rows([100], 1), rows([7]), rows([3, 4], 0, "clicks"), rows([90], 1)]
    return pa.Table.from_batches(parts).combine_chunks().to_batches()[0]


def test_offsets_are_grouped_by_topic_and_partition_in_the_order_of_rows() -> None:
    found = {place: list(offsets) for place, offsets in offsets_by_place(mixed()).items()}
    assert found == {ORDERS_0: [5, 6, 7], ORDERS_1: [100, 90], CLICKS_0: [3, 4]}


def test_rows_without_an_offset_are_left_out() -> None:
    batch = rows([1, 2])
    holed = batch.set_column(2, "offset", pa.array([None, 2], pa.int64()))
    assert {p: list(o) for p, o in offsets_by_place(holed).items()} == {ORDERS_0: [2]}


def test_a_counter_adds_up_batches_and_shows_holes_by_its_count() -> None:
    counter = RangeCounter()
    counter.add(rows([4, 5]))
    counter.add(rows([8, 9]))
    assert counter.ranges() == {ORDERS_0: (Range(4, 9, 4),)}
    assert not counter.ranges()[ORDERS_0][0].dense


def test_neighbours_join_only_where_no_hole_could_hide() -> None:
    merged = merge(
        [
            {ORDERS_0: (Range(10, 19, 10),)},
            {ORDERS_0: (Range(0, 9, 10),), ORDERS_1: (Range(0, 4, 4),)},
            {ORDERS_1: (Range(5, 9, 5),)},
        ]
    )
    assert merged == {
        ORDERS_0: (Range(0, 19, 20),),
        ORDERS_1: (Range(0, 4, 4), Range(5, 9, 5)),
    }


def test_ranges_survive_the_way_through_a_commit() -> None:
    ranges = {ORDERS_0: (Range(0, 9, 10), Range(12, 20, 5)), CLICKS_0: (Range(1, 1, 1),)}
    assert from_json(to_json(ranges)) == ranges


@pytest.mark.parametrize("text", ["[]", "{", '{"a": [1]}', '{"a": {"0": [[1]]}}'])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        from_json(text)


def test_only_rows_with_all_three_columns_can_be_tracked() -> None:
    assert tracked(ARROW_SCHEMA)
    assert not tracked(pa.schema([f for f in ARROW_SCHEMA if f.name != "offset"]))
    assert not tracked(pa.schema([("topic", pa.string()), ("partition", pa.string())]))
