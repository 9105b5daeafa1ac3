"""The key map gives the same results as a dictionary."""

import random
from array import array

import numpy as np
import pytest

from headrace.log.compaction.keys import SLOT_BYTES, KeyHash, KeyMap
from headrace.wire.batch import HEADER_BYTES
from headrace.wire.columns import Columns, Numbers, add_starts
from headrace.wire.records import Record, encode_batch


def columns_of(keys: list[bytes]) -> tuple[Columns, Numbers]:
    batch = bytes(encode_batch([Record(0, 0, key, b"") for key in keys]))
    starts = array("q")
    add_starts(starts, batch, HEADER_BYTES, len(keys), len(batch))
    return Columns(batch, np.frombuffer(starts, np.int64)), np.arange(len(keys))


def random_keys(rnd: random.Random, count: int, kinds: int) -> list[bytes]:
    known = [
        rnd.randbytes(rnd.choice([0, 1, 3, 7, 8, 9, 16, 40, 511, 513, 900])) for _ in range(kinds)
    ]
    return [rnd.choice(known) for _ in range(count)]


@pytest.mark.parametrize("seed", range(10))
def test_the_map_is_equal_to_a_dictionary(seed: int) -> None:
    rnd = random.Random(seed)
    table, offset = KeyMap(SLOT_BYTES * 600, 0.9, 10**6), 0
    expected: dict[bytes, int] = {}
    for _ in range(6):
        keys = random_keys(rnd, rnd.randint(1, 80), 60)
        columns, all_rows = columns_of(keys)
        offsets = np.arange(offset, offset + len(keys))
        table.put(table.hashes(columns, all_rows), offsets)
        expected.update(zip(keys, offsets.tolist(), strict=True))
        offset += len(keys)
    assert table.count == len(expected)
    asked = [*expected, *random_keys(rnd, 50, 50)]
    columns, all_rows = columns_of(asked)
    found = table.get(table.hashes(columns, all_rows)).tolist()
    assert found == [expected.get(key, -1) for key in asked]


def test_a_map_fills_up_to_its_load_factor_and_still_finds_all() -> None:
    table = KeyMap(SLOT_BYTES * 1000, 0.95, 10**6)
    keys = [b"key %d" % n for n in range(table.capacity)]
    columns, all_rows = columns_of(keys)
    hashes = table.hashes(columns, all_rows)
    table.put(hashes, all_rows)
    assert table.room == 0
    assert table.get(hashes).tolist() == all_rows.tolist()
    other, rows = columns_of([b"no key %d" % n for n in range(500)])
    assert set(table.get(table.hashes(other, rows)).tolist()) == {-1}


def test_a_map_takes_no_more_memory_than_it_may_nor_than_it_needs() -> None:
    assert KeyMap(SLOT_BYTES * 1000, 0.9, 10**9).capacity <= 900
    assert KeyMap(1 << 40, 0.9, 100).capacity <= 200


def test_keys_that_differ_in_little_have_different_hashes() -> None:
    keys = [bytes(n) for n in range(700)]
    keys += [b"\0" * at + b"\1" + b"\0" * (39 - at) for at in range(40)]
    columns, all_rows = columns_of(keys)
    hashes = KeyHash().of(columns, all_rows)
    halves = {*hashes[:, 0].tolist()}, {*hashes[:, 1].tolist()}
    assert [len(half) for half in halves] == [len(keys)] * 2


def test_a_key_has_the_same_hash_wherever_it_stands() -> None:
    hashing = KeyHash()
    alone, rows = columns_of([b"abcde"])
    among, many = columns_of([b"x" * 50, b"abcde", b"", b"abcde"])
    hashes = hashing.of(among, many)
    assert hashes[1].tolist() == hashes[3].tolist() == hashing.of(alone, rows)[0].tolist()
    assert KeyHash().of(alone, rows)[0].tolist() != hashes[1].tolist(), "nobody knows the seed"
