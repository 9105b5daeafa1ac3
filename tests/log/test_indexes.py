from array import array

from hypothesis import given
from hypothesis import strategies as st

from headrace.log.indexes import (
    TIME_ENTRY,
    OffsetEntries,
    TimeEntries,
    floor_by_offset,
    floor_by_position,
    floor_by_time,
    offsets_to_bytes,
    pack_entry,
    plausible_offsets,
    slot_by_offset,
)

relatives = st.lists(st.integers(1, 2**31 - 1), unique=True, max_size=30).map(sorted)


def offsets_of(relative: list[int]) -> "array[int]":
    return array("q", [pack_entry(r, 4096 * (i + 1)) for i, r in enumerate(relative)])


def test_an_offset_entry_is_two_big_endian_integers() -> None:
    assert offsets_to_bytes(array("q", [pack_entry(5, 4100)])).hex() == "0000000500001004"


@given(relatives, st.integers(0, 2**31 - 1))
def test_mapped_and_in_memory_indexes_find_the_same_floor(relative: list[int], key: int) -> None:
    entries = offsets_of(relative)
    mapped = OffsetEntries(offsets_to_bytes(entries))
    below = [entry for entry in entries if entry >> 32 <= key]
    expected = below[-1] if below else None
    assert floor_by_offset(entries, key) == floor_by_offset(mapped, key) == expected


@given(relatives, st.integers(0, 31 * 4096))
def test_the_floor_by_position_is_the_last_batch_that_begins_there(
    relative: list[int], key: int
) -> None:
    entries = offsets_of(relative)
    expected = sum(entry & 0xFFFFFFFF <= key for entry in entries) - 1
    mapped = OffsetEntries(offsets_to_bytes(entries))
    everywhere = (0, len(entries) + 5)
    assert floor_by_position(entries, key, *everywhere) == expected
    assert floor_by_position(mapped, key, *everywhere) == expected


@given(relatives, st.integers(0, 300))
def test_the_slot_of_an_offset_has_only_smaller_ones_before_it(
    relative: list[int], key: int
) -> None:
    entries = offsets_of(relative)
    slot = slot_by_offset(entries, key)
    assert all(entry >> 32 < key for entry in entries[:slot])
    assert all(entry >> 32 >= key for entry in entries[slot:])


@given(relatives, st.integers(0, 40))
def test_zeros_that_kafka_preallocated_are_no_entries(relative: list[int], zeros: int) -> None:
    entries = offsets_of(relative)
    data = offsets_to_bytes(entries) + bytes(8 * zeros)
    assert len(OffsetEntries(data)) == len(entries)
    assert OffsetEntries(data).to_array() == entries
    times = b"".join(TIME_ENTRY.pack(1000 + r, r) for r in relative)
    assert bytes(TimeEntries(times + bytes(12 * zeros)).to_bytes()) == times


def test_the_floor_by_time_is_the_last_entry_not_above() -> None:
    entries = TimeEntries(b"".join(TIME_ENTRY.pack(t, t // 10) for t in (100, 200, 300)))
    assert floor_by_time(entries, 99) is None
    assert floor_by_time(entries, 100) == (100, 10)
    assert floor_by_time(entries, 299) == (200, 20)
    assert floor_by_time(entries, 10_000) == (300, 30)


def test_an_index_that_points_past_its_log_is_not_plausible() -> None:
    entries = offsets_of([1, 2])
    assert plausible_offsets(entries, 8193)
    assert not plausible_offsets(entries, 8192)
    assert not plausible_offsets(offsets_of([2, 1]), 100_000)
    assert plausible_offsets(array("q"), 0)
