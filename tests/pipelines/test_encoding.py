"""Batches made of columns, taken apart by the decoder of single records."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.sink.encoding import RecordArrays, Stamp, cuts, encode, encode_headers
from headrace.wire.batch import TRANSACTIONAL, Header, checked_header
from headrace.wire.records import Record, iterate

STAMP = Stamp(7, 2, True, 0, 1_700_000_000_000)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

maybe_bytes = st.one_of(st.none(), st.binary(max_size=200))
headers = st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=4)
rows = st.lists(st.tuples(maybe_bytes, maybe_bytes, headers), min_size=1, max_size=40)


def decoded(batches: list[bytearray]) -> list[list[Record]]:
    found = []
    for batch in batches:
        checked_header(batch, memoryview(batch), 0, len(batch))
        found.append(list(iterate(batch, 0, len(batch), 1 << 24)))
    return found


@given(rows, st.integers(30, 2000))
def test_every_record_comes_back_as_it_was(
    given: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]], size: int
) -> None:
    keys, values, heads = zip(*given, strict=True)
    lists = [[{"key": k, "value": v} for k, v in each] for each in heads]
    columns = RecordArrays(
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        encode_headers(pa.array(lists, HEADERS)),
    )
    bounds = cuts(columns.sizes(), size)
    batches = decoded(list(encode(columns, bounds, STAMP, [0] * (len(bounds) - 1))))
    assert [(r.key, r.value, list(r.headers)) for batch in batches for r in batch] == [
        (key, value, head) for key, value, head in given
    ]
    assert [[r.offset for r in batch] for batch in batches] == [
        list(range(len(batch))) for batch in batches
    ]


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 253_402_300_799_999)), min_size=1, max_size=40),
    st.integers(30, 500),
)
def test_every_record_has_its_own_timestamp_or_that_of_the_write(
    times: list[int | None], size: int
) -> None:
    values = [b"%d" % number for number in range(len(times))]
    columns = RecordArrays(
        None, pa.array(values, pa.binary()), None, pa.array([7, *times], pa.int64()).slice(1)
    )
    bounds = cuts(columns.sizes(), size)
    batches = list(encode(columns, bounds, STAMP, [0] * (len(bounds) - 1)))
    found = decoded(batches)
    wanted = [STAMP.timestamp_ms if each is None else each for each in times]
    assert [record.timestamp for batch in found for record in batch] == wanted
    assert [record.value for batch in found for record in batch] == values
    for batch, records in zip(batches, found, strict=True):
        header = Header._make(checked_header(batch, memoryview(batch), 0, len(batch)))
        assert header[7:9] == (records[0].timestamp, max(each.timestamp for each in records))


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_the_header_has_producer_sequence_and_time(codec: int) -> None:
    columns = RecordArrays(None, pa.array([b"x" * 100] * 1000, pa.binary()), None)
    stamp = Stamp(7, 2, True, codec, 1_700_000_000_000)
    first, second = encode(columns, [0, 600, 1000], stamp, [5, 605])
    header = Header._make(checked_header(second, memoryview(second), 0, len(second)))
    assert header.attributes == TRANSACTIONAL | codec
    assert header[7:9] == (1_700_000_000_000, 1_700_000_000_000)
    assert header[9:13] == (7, 2, 605, 400)
    records = [*iterate(first, 0, len(first), 1 << 24), *iterate(second, 0, len(second), 1 << 24)]
    assert [(r.key, r.value) for r in records] == [(None, b"x" * 100)] * 1000


def test_batches_are_cut_at_the_wished_size_and_a_large_record_stands_alone() -> None:
    sizes = np.array([10, 10, 10, 500, 10, 10])
    assert cuts(sizes, 25) == [0, 2, 3, 4, 6]
    assert cuts(np.array([], np.int64), 25) == [0]


def test_a_slice_of_columns_is_encoded_as_itself() -> None:
    columns = RecordArrays(
        pa.array([b"a", None, b"c", b"d"], pa.binary()),
        pa.array([b"1", b"2", None, b"4"], pa.binary()),
        None,
    ).slice(1, 3)
    ((one, two),) = decoded(list(encode(columns, [0, 2], STAMP, [0])))
    assert (one.key, one.value, two.key, two.value) == (None, b"2", b"c", None)


def test_a_header_without_a_key_is_refused() -> None:
    with pytest.raises(ValueError, match="header without a key"):
        encode_headers(pa.array([[{"key": None, "value": b"x"}]], HEADERS))


def test_records_without_a_list_of_headers_have_none() -> None:
    columns = RecordArrays(
        None,
        pa.array([b"1", b"2"], pa.binary()),
        encode_headers(pa.array([None, [{"key": "k", "value": None}]], HEADERS)),
    )
    ((one, two),) = decoded(list(encode(columns, [0, 2], STAMP, [0])))
    assert (one.headers, two.headers) == ((), (("k", None),))


@pytest.mark.parametrize("module", ["source", "sink"])
def test_processes_that_only_plan_do_not_pay_for_pandas(module: str) -> None:
    """Spark starts several before the first row, and on a busy machine waits too short for them."""
    program = f"import headrace.pipelines.{module}, sys; print('pandas' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert said.stdout.strip() == b"False"
