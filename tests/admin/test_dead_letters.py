"""Dead letters: origin and error from headers, groups, and the plan for sending them back."""

import base64
import json
import struct

import pytest

from headrace.admin.dead_letters import (
    RESEND_COUNT,
    RESEND_FROM,
    DeadLetter,
    LetterGroup,
    LetterKind,
    RawRecord,
    StoredLetter,
    group_of,
    plan_resend,
    read_dead_letter,
)
from headrace.admin.record_text import Headers

CONNECT: Headers = (
    ("trace", b"t-1"),
    ("__connect.errors.topic", b"orders"),
    ("__connect.errors.partition", b"3"),
    ("__connect.errors.offset", b"4711"),
    ("__connect.errors.connector.name", b"jdbc-sink"),
    ("__connect.errors.task.id", b"0"),
    ("__connect.errors.stage", b"VALUE_CONVERTER"),
    ("__connect.errors.class.name", b"io.confluent.connect.avro.AvroConverter"),
    ("__connect.errors.exception.class.name", b"org.apache.kafka.connect.errors.DataException"),
    ("__connect.errors.exception.message", b"Failed to deserialize data for topic orders"),
)
SPRING: Headers = (
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", struct.pack(">i", 3)),
    ("kafka_dlt-original-offset", struct.pack(">q", 4711)),
    ("kafka_dlt-original-timestamp", struct.pack(">q", 1_704_067_200_000)),
    ("kafka_dlt-original-timestamp-type", b"CreateTime"),
    ("kafka_dlt-original-consumer-group", b"billing"),
    ("kafka_dlt-exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailed"),
    ("kafka_dlt-exception-cause-fqcn", b"java.lang.IllegalStateException"),
    ("kafka_dlt-exception-message", b"no customer 17"),
)
SPRING_CLOUD: Headers = (
    ("x-original-topic", b"orders"),
    ("x-original-partition", struct.pack(">i", 3)),
    ("x-original-offset", struct.pack(">q", 4711)),
    ("x-exception-fqcn", b"java.lang.RuntimeException"),
    ("x-exception-message", b"boom"),
)
STREAMS: Headers = (
    ("__streams.errors.topic", b"orders"),
    ("__streams.errors.partition", b"3"),
    ("__streams.errors.offset", b"4711"),
    ("__streams.errors.exception", b"java.lang.ArithmeticException"),
    ("__streams.errors.message", b"/ by zero"),
)
SMALLRYE: Headers = (
    ("dead-letter-topic", b"orders"),
    ("dead-letter-partition", b"3"),
    ("dead-letter-offset", b"4711"),
    ("dead-letter-exception-class-name", b"java.lang.RuntimeException"),
    ("dead-letter-reason", b"Something went wrong"),
)
QUARANTINE: Headers = (
    ("error", b"value: the registry has no schema with id 99"),
    ("topic", b"orders"),
    ("partition", b"3"),
    ("offset", b"4711"),
)


@pytest.mark.parametrize(
    ("headers", "kind", "error", "message"),
    [
        (
            CONNECT,
            LetterKind.CONNECT,
            "org.apache.kafka.connect.errors.DataException",
            "Failed to deserialize data for topic orders",
        ),
        (SPRING, LetterKind.SPRING, "java.lang.IllegalStateException", "no customer 17"),
        (SPRING_CLOUD, LetterKind.SPRING_CLOUD, "java.lang.RuntimeException", "boom"),
        (STREAMS, LetterKind.STREAMS, "java.lang.ArithmeticException", "/ by zero"),
        (SMALLRYE, LetterKind.SMALLRYE, "java.lang.RuntimeException", "Something went wrong"),
        (
            QUARANTINE,
            LetterKind.QUARANTINE,
            None,
            "value: the registry has no schema with id 99",
        ),
    ],
)
def test_origin_and_error_are_read_from_the_headers(
    headers: Headers, kind: LetterKind, error: str | None, message: str
) -> None:
    found = read_dead_letter(headers)
    assert found is not None
    assert (found.kind, found.topic, found.partition, found.offset) == (kind, "orders", 3, 4711)
    assert (found.error, found.message) == (error, message)


def test_stage_source_and_time_are_read_where_they_are() -> None:
    connect, spring = read_dead_letter(CONNECT), read_dead_letter(SPRING)
    assert connect is not None
    assert (connect.stage, connect.source) == ("VALUE_CONVERTER", "jdbc-sink")
    assert spring is not None
    assert (spring.source, spring.timestamp_ms) == ("billing", 1_704_067_200_000)


def test_quarantined_columns_in_json_give_the_record_back() -> None:
    raw = {"key": base64.b64encode(b"k").decode(), "value": base64.b64encode(b"\xff{").decode()}
    value = json.dumps({"_error": "value: begins with 0x7b", "_raw": raw}).encode()
    found = read_dead_letter((), value)
    assert found is not None
    assert (found.kind, found.message) == (LetterKind.QUARANTINE, "value: begins with 0x7b")
    assert found.raw == RawRecord(b"k", b"\xff{")


@pytest.mark.parametrize(
    ("headers", "value"),
    [
        ((), None),
        ((("error", b"something else"),), b"x"),
        ((("x-request-id", b"1"),), b'{"_error": 1}'),
        ((), b'{"_error": "value: x", "_raw": {"value": "no base64!"}}'),
        ((), b'{"_error": "value: x"'),
    ],
)
def test_other_records_are_no_dead_letters(headers: Headers, value: bytes | None) -> None:
    assert read_dead_letter(headers, value) is None


def test_malformed_numbers_are_unknown() -> None:
    headers = (("__connect.errors.topic", b"t"), ("__connect.errors.partition", b"\xff\x00"))
    found = read_dead_letter(headers)
    assert found == DeadLetter(LetterKind.CONNECT, "t", None, None, None, None)


def test_numbers_as_text_are_read_where_integers_are_usual() -> None:
    found = read_dead_letter((("x-original-partition", b"3"), ("x-original-offset", b"12345678")))
    assert found is not None
    assert (found.partition, found.offset) == (3, 12_345_678)


def test_letters_of_one_cause_are_one_group_whatever_their_numbers() -> None:
    def letter(message: str) -> DeadLetter:
        return DeadLetter(LetterKind.SPRING, "t", 0, 1, "E", message)

    first = letter("no customer 17 in 0x7fff\n\tat Billing.java:3")
    second = letter("no customer 234 in 0xa1")
    assert group_of(first) == group_of(second)
    assert group_of(first) == LetterGroup(LetterKind.SPRING, "t", "E", "no customer # in #")
    uuids = "1b4e28ba-2fa1-11d2-883f-0016d3cca427", "9f8b7c6d-0000-41d2-a83f-aaaaaaaaaaaa"
    assert len({group_of(letter(f"order {each} is late")) for each in uuids}) == 1
    assert group_of(None) == LetterGroup(None, None, None, None)


def stored(headers: Headers, value: bytes | None = b"v") -> StoredLetter:
    return StoredLetter("orders-dlq", 0, 9, b"k", value, headers)


def test_a_letter_goes_back_to_its_partition_without_the_headers_of_its_failure() -> None:
    (resend,) = plan_resend([stored(CONNECT)], {"orders": 6}).resends
    assert resend.topic == "orders"
    assert (resend.record.key, resend.record.value, resend.record.partition) == (b"k", b"v", 3)
    assert resend.record.headers == (
        ("trace", b"t-1"),
        (RESEND_COUNT, b"1"),
        (RESEND_FROM, b"orders-dlq/0/9"),
    )


def test_the_key_decides_where_the_partition_does_not_exist_or_the_topic_is_another() -> None:
    (fewer,) = plan_resend([stored(SPRING)], {"orders": 2}).resends
    assert fewer.record.partition is None
    (other,) = plan_resend([stored(SPRING)], {"repaired": 9}, target="repaired").resends
    assert (other.topic, other.record.partition) == ("repaired", None)


def test_a_wrapped_record_is_unwrapped() -> None:
    raw = {"key": None, "value": base64.b64encode(b"\x00").decode()}
    value = json.dumps({"_error": "value: cut", "_raw": raw}).encode()
    letter = stored((("topic", b"orders"),), value)
    (resend,) = plan_resend([letter], {"orders": 1}).resends
    assert (resend.record.key, resend.record.value) == (None, b"\x00")


def test_a_letter_that_comes_back_again_and_again_is_refused() -> None:
    letter = stored(CONNECT)
    for count in (1, 2, 3):
        (resend,) = plan_resend([letter], {"orders": 6}).resends
        assert dict(resend.record.headers)[RESEND_COUNT] == b"%d" % count
        # The sink fails again and adds its headers to those that the record has.
        letter = stored(CONNECT + resend.record.headers)
    plan = plan_resend([letter], {"orders": 6})
    assert plan.resends == ()
    assert "3 times" in plan.refused[0].reason
    assert plan_resend([letter], {"orders": 6}, most_resends=9).refused == ()


@pytest.mark.parametrize(
    ("letter", "target", "reason"),
    [
        (stored(()), None, "do not name the topic"),
        (stored(CONNECT), "gone", "'gone' does not exist"),
        (stored(CONNECT), "orders-dlq", "dead-letter topic itself"),
    ],
)
def test_a_letter_without_a_way_back_is_refused_with_the_reason(
    letter: StoredLetter, target: str | None, reason: str
) -> None:
    plan = plan_resend([letter], {"orders": 6, "orders-dlq": 1}, target=target)
    assert plan.resends == ()
    assert reason in plan.refused[0].reason
