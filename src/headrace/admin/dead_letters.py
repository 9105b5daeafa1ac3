"""Dead letters: the origin and error of a record in a dead-letter topic, and the way back.

Pure. Recognised are the headers of Kafka Connect, Kafka Streams, Spring for Apache Kafka, Spring
Cloud Stream, SmallRye and Headrace's own quarantine (docs/typed-topics.md).
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from headrace.admin.record_text import Headers, NewRecord

RESEND_COUNT = "headrace.resend.count"
RESEND_FROM = "headrace.resend.from"
MOST_RESENDS = 3
MESSAGE_LENGTH = 200


class LetterKind(StrEnum):
    """What wrote a dead letter."""

    CONNECT = "Kafka Connect"
    STREAMS = "Kafka Streams"
    SPRING = "Spring for Apache Kafka"
    SPRING_CLOUD = "Spring Cloud Stream"
    SMALLRYE = "SmallRye Reactive Messaging"
    QUARANTINE = "Headrace quarantine"


@dataclass(frozen=True, slots=True)
class _HeaderNames:
    """The headers of one kind of dead letters; of several names the first that exists is used."""

    prefix: str
    topic: str
    partition: str
    offset: str
    error: tuple[str, ...]
    message: tuple[str, ...]
    timestamp: str = ""
    stage: str = ""
    source: str = ""
    binary: bool = False
    """Whether numbers are big-endian integers instead of text."""


_NAMES = {
    LetterKind.CONNECT: _HeaderNames(
        "__connect.errors.",
        "topic",
        "partition",
        "offset",
        ("exception.class.name",),
        ("exception.message",),
        stage="stage",
        source="connector.name",
    ),
    LetterKind.STREAMS: _HeaderNames(
        "__streams.errors.", "topic", "partition", "offset", ("exception",), ("message",)
    ),
    LetterKind.SPRING: _HeaderNames(
        "kafka_dlt-",
        "original-topic",
        "original-partition",
        "original-offset",
        ("exception-cause-fqcn", "exception-fqcn"),
        ("exception-message",),
        timestamp="original-timestamp",
        source="original-consumer-group",
        binary=True,
    ),
    LetterKind.SPRING_CLOUD: _HeaderNames(
        "x-",
        "original-topic",
        "original-partition",
        "original-offset",
        ("exception-fqcn",),
        ("exception-message",),
        timestamp="original-timestamp",
        binary=True,
    ),
    LetterKind.SMALLRYE: _HeaderNames(
        "dead-letter-",
        "topic",
        "partition",
        "offset",
        ("cause-class-name", "exception-class-name"),
        ("cause", "reason"),
    ),
}
_SPRING_CLOUD = re.compile(r"x-(original|exception)-")
_QUARANTINE_ERROR = re.compile(r"(key|value): ")
_QUARANTINE_HEADERS = frozenset({"error", "topic", "partition", "offset"})


@dataclass(frozen=True, slots=True)
class RawRecord:
    """Key and value of the record as it was, where a dead letter wraps it."""

    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The origin of a record and its error; unknown values are None."""

    kind: LetterKind
    topic: str | None
    partition: int | None
    offset: int | None
    error: str | None
    """The class of the exception."""
    message: str | None
    timestamp_ms: int | None = None
    stage: str | None = None
    source: str | None = None
    """The connector or consumer group that failed."""
    resends: int = 0
    """How often it has been sent back before."""
    raw: RawRecord | None = None


@dataclass(frozen=True, slots=True)
class LetterGroup:
    """Dead letters with the same cause, as one row of a list."""

    kind: LetterKind | None
    topic: str | None
    error: str | None
    message: str | None


@dataclass(frozen=True, slots=True)
class StoredLetter:
    """A record of a dead-letter topic, with its position there."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class Resend:
    """A record to send back: the topic, and the record without the headers of its failure."""

    letter: StoredLetter
    topic: str
    record: NewRecord


@dataclass(frozen=True, slots=True)
class RefusedLetter:
    """A record that is not sent back, and why."""

    letter: StoredLetter
    reason: str


@dataclass(frozen=True, slots=True)
class ResendPlan:
    """The records that would be sent, and those that would not; nothing is sent yet."""

    resends: tuple[Resend, ...]
    refused: tuple[RefusedLetter, ...]


_DEAD_LETTER_TOPIC = re.compile(
    r"(?i:(?:^|[._-])(?:dlq|dlt|dead[._-]?letters?|errors?|quarantined?)(?:$|[._-]))|(?:DLQ|DLT)$"
)


def is_dead_letter_name(topic: str) -> bool:
    """Whether the name of a topic is that of a dead-letter topic by convention."""
    return _DEAD_LETTER_TOPIC.search(topic) is not None


def read_dead_letter(headers: Headers, value: bytes | None = None) -> DeadLetter | None:
    """Origin and error of a record of a dead-letter topic; None if its headers have neither."""
    known = dict(headers)
    for kind, names in _NAMES.items():
        if any(_belongs(kind, name) for name in known):
            return _read(kind, names, known)
    return _quarantined(known, value)


def _belongs(kind: LetterKind, name: str) -> bool:
    """Whether a header is one of those that this kind adds."""
    if kind is LetterKind.SPRING_CLOUD:
        return _SPRING_CLOUD.match(name) is not None
    return name.startswith(_NAMES[kind].prefix)


def _read(kind: LetterKind, names: _HeaderNames, known: Mapping[str, bytes | None]) -> DeadLetter:
    def text(*options: str) -> str | None:
        found = (_text(known.get(names.prefix + option)) for option in options if option)
        return next((each for each in found if each is not None), None)

    def number(name: str) -> int | None:
        return _number(known.get(names.prefix + name), binary=names.binary) if name else None

    return DeadLetter(
        kind=kind,
        topic=text(names.topic),
        partition=number(names.partition),
        offset=number(names.offset),
        error=text(*names.error),
        message=text(*names.message),
        timestamp_ms=number(names.timestamp),
        stage=text(names.stage),
        source=text(names.source),
        resends=_resends(known),
    )


def _quarantined(known: Mapping[str, bytes | None], value: bytes | None) -> DeadLetter | None:
    """Records that a query could not decode: a header `error`, or the columns as JSON."""
    error = _text(known.get("error")) or ""
    raw = None
    if not _QUARANTINE_ERROR.match(error):
        columns = _columns(value)
        if columns is None:
            return None
        error, raw = columns
    return DeadLetter(
        kind=LetterKind.QUARANTINE,
        topic=_text(known.get("topic")),
        partition=_number(known.get("partition"), binary=False),
        offset=_number(known.get("offset"), binary=False),
        error=None,
        message=error,
        resends=_resends(known),
        raw=raw,
    )


def _columns(value: bytes | None) -> tuple[str, RawRecord] | None:
    """The columns `_error` and `_raw` in a value that Spark wrote with to_json."""
    if value is None or not value.startswith(b"{") or b'"_error"' not in value:
        return None
    try:
        found = json.loads(value)
        error, raw = found.get("_error"), found.get("_raw")
        if not isinstance(error, str) or not isinstance(raw, dict):
            return None
        return error, RawRecord(_decoded(raw.get("key")), _decoded(raw.get("value")))
    except (ValueError, binascii.Error):
        return None


def _decoded(text: object) -> bytes | None:
    return base64.b64decode(text, validate=True) if isinstance(text, str) else None


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def _number(value: bytes | None, *, binary: bool) -> int | None:
    if value is None:
        return None
    # Always text: four or eight digits read as an integer would be an implausible number.
    if re.fullmatch(rb"-?\d{1,19}", value):
        return int(value)
    return int.from_bytes(value, "big", signed=True) if binary and len(value) in (4, 8) else None


def _resends(known: Mapping[str, bytes | None]) -> int:
    return max(_number(known.get(RESEND_COUNT), binary=False) or 0, 0)


_NUMBERS = re.compile(r"\d+")
_IDS = re.compile(r"\b(?:0x)?[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}\b|\b0x[0-9a-f]+\b", re.I)


def group_of(letter: DeadLetter | None) -> LetterGroup:
    """The properties that dead letters of one cause share; numbers and ids are ignored."""
    if letter is None:
        return LetterGroup(None, None, None, None)
    message = letter.message
    if message is not None:
        first_line = message.strip().partition("\n")[0]
        message = _NUMBERS.sub("#", _IDS.sub("#", first_line))[:MESSAGE_LENGTH]
    return LetterGroup(letter.kind, letter.topic, letter.error, message)


def plan_resend(
    letters: Sequence[StoredLetter],
    partition_counts: Mapping[str, int],
    *,
    target: str | None = None,
    most_resends: int = MOST_RESENDS,
) -> ResendPlan:
    """The plan to send dead letters to `target`, or each to its original topic.

    `partition_counts` has the topics that exist. A record goes to its former partition if its
    topic has that; otherwise its key decides. A dead letter that came back too often is skipped.
    """
    resends: list[Resend] = []
    refused: list[RefusedLetter] = []
    for letter in letters:
        found = read_dead_letter(letter.headers, letter.value)
        topic = target or (None if found is None else found.topic)
        count = found.resends if found else _resends(dict(letter.headers))
        if topic is None:
            reason = "its headers do not name the topic that it came from"
        elif topic not in partition_counts:
            reason = f"topic {topic!r} does not exist"
        elif topic == letter.topic:
            reason = f"topic {topic!r} is the dead-letter topic itself"
        elif count >= most_resends:
            reason = f"it was sent back {count} times and came back each time"
        else:
            record = _original(letter, found, count, topic, partition_counts[topic])
            resends.append(Resend(letter, topic, record))
            continue
        refused.append(RefusedLetter(letter, reason))
    return ResendPlan(tuple(resends), tuple(refused))


def _original(
    letter: StoredLetter, found: DeadLetter | None, count: int, topic: str, partitions: int
) -> NewRecord:
    """The record as it was, with the headers that count how often it is sent back."""
    key, value, partition = letter.key, letter.value, None
    if found is not None:
        if found.raw is not None:
            key, value = found.raw.key, found.raw.value
        if found.topic == topic and found.partition is not None and found.partition < partitions:
            partition = found.partition
    origin = f"{letter.topic}/{letter.partition}/{letter.offset}"
    headers = tuple(
        (name, content) for name, content in letter.headers if not _of_failure(name, found)
    )
    counted = ((RESEND_COUNT, b"%d" % (count + 1)), (RESEND_FROM, origin.encode()))
    return NewRecord(key, value, headers + counted, partition)


def _of_failure(name: str, found: DeadLetter | None) -> bool:
    """Whether a header belongs to the dead letter and not to the record as it was."""
    if name in (RESEND_COUNT, RESEND_FROM):
        return True
    if found is None:
        return False
    if found.kind is LetterKind.QUARANTINE:
        return name in _QUARANTINE_HEADERS
    return _belongs(found.kind, name)
