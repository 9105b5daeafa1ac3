"""A single record goes to the partition that Kafka's producers choose."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.partitioner import murmur2, partition_of
from headrace.pipelines.sink.partitioner import murmur2 as murmur2_of_column


@pytest.mark.parametrize(
    ("key", "hashed"),
    # From the tests of Kafka's own function, as signed numbers.
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hashes_are_those_of_kafka(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF


@given(st.binary(max_size=40))
def test_single_keys_and_columns_have_the_same_hash(key: bytes) -> None:
    assert murmur2(key) == int(murmur2_of_column(pa.array([key], pa.binary()))[0])


def test_records_without_a_key_go_to_any_partition() -> None:
    assert {partition_of(None, 3) for _ in range(1000)} == {0, 1, 2}
