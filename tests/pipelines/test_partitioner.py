import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as reference

from headrace.pipelines.sink import partitioner


@given(st.lists(st.binary(max_size=40), max_size=30))
def test_hashes_are_those_of_kafkas_clients(keys: list[bytes]) -> None:
    found = partitioner.murmur2(pa.array(keys, pa.binary()))
    assert [int(each) for each in found] == [reference(key) & 0xFFFFFFFF for key in keys]


@given(st.lists(st.binary(max_size=12), min_size=3, max_size=30), st.integers(1, 7))
def test_a_slice_of_an_array_hashes_as_its_own_keys(keys: list[bytes], count: int) -> None:
    sliced = pa.array(keys, pa.binary()).slice(1, len(keys) - 2)
    expected = [(reference(key) & 0x7FFFFFFF) % count for key in keys[1:-1]]
    assert partitioner.by_key(sliced, count).tolist() == expected


def test_known_hashes_of_kafkas_own_test_suite() -> None:
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    found = partitioner.murmur2(pa.array(list(known), pa.binary()))
    assert found.astype("int32").tolist() == list(known.values())
