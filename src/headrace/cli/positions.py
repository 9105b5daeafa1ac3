"""Where to start reading: what `--from` means, and the offsets that a cluster gives for it."""

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from headrace.cli.failures import bad_usage, not_found

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, OffsetSpec

    from headrace.cli.client import Cluster

# Offsets this large do not occur, while every time in milliseconds since 2001 is larger.
SMALLEST_TIMESTAMP = 10**12
# The library asks again by itself for records, but not for offsets.
LEADER_MOVED = {"NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "FENCED_LEADER_EPOCH"}
ELECTION_S = 5.0
UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class Beginning:
    """The oldest record that is still there."""


@dataclass(frozen=True, slots=True)
class End:
    """Only what comes from now on."""


@dataclass(frozen=True, slots=True)
class At:
    """The same offset in every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class Last:
    """So many records before the end of every partition."""

    count: int


@dataclass(frozen=True, slots=True)
class Since:
    """The first record that is not older."""

    timestamp_ms: int


Start: TypeAlias = Beginning | End | At | Last | Since


def parse_start(text: str, now_ms: int | None = None) -> Start:
    """`beginning`, `end`, `1200`, `-10`, `-15m`, `@1700000000000`, `2026-01-31T12:00`."""
    if text in ("beginning", "earliest", "start"):
        return Beginning()
    if text in ("end", "latest"):
        return End()
    if relative := re.fullmatch(r"-(\d+)([smhd])", text):
        now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        return Since(now - int(relative[1]) * UNITS_MS[relative[2]])
    if re.fullmatch(r"-\d+", text):
        return Last(-int(text))
    if text.isdecimal() and int(text) < SMALLEST_TIMESTAMP:
        return At(int(text))
    return Since(parse_time(text))


def parse_time(text: str) -> int:
    """A moment in milliseconds: a number, `@number`, or ISO 8601 (local time without a zone)."""
    digits = text.removeprefix("@")
    if digits.isdecimal():
        return int(digits)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise bad_usage(
            f"{text!r} is neither a position nor a time",
            "Use beginning, end, an offset, -N for the last N, -15m for a quarter of an hour ago, "
            "@MILLISECONDS or a time like 2026-01-31T12:00:00Z.",
        ) from None


def parse_moment(text: str) -> int:
    """A moment in milliseconds: as `parse_time` reads it, or `-15m` for that long ago."""
    start = parse_start(text) if text.startswith("-") else None
    return start.timestamp_ms if isinstance(start, Since) else parse_time(text)


def ask_offsets(
    cluster: "Cluster",
    admin: "AdminClient",
    topic: str,
    partitions: Iterable[int],
    spec: "OffsetSpec",
    *,
    committed: bool = False,
) -> dict[int, tuple[int, int]]:
    """Offset and timestamp of each partition for one question; -1 where there is none."""
    from confluent_kafka import IsolationLevel, KafkaException, TopicPartition

    from headrace.cli import client

    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    questions = {TopicPartition(topic, index): spec for index in partitions}
    deadline = time.monotonic() + ELECTION_S
    while True:
        with client.translated(cluster, f"offsets of {topic}"):
            try:
                futures = admin.list_offsets(
                    questions, isolation_level=level, request_timeout=client.ANSWER_TIMEOUT_S
                )
                answers = {asked.partition: future.result() for asked, future in futures.items()}
                break
            except KafkaException as error:
                if error.args[0].name() not in LEADER_MOVED or time.monotonic() > deadline:
                    raise
        time.sleep(0.1)
    return {index: (int(a.offset), int(a.timestamp)) for index, a in sorted(answers.items())}


def bounds(
    cluster: "Cluster",
    admin: "AdminClient",
    topic: str,
    partitions: list[int],
    *,
    committed: bool = False,
) -> dict[int, tuple[int, int]]:
    """First offset, and the offset after the last, of each partition."""
    from confluent_kafka.admin import OffsetSpec

    first = ask_offsets(cluster, admin, topic, partitions, OffsetSpec.earliest())
    last = ask_offsets(cluster, admin, topic, partitions, OffsetSpec.latest(), committed=committed)
    return {index: (first[index][0], last[index][0]) for index in partitions}


def starts(
    cluster: "Cluster",
    admin: "AdminClient",
    topic: str,
    start: Start,
    limits: Mapping[int, tuple[int, int]],
) -> dict[int, int]:
    """The offset to begin with in each partition, within what the partition holds."""
    if isinstance(start, Since):
        from confluent_kafka.admin import OffsetSpec

        spec = OffsetSpec.for_timestamp(start.timestamp_ms)
        found = ask_offsets(cluster, admin, topic, limits, spec)
        return {i: (found[i][0] if found[i][0] >= 0 else end) for i, (_, end) in limits.items()}
    if isinstance(start, Last):
        return {i: max(begin, end - start.count) for i, (begin, end) in limits.items()}
    if isinstance(start, At):
        return {i: min(max(begin, start.offset), end) for i, (begin, end) in limits.items()}
    return {i: begin if isinstance(start, Beginning) else end for i, (begin, end) in limits.items()}


def chosen_partitions(topic: str, existing: int, wanted: list[int] | None) -> list[int]:
    """The partitions to look at: those asked for, or all."""
    for index in wanted or []:
        if not 0 <= index < existing:
            raise not_found(
                f"topic {topic!r} has no partition {index}", f"It has 0 to {existing - 1}."
            )
    return sorted(set(wanted)) if wanted else list(range(existing))
