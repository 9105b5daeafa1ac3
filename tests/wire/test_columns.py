"""Records as columns are the same as records one by one."""

from array import array

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import ErrorCode, KafkaError
from headrace.wire.batch import HEADER_BYTES
from headrace.wire.columns import Columns, add_starts, varints
from headrace.wire.records import Record, encode_batch, iterate, write_varint

KEYS = st.none() | st.binary(max_size=300)
RECORDS = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(-(2**62), 2**62),
        KEYS,
        KEYS,
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5))).map(tuple),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(RECORDS)
def test_columns_say_what_records_say(given_records: list[Record]) -> None:
    batch = bytes(encode_batch(given_records))
    expected = [*iterate(batch, 0, len(batch), 1 << 20)]
    starts = array("q")
    add_starts(starts, batch, HEADER_BYTES, len(expected), len(batch))
    columns = Columns(batch, np.frombuffer(starts, np.int64))
    assert len(columns) == len(expected)
    assert columns.starts.tolist()[1:] == columns.ends.tolist()[:-1]
    for row, record in enumerate(expected):
        key_at, key_bytes = int(columns.key_at[row]), int(columns.key_bytes[row])
        value_at, value_bytes = int(columns.value_at[row]), int(columns.value_bytes[row])
        assert columns.offset_deltas[row] == record.offset
        assert columns.timestamp_deltas[row] == record.timestamp - expected[0].timestamp
        assert record.key == (batch[key_at : key_at + key_bytes] if key_bytes >= 0 else None)
        value = batch[value_at : value_at + value_bytes] if value_bytes >= 0 else None
        assert record.value == value


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_all_numbers_come_back(numbers: list[int]) -> None:
    out, at = bytearray(), []
    for number in numbers:
        at.append(len(out))
        write_varint(out, number)
    found, behind = varints(np.frombuffer(out, np.uint8), np.array(at, np.int64))
    assert found.tolist() == numbers
    assert behind.tolist() == [*at[1:], len(out)]


@pytest.mark.parametrize("count", [1, 3, 1000])
def test_records_that_do_not_fill_their_batch_are_refused(count: int) -> None:
    batch = bytes(encode_batch([Record(0, 0, b"a", b"b")] * 2))
    with pytest.raises(KafkaError) as caught:
        add_starts(array("q"), batch, HEADER_BYTES, count, len(batch))
    assert caught.value.code is ErrorCode.INVALID_RECORD


@settings(max_examples=200, deadline=None)
@given(RECORDS, st.data())
def test_damage_never_reaches_past_the_buffer(
    given_records: list[Record], data: st.DataObject
) -> None:
    batch = bytearray(encode_batch(given_records))
    at = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
    batch[at] = data.draw(st.integers(0, 255))
    starts = array("q")
    try:
        add_starts(starts, bytes(batch), HEADER_BYTES, len(given_records), len(batch))
        columns = Columns(bytes(batch), np.frombuffer(starts, np.int64))
    except KafkaError:
        return
    assert (columns.value_at + np.maximum(columns.value_bytes, 0) < columns.ends).all()
