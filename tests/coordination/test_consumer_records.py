"""Records of consumer groups: what is written is read again, and the bytes are Kafka's."""

import uuid

import pytest

from headrace.coordination.consumer_records import (
    ClassicMembership,
    ClassicProtocol,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadata,
    ConsumerGroupMetadataKey,
    ConsumerKey,
    ConsumerValue,
    CurrentAssignment,
    CurrentAssignmentKey,
    PartitionMetadata,
    PartitionMetadataKey,
    RegularExpression,
    RegularExpressionKey,
    TargetMember,
    TargetMemberKey,
    TargetMetadata,
    TargetMetadataKey,
    decode,
)
from headrace.coordination.records import UnknownRecord

TOPIC = uuid.UUID("12345678-1234-5678-1234-567812345678")
CLASSIC = ClassicMembership(45_000, (ClassicProtocol("range", b"\0\1\2"),))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (ConsumerGroupMetadataKey("g"), ConsumerGroupMetadata(7)),
        (ConsumerGroupMetadataKey("g"), ConsumerGroupMetadata(7, -5)),
        (PartitionMetadataKey("g"), PartitionMetadata(b"\0\0\1\0")),
        (
            ConsumerGroupMemberMetadataKey("g", "m"),
            ConsumerGroupMemberMetadata("i", "r", "c", "/h", ("a", "b"), "x.*", 300_000, "range"),
        ),
        (
            ConsumerGroupMemberMetadataKey("g", "é"),
            ConsumerGroupMemberMetadata(None, None, "", "", (), None, -1, None, CLASSIC),
        ),
        (TargetMetadataKey("g"), TargetMetadata(3)),
        (TargetMemberKey("g", "m"), TargetMember({TOPIC: frozenset({0, 300})})),
        (
            CurrentAssignmentKey("g", "m"),
            CurrentAssignment(5, 4, 1, {TOPIC: frozenset({1})}, {TOPIC: frozenset({2})}),
        ),
        (RegularExpressionKey("g", "x.*"), RegularExpression(("x", "xy"), 12, 1_700_000_000_000)),
    ],
)
def test_what_is_written_is_read_again(key: ConsumerKey, value: ConsumerValue) -> None:
    assert decode(key.encode(), value.encode()) == (key, value)
    assert decode(key.encode(), None) == (key, None)


def test_the_bytes_are_those_of_kafka() -> None:
    assert CurrentAssignmentKey("g", "me").encode() == b"\0\x08\0\x01g\0\x02me"
    assert ConsumerGroupMetadata(2).encode() == b"\0\0\0\0\0\x02\0"
    value = CurrentAssignment(2, 1, 0, {TOPIC: frozenset({1, 0})})
    head = b"\0\0\0\0\0\x02\0\0\0\x01\0"
    assigned = b"\x02" + TOPIC.bytes + b"\x03\0\0\0\0\0\0\0\x01\0"
    assert value.encode() == head + assigned + b"\x01\0"


def test_keys_of_different_types_are_different_keys() -> None:
    assert (
        len({ConsumerGroupMetadataKey("g"), TargetMetadataKey("g"), PartitionMetadataKey("g")}) == 3
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\0\x09\0\1g", b"\0\0"),
        (ConsumerGroupMetadataKey("g").encode(), b"\0\x01\0\0\0\0\0"),
        (ConsumerGroupMetadataKey("g").encode(), b"\0\0\0"),
        (b"\0\x05\0\1g", b"\0\0"),
        (b"\0\x03\0\1\xff", None),
    ],
)
def test_a_record_that_is_not_known_is_said_to_be_unknown(key: bytes, value: bytes | None) -> None:
    with pytest.raises(UnknownRecord):
        decode(key, value)
