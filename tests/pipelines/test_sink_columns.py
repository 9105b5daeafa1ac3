"""Rows as the records of partitions: the columns that the sink takes."""

import pyarrow as pa

from headrace.pipelines.sink.columns import RowSorter


def test_the_column_of_timestamps_is_in_milliseconds_and_follows_its_row() -> None:
    moments = [1_700_000_000_123_999, None, -1, 5_000]
    rows = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"a", b"b", b"c", b"d"], pa.binary()),
            "partition": pa.array([1, 0, 1, 0], pa.int32()),
            "record_timestamp": pa.array(moments, pa.timestamp("us", "UTC")),
            # The source's column of this name has another meaning: it is ignored.
            "timestamp": pa.array([1, 2, 3, 4], pa.timestamp("us", "UTC")),
        }
    )
    found: dict[bytes, int | None] = {}
    for share in RowSorter("orders", lambda _: 2, 0).shares(rows):
        records = share.columns.slice(share.first, share.last)
        assert records.times is not None
        found |= dict(zip(records.values.to_pylist(), records.times.to_pylist(), strict=True))
    assert found == {b"a": 1_700_000_000_123, b"b": None, b"c": -1, b"d": 5}


def test_records_without_the_column_have_no_timestamps_of_their_own() -> None:
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"a"], pa.binary())})
    (share,) = RowSorter("orders", lambda _: 2, 0).shares(rows)
    assert share.columns.times is None
