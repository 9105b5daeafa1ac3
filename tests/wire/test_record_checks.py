"""The fast checks of a batch's records accept and refuse the same as a plain walk over them."""

from collections.abc import Callable
from typing import Any, SupportsIndex

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.errors import ErrorCode, KafkaError
from headrace.wire.batch import HEADER_BYTES
from headrace.wire.record_checks import SMALL_RECORDS, check_fields, check_lengths
from headrace.wire.records import Record, encode_batch, write_varint

NOW = 1_700_000_000_000


class Wrong(Exception):
    """What the plain walk refuses."""


class Plain:
    """A walk over bytes, one number at a time."""

    def __init__(self, data: bytes) -> None:
        self.data, self.pos = data, 0

    def varint(self, bits: int = 32) -> int:
        raw = 0
        for place in range(10 if bits == 64 else 5):
            if self.pos >= len(self.data):
                raise Wrong
            byte = self.data[self.pos]
            self.pos += 1
            raw |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                if raw >= 1 << bits:
                    raise Wrong
                return raw // 2 if raw % 2 == 0 else -(raw // 2) - 1
        raise Wrong

    def skip(self, count: int) -> None:
        self.pos += count
        if self.pos > len(self.data):
            raise Wrong

    def field(self, least: int = -1) -> None:
        length = self.varint()
        if length < least:
            raise Wrong
        self.skip(max(length, 0))


def lengths_are_right(data: bytes, count: int) -> bool:
    walk = Plain(data)
    try:
        for _ in range(count):
            length = walk.varint()
            if length < 6:
                return False
            walk.skip(length)
    except Wrong:
        return False
    return walk.pos == len(data)


def largest_delta(data: bytes, count: int) -> int | None:
    """The largest timestamp delta, or None if the records are wrong."""
    if not lengths_are_right(data, count):
        return None
    walk, deltas = Plain(data), []
    try:
        for _ in range(count):
            length = walk.varint()
            stop = walk.pos + length
            record = Plain(data[: walk.pos + length])
            record.pos = walk.pos
            record.skip(1)
            deltas.append(record.varint(64))
            record.varint()
            record.field()
            record.field()
            headers = record.varint()
            if not 0 <= headers <= length:
                return None
            for _ in range(headers):
                record.field(least=0)
                record.field()
            if record.pos != stop:
                return None
            walk.pos = stop
    except Wrong:
        return None
    return max(deltas)


def outcome(run: Callable[[], int | None]) -> int | None:
    """What it returns, or its error code."""
    try:
        return run()
    except KafkaError as error:
        return error.code


def check(payload: bytes, count: int, before: int = 0, after: bytes = b"") -> None:
    """The fast checks agree with the plain walk, wherever in a buffer the payload lies."""
    buffer = bytearray(b"\x0c" * before + payload + after)
    end = before + len(payload)
    code = outcome(lambda: check_lengths(buffer, before, count, end))
    assert code == (None if lengths_are_right(payload, count) else ErrorCode.INVALID_RECORD)
    if count > 3 * SMALL_RECORDS:
        return
    expected = largest_delta(payload, count)
    found = outcome(lambda: check_fields(buffer, before, count, end))
    assert found == (ErrorCode.INVALID_RECORD if expected is None else expected)


class Counting(bytearray):
    """Counts the bytes that are looked at."""

    looked_at = 0

    def __getitem__(self, place: SupportsIndex | slice) -> Any:
        found = super().__getitem__(place)
        self.looked_at += len(found) if isinstance(found, bytearray) else 1
        return found


texts = st.text(max_size=4)
some_sizes = st.integers(50, 200) | st.integers(8150, 8200)
some_bytes = st.none() | st.binary(max_size=12) | some_sizes.map(bytes)
records = st.builds(
    Record,
    offset=st.just(0),
    timestamp=st.integers(NOW - 70, NOW + 70) | st.sampled_from([NOW, NOW, -1, 0, 2**62]),
    key=some_bytes,
    value=some_bytes,
    headers=st.lists(st.tuples(texts, st.none() | st.binary(max_size=5)), max_size=2).map(tuple),
)
alike = st.builds(lambda record, count: [record] * count, records, st.integers(1, 90))
batches = st.lists(st.lists(records, max_size=10) | alike, min_size=1, max_size=4).map(
    lambda parts: [record for part in parts for record in part]
)
changes = st.lists(st.tuples(st.integers(0, 2**20), st.integers(1, 255)), max_size=3)


def payload_of(items: list[Record]) -> bytes:
    return bytes(encode_batch(items)[HEADER_BYTES:])


@given(batches, changes, st.sampled_from([0, 0, 0, 1, -1, 7, 1000]), st.integers(0, 30))
def test_both_checks_agree_with_a_plain_walk(
    items: list[Record], mutations: list[tuple[int, int]], more: int, before: int
) -> None:
    payload = bytearray(payload_of(items))
    for where, change in mutations:
        if payload:
            payload[where % len(payload)] ^= change
    if (count := len(items) + more) > 0:
        check(bytes(payload), count, before, b"\x0c\x00\x00\x00\x01\x01\x00" * 4)


@given(st.binary(max_size=80), st.integers(1, 40), st.binary(max_size=20))
@example(b"\x0c" * 70, 10, b"")
@example(b"\xff" * 40, 3, b"\x00" * 9)
def test_any_bytes_are_accepted_or_refused_with_a_kafka_error(
    payload: bytes, count: int, after: bytes
) -> None:
    check(payload, count, 3, after)


@given(alike, st.integers(0, 2**20), st.integers(1, 255))
@example([Record(0, NOW, None, None, (("h", b""),))] * 6, 56, 1)
def test_one_changed_byte_among_equal_records_is_noticed(
    items: list[Record], where: int, change: int
) -> None:
    payload = bytearray(payload_of(items))
    payload[where % len(payload)] ^= change
    check(bytes(payload), len(items))


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 63, 64, 65, 700, 9000])
@pytest.mark.parametrize("size", [0, 40, 55, 56, 100, 1000])
def test_batches_of_any_size_are_accepted_and_other_counts_are_not(count: int, size: int) -> None:
    payload = payload_of([Record(0, NOW, b"k", b"v" * size)] * count)
    for other in {count, count + 1, max(count - 1, 1), 1, 40}:
        check(payload, other)
    for shorter in (payload[:-1], payload[1:], payload + b"\0"):
        check(shorter, count)


def test_sizes_that_change_after_long_runs_are_followed() -> None:
    items = [Record(0, NOW, None, b"v" * size) for size in [100] * 500 + [101] + [100] * 500]
    items += [Record(0, NOW, None, b"v" * (90 + number % 7)) for number in range(3000)]
    check(payload_of(items), len(items))
    check(payload_of(items), len(items) - 1)


@pytest.mark.parametrize("size", [0, 56, 57, 58, 8183, 8184, 8185, 1_048_570, 1_048_580])
def test_lengths_of_every_width_are_known(size: int) -> None:
    large, small = Record(0, NOW, None, b"v" * size), Record(0, NOW, None, b"")
    for items in ([large, small], [small, large], [large], [small, large, large, small]):
        payload = payload_of(items)
        check(payload, len(items))
        check(payload[:-1], len(items))
        keys = payload_of([record._replace(key=record.value, value=None) for record in items])
        check(keys, len(items))


@pytest.mark.parametrize(
    "payload",
    [
        b"\x0d\x00\x00\x00\x01\x01\x00",
        b"\x0a\x00\x00\x00\x01\x01\x00",
        b"\x8d\x01" + bytes(80),
        b"\x8a\x00" + bytes(5),
        b"\x80\x80\x80\x80\x80\x00" + bytes(8),
        b"\x80\x80\x80\x80\x80\x80\x80",
    ],
)
def test_lengths_that_cannot_be_are_refused(payload: bytes) -> None:
    check(payload, 1)
    with pytest.raises(KafkaError):
        check_lengths(payload, 0, 1, len(payload))


def test_header_counts_of_billions_are_refused_before_anything_is_walked() -> None:
    for number in (2**31 - 1, -1, -(2**31)):
        body = bytearray(b"\0\0\0\x01\x01")
        write_varint(body, number)
        check(bytes([2 * len(body)]) + bytes(body), 1)


@pytest.mark.parametrize("count", [1, 1000, 1001, 400_000])
def test_the_headers_of_a_record_are_checked_up_to_a_bound(count: int) -> None:
    body = bytearray(b"\0\0\0\x01\x01")
    write_varint(body, count)
    body += b"\0\x01" * (count - 1) + b"\x01\x01"  # the last header has no key
    payload = bytearray()
    write_varint(payload, len(body))
    payload = Counting(payload + body)
    code = outcome(lambda: check_fields(payload, 0, 1, len(payload)))
    assert code == (ErrorCode.INVALID_RECORD if count <= 1000 else 0)
    assert payload.looked_at < 5000


def test_a_count_of_billions_is_refused_before_anything_is_walked() -> None:
    with pytest.raises(KafkaError):
        check_lengths(bytes(100), 0, 2**31 - 1, 100)


@pytest.mark.parametrize("run", [1, 2, 7, 8, 9, 60, 300])
def test_the_work_grows_with_the_records_however_long_the_runs_of_equal_sizes(run: int) -> None:
    items = [Record(0, NOW, None, b"v" * (number // run % 2)) for number in range(40_000)]
    payload = Counting(payload_of([items[0]] * 4000) + payload_of(items))
    check_lengths(payload, 0, 44_000, len(payload))
    assert payload.looked_at < 60 * 44_000
