"""Records of offsets and classic groups: Kafka's bytes, in every version that it ever wrote."""

import struct

import pytest

from headrace.coordination.records import (
    GroupMetadata,
    GroupMetadataKey,
    MemberMetadata,
    OffsetCommit,
    OffsetCommitKey,
    UnknownRecord,
    decode,
)

KEY = OffsetCommitKey("grüppe", "orders", 3)
GROUP = GroupMetadata(
    "consumer",
    5,
    "range",
    "m-1",
    1_700_000_000_000,
    (
        MemberMetadata("m-1", "a", "client", "/127.0.0.1", 60_000, 10_000, b"sub", b"assigned"),
        MemberMetadata("m-2", None, "client", "/127.0.0.1", 60_000, 10_000, b"", b""),
    ),
)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()


def test_records_are_read_as_they_were_written() -> None:
    offset = OffsetCommit(2**40, 7, "note", 1_700_000_000_000)
    assert decode(KEY.encode(), offset.encode()) == (KEY, offset)
    key = GroupMetadataKey("g")
    assert decode(key.encode(), GROUP.encode()) == (key, GROUP)
    empty = GroupMetadata("", 1, None, None, -1, ())
    assert decode(key.encode(), empty.encode()) == (key, empty)


def test_a_tombstone_has_no_value() -> None:
    assert decode(KEY.encode(), None) == (KEY, None)


def test_an_offset_has_kafkas_bytes() -> None:
    key = b"\0\1" + text("grüppe") + text("orders") + b"\0\0\0\3"
    assert KEY.encode() == key
    value = b"\0\3" + struct.pack(">qi", 9, 1) + text("note") + struct.pack(">q", 1000)
    assert OffsetCommit(9, 1, "note", 1000).encode() == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"\0\0" + struct.pack(">q", 9) + text("n") + struct.pack(">q", 5), (9, -1, "n", 5, -1)),
        (b"\0\1" + struct.pack(">q", 9) + text("n") + struct.pack(">qq", 5, 8), (9, -1, "n", 5, 8)),
        (b"\0\2" + struct.pack(">q", 9) + text("n") + struct.pack(">q", 5), (9, -1, "n", 5, -1)),
        (
            b"\0\4" + struct.pack(">qi", 9, 2) + b"\2n" + struct.pack(">qB", 5, 0),
            (9, 2, "n", 5, -1),
        ),
    ],
)
def test_offsets_of_other_versions_are_read(value: bytes, expected: tuple[object, ...]) -> None:
    assert decode(KEY.encode(), value)[1] == OffsetCommit(*expected)  # type: ignore[arg-type]


def test_a_group_of_version_0_is_read() -> None:
    value = b"\0\0" + text("consumer") + struct.pack(">i", 5) + text("range") + text("m")
    value += struct.pack(">i", 1) + text("m") + text("c") + text("/h") + struct.pack(">i", 10_000)
    value += struct.pack(">i", 1) + b"s" + struct.pack(">i", 1) + b"a"
    member = MemberMetadata("m", None, "c", "/h", 10_000, 10_000, b"s", b"a")
    expected = GroupMetadata("consumer", 5, "range", "m", -1, (member,))
    assert decode(GroupMetadataKey("g").encode(), value)[1] == expected


def test_a_group_of_version_4_is_read() -> None:
    value = b"\0\4" + b"\x09consumer" + struct.pack(">i", 5) + b"\0\0" + struct.pack(">q", 7)
    value += b"\2" + b"\2m" + b"\0" + b"\2c" + b"\2h" + struct.pack(">ii", 1, 2) + b"\2s\1\0\0"
    member = MemberMetadata("m", None, "c", "h", 1, 2, b"s", b"")
    expected = GroupMetadata("consumer", 5, None, None, 7, (member,))
    assert decode(GroupMetadataKey("g").encode(), value)[1] == expected


def test_a_record_of_another_type_is_unknown() -> None:
    with pytest.raises(UnknownRecord):
        decode(b"\0\x63", b"\0\0")


def test_a_record_cut_short_is_unknown() -> None:
    key, value = GroupMetadataKey("g").encode(), GROUP.encode()
    for size in range(len(value)):
        with pytest.raises(UnknownRecord):
            decode(key, value[:size])
