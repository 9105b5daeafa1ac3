"""Subscriptions and assignments of members, in the bytes of Kafka's own clients."""

import pytest

from headrace.client.consumer_protocol import (
    MalformedProtocol,
    MemberAssignment,
    MemberSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from headrace.types import TopicPartition

OWNED = frozenset({TopicPartition("t", 1), TopicPartition("t", 0), TopicPartition("u", 5)})


def test_a_subscription_has_the_layout_of_version_1() -> None:
    found = encode_subscription(
        MemberSubscription(("t",), b"me", frozenset({TopicPartition("t", 3)}))
    )
    assert found.hex(" ") == (
        "00 01 00 00 00 01 00 01 74 00 00 00 02 6d 65 00 00 00 01 00 01 74 00 00 00 01 00 00 00 03"
    )


def test_without_owned_partitions_it_has_the_layout_of_version_0() -> None:
    assert encode_subscription(MemberSubscription(("t",))).hex(" ") == (
        "00 00 00 00 00 01 00 01 74 ff ff ff ff"
    )


def test_subscriptions_and_assignments_are_read_back() -> None:
    subscription = MemberSubscription(("t", "u"), None, OWNED)
    assert decode_subscription(encode_subscription(subscription)) == subscription
    assignment = MemberAssignment(tuple(sorted(OWNED)), b"\x00\xff")
    assert decode_assignment(encode_assignment(assignment)) == assignment
    assert decode_assignment(b"") == MemberAssignment(())


def test_fields_of_later_versions_are_skipped() -> None:
    subscription = MemberSubscription(("t",), b"", OWNED)
    later = b"\x00\x03" + encode_subscription(subscription)[2:] + b"\x00\x00\x00\x07\xff\xff"
    assert decode_subscription(later) == subscription


def test_malformed_bytes_are_refused() -> None:
    whole = encode_assignment(MemberAssignment(tuple(OWNED)))
    for end in range(1, len(whole)):
        with pytest.raises(MalformedProtocol):
            decode_assignment(whole[:end])
    with pytest.raises(MalformedProtocol):
        decode_subscription(b"\x00\x01\x00\x00\x00\x01\x00\x01\xff")
