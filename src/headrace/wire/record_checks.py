"""Checks that uncompressed records match the header of their batch, at every append.

`check_lengths` checks that the lengths of the records fill the batch exactly, which is fast for any
number of records of equal size. `check_fields` checks every field of every record; it is slower and
meant for small batches. Both raise KafkaError INVALID_RECORD and nothing else. The
layout of a record is in `records.py`; its `iterate` decodes records.

Both are written for speed: give them the buffer itself, because indexing a memoryview takes twice
as long. Bytes after `end` cannot make an invalid batch valid: positions only grow, and the last
position has to be the end.
"""

from itertools import repeat
from typing import TypeAlias

from headrace.wire.records import MIN_RECORD_BYTES, invalid, read_varint
from headrace.wire.steps import Steps

Buffer: TypeAlias = bytes | bytearray

SMALL_RECORDS = 32
"""Batches of up to this number of records are checked with `check_fields`."""

# The number of records that are checked one by one before they are compared with the first.
_FEW_RECORDS = 5

# A record of a megabyte can have 500,000 headers. More than this number are not checked, so that
# one batch does not delay all clients.
_MOST_HEADERS = 1000

_WINDOW_RECORDS = 256
_WORTHWHILE_RUN = 8
_FIRST_HOPS = 16
_MOST_HOPS = 1024

_BYTES = tuple(bytes((value,)) for value in range(256))
_ZEROS = tuple(bytes(count) for count in range(SMALL_RECORDS + 1))
_OFFSET_DELTAS = tuple(bytes(range(0, 2 * count, 2)) for count in range(SMALL_RECORDS + 1))


_FAR = 1 << 62
"""Larger than any buffer: indexing a buffer with it raises IndexError."""


def _steps() -> list[tuple[int, ...]]:
    """The bytes of a key or value with its length in front, by the first two bytes.

    A length of -1 is null and has no further bytes. _FAR marks other negative lengths, and lengths
    that are encoded with three bytes or more, or with more bytes than necessary.
    """
    rows: list[tuple[int, ...]] = [(_FAR,) * 256] * 256
    rows[1] = (1,) * 256
    for first in range(0, 0x80, 2):
        rows[first] = (first // 2 + 1,) * 256
    for first in range(0x80, 0x100, 2):
        step = (first & 0x7F) // 2 + 2
        rows[first] = (_FAR, *range(step + 64, step + 64 * 128, 64), *rows[3][:128])
    return rows


_FIELD_STEPS = _steps()
# The same for records, whose lengths begin with this byte at least.
_SHORTEST = 2 * (MIN_RECORD_BYTES - 1)
_RECORD_STEPS = [_FIELD_STEPS[3]] * _SHORTEST + _FIELD_STEPS[_SHORTEST:]


def check_lengths(buf: Buffer, pos: int, count: int, end: int) -> None:
    """INVALID_RECORD unless the lengths of exactly `count` records fill [pos, end).

    If the record at `pos` has the size s, the length of the next one is at `pos + s`. So equal
    leading bytes of buf[pos::s] show as many records of that size, without a loop. If sizes vary, a
    loop goes from record to record.
    """
    if count <= 0 or count * MIN_RECORD_BYTES > end - pos:
        raise invalid(f"{count} records cannot fit in {end - pos} bytes")
    left, window, hops = count, _WINDOW_RECORDS, _FIRST_HOPS
    try:
        while left:
            first, second = buf[pos], buf[pos + 1]
            step = _RECORD_STEPS[first][second]
            if step < _FAR:
                stop = pos + step * (window if window < left else left)
                if stop > end:
                    stop = end
                run = _leading(buf[pos:stop:step], first)
                if first >= 0x80 and run > 1:
                    run = _leading(buf[pos + 1 : pos + run * step : step], second)
                pos += run * step
                left -= run
                if run >= _WORTHWHILE_RUN:
                    # Grows only after a full window: the work stays in proportion to the records.
                    window = 4 * window if run == window else _WINDOW_RECORDS
                    hops = _FIRST_HOPS
                    continue
            pos = _hop(buf, pos, min(hops, left))
            left -= min(hops, left)
            window, hops = _WINDOW_RECORDS, min(2 * hops, _MOST_HOPS)
    except IndexError:
        pos = -1
    if pos != end:
        raise invalid(f"{count} records do not fill the batch")


def length_steps(buf: Buffer, pos: int, count: int, end: int) -> Steps[None]:
    """As `check_lengths`, in steps."""
    if count <= 0 or count * MIN_RECORD_BYTES > end - pos:
        raise invalid(f"{count} records cannot fit in {end - pos} bytes")
    left = count
    try:
        while left:
            some = min(left, _MOST_HOPS)
            pos = _hop(buf, pos, some)
            left -= some
            yield
    except IndexError:
        pos = -1
    if pos != end:
        raise invalid(f"{count} records do not fill the batch")


def _leading(column: Buffer, value: int) -> int:
    """The number of bytes at the beginning of the column that have this value."""
    count, sought = len(column), _BYTES[value]
    return count if column == sought * count else count - len(column.lstrip(sought))


def _hop(buf: Buffer, pos: int, count: int) -> int:
    """The position after `count` records, by their lengths."""
    steps, start = _RECORD_STEPS, pos
    try:
        for _ in repeat(None, count):
            pos += steps[buf[pos]][buf[pos + 1]]
    except IndexError:
        pos = _FAR
    return pos if pos < _FAR else _hop_by_varints(buf, start, count)


def _hop_by_varints(buf: Buffer, pos: int, count: int) -> int:
    for _ in repeat(None, count):
        length, pos = _record_length(buf, pos)
        pos += length
    return pos


def check_fields(buf: Buffer, pos: int, count: int, end: int) -> int:
    """The largest timestamp delta of the `count` records that fill [pos, end).

    INVALID_RECORD unless they fill it exactly and the fields of each record fill the record (but
    not if a record has too many headers to look at). Offset deltas may be any numbers, as in
    Apache Kafka.
    """
    steps, fields, far = _RECORD_STEPS, _FIELD_STEPS, _FAR
    start, largest = pos, -(1 << 63)
    try:
        for number in range(count):
            first = buf[pos]
            step = steps[first][buf[pos + 1]]
            if step < far:
                stop = pos + step
                pos += 1 if first < 0x80 else 2
            else:
                length, pos = _record_length(buf, pos)
                stop = pos + length
            time_at = pos + 1
            delta = buf[time_at]
            pos += 2
            if delta >= 0x80:
                delta, pos = read_varint(buf, time_at, 63)
            elif delta:
                delta = delta >> 1 ^ -(delta & 1)
            if delta > largest:
                largest = delta
            pos = pos + 1 if buf[pos] < 0x80 else read_varint(buf, pos)[1]
            key_at = pos
            step = fields[buf[pos]][buf[pos + 1]]
            pos += step if step < far else _field_bytes(buf, pos)
            value_at = pos
            step = fields[buf[pos]][buf[pos + 1]]
            pos += step if step < far else _field_bytes(buf, pos)
            headers_at = pos
            pos = _behind_headers(buf, pos, stop) if buf[pos] else pos + 1
            if pos != stop:
                raise invalid(f"the fields of record {number} do not fill it")
            if number == 0 and _FEW_RECORDS < count <= SMALL_RECORDS:
                size = stop - start
                if end - start == count * size and _all_alike(
                    buf, (start, time_at, key_at, value_at, headers_at), size, count, end
                ):
                    times = buf[time_at:end:size]
                    if times == _ZEROS[count]:
                        return 0
                    if times.isascii():
                        return max(byte >> 1 ^ -(byte & 1) for byte in times)
    except IndexError:
        pos = -1
    if pos != end:
        raise invalid(f"{count} records do not fill the batch")
    return largest


def _all_alike(
    buf: Buffer, places: tuple[int, int, int, int, int], size: int, count: int, end: int
) -> bool:
    """Whether `count` records of the same size have the same lengths inside as the first one.

    The first one, which is valid, has its fields at these positions: length, timestamp delta, key,
    value, header count.
    """
    start, time_at, key_at, value_at, headers_at = places
    if key_at != time_at + 2 or buf[time_at + 1 : end : size] != _OFFSET_DELTAS[count]:
        return False
    if buf[headers_at:end:size] != _ZEROS[count]:
        return False
    for at in (start, key_at, value_at):
        while True:
            byte = buf[at]
            if buf[at:end:size].count(byte) != count:
                return False
            at += 1
            if byte < 0x80:
                break
    return True


def _record_length(buf: Buffer, pos: int) -> tuple[int, int]:
    """The length of the record at `pos`, and the position after that number."""
    length, pos = read_varint(buf, pos)
    if length < MIN_RECORD_BYTES - 1:
        raise invalid(f"a record of {length} bytes is too short")
    return length, pos


def _field_bytes(buf: Buffer, pos: int) -> int:
    """The bytes of the key or value at `pos`, with its length."""
    length, behind = read_varint(buf, pos)
    if length < -1:
        raise invalid(f"a field has the length {length}")
    return behind - pos + max(length, 0)


def _behind_headers(buf: Buffer, pos: int, stop: int) -> int:
    count, pos = read_varint(buf, pos)
    # Two lengths of a byte each at least: checked before the loop.
    if count < 0 or count * 2 > stop - pos:
        raise invalid(f"{count} headers cannot fit in {stop - pos} bytes")
    if count > _MOST_HEADERS:
        return stop
    for _ in repeat(None, count):
        length, pos = read_varint(buf, pos)
        if length < 0:
            raise invalid("a header has no key")
        pos += length
        pos += _field_bytes(buf, pos)
    return pos
