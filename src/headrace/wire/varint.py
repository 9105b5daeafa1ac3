"""Unsigned variable-length integers, as the flexible versions of Kafka's messages use them."""

from headrace.errors import MalformedRequest

MAX_TAGGED_FIELDS = 1000
"""The most tagged fields of a structure; Kafka's messages have less than ten."""


def read_uvarint(buf: bytes | bytearray | memoryview, pos: int) -> tuple[int, int]:
    """The value at `pos` and the position after it; at most five bytes, as Kafka has it."""
    byte = buf[pos]
    if byte < 0x80:
        return byte, pos + 1
    value = byte & 0x7F
    shift = 7
    while True:
        pos += 1
        byte = buf[pos]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos + 1
        shift += 7
        if shift > 28:
            raise MalformedRequest("a variable-length integer has more than five bytes")


def uvarint(value: int) -> bytes:
    """The bytes of one unsigned integer."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tagged_fields(buf: bytes | bytearray | memoryview, pos: int) -> int:
    """The position after a block of tagged fields, which are skipped."""
    count = buf[pos]
    if count == 0:
        return pos + 1
    count, pos = read_uvarint(buf, pos)
    if count > MAX_TAGGED_FIELDS:
        raise MalformedRequest(f"{count} tagged fields; at most {MAX_TAGGED_FIELDS} are allowed")
    for _ in range(count):
        _, pos = read_uvarint(buf, pos)
        length, pos = read_uvarint(buf, pos)
        pos += length
        if pos > len(buf):
            raise MalformedRequest("a tagged field reaches past the end of the request")
    return pos


_ONE_BYTE = [bytes((value,)) for value in range(0x80)]
