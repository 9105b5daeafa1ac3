"""Reads the letters of a dead-letter topic, within bounds, and groups them by cause."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from headrace.admin.dead_letters import (
    LetterGroup,
    ResendPlan,
    StoredLetter,
    group_of,
    plan_resend,
    read_dead_letter,
)
from headrace.client.cluster import Cluster
from headrace.client.offsets import COMMITTED
from headrace.console.dead_letters.progress import LetterProgress, read_progress
from headrace.console.records.reading import LogBounds, PageBudget, read_bounds, read_records
from headrace.types import TopicPartition
from headrace.wire.records import Record

MOST_SCANNED = 10_000
MOST_SAMPLES = 5


@dataclass(frozen=True, slots=True)
class ResendOrder:
    """What to send back."""

    topic: str
    """The dead-letter topic."""
    target: str | None = None
    """None: each letter goes to the topic that it came from."""
    cause: str = ""
    """Id of the cause; empty for all letters."""
    from_beginning: bool = False
    """Whether letters that were sent or passed over before are looked at again."""
    rate_per_s: int = 100


@dataclass(frozen=True, slots=True)
class LetterRange:
    """The letters of a partition that are to be looked at, [start, stop)."""

    partition: int
    bounds: LogBounds
    progress: LetterProgress
    start: int


@dataclass(slots=True)
class Cause:
    """Letters with the same cause."""

    id: str
    group: LetterGroup
    count: int = 0
    newest_ms: int = -1
    samples: list[StoredLetter] = field(default_factory=list)
    """The newest ones of each partition."""


@dataclass(slots=True)
class LetterScan:
    """Letters that were read, and how many offsets there are."""

    scanned: int = 0
    total: int = 0
    stopped: str = ""
    """Why not all were read."""


def partition_counts(cluster: Cluster) -> dict[str, int]:
    """The topics of the cluster with their numbers of partitions."""
    found = cluster.retry("listing topics", lambda: cluster.topics(None))
    return {name: len(each.leaders) for name, each in found.items()}


def letter_ranges(cluster: Cluster, topic: str, *, from_beginning: bool) -> list[LetterRange]:
    """What is left of each partition, or all of it."""
    leaders = cluster.existing_topics([topic])[topic].leaders
    partitions = [index for index, leader in enumerate(leaders) if leader >= 0]
    bounds = read_bounds(cluster, topic, partitions, COMMITTED)
    progress = read_progress(cluster, topic, partitions)
    found = []
    for index, each in bounds.items():
        known = progress.get(index) or LetterProgress(each.begin)
        # Retention may have deleted letters that were not sent, or the topic was created again.
        start = each.begin if from_beginning else min(max(known.position, each.begin), each.end)
        found.append(LetterRange(index, each, known, start))
    return found


def stored(topic: str, partition: int, record: Record) -> StoredLetter:
    return StoredLetter(topic, partition, record.offset, record.key, record.value, record.headers)


def cause_id(group: LetterGroup) -> str:
    """A short name of a cause that stays the same after a restart."""
    parts = (str(group.kind), group.topic, group.error, group.message)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def cause_of(letter: StoredLetter) -> tuple[str, LetterGroup]:
    group = group_of(read_dead_letter(letter.headers, letter.value))
    return cause_id(group), group


def _letters(
    cluster: Cluster, topic: str, ranges: Sequence[LetterRange], scan: LetterScan
) -> Iterator[tuple[StoredLetter, int]]:
    budget = PageBudget()
    scan.total = sum(each.bounds.end - each.start for each in ranges)
    for each in ranges:
        place = TopicPartition(topic, each.partition)
        for record, _ in read_records(
            cluster, place, each.start, each.bounds.end, budget, COMMITTED
        ):
            if scan.scanned >= MOST_SCANNED:
                scan.stopped = f"{MOST_SCANNED} letters were read"
                return
            scan.scanned += 1
            if record.offset not in each.progress.sent:
                yield stored(topic, each.partition, record), record.timestamp
        if budget.exhausted:
            scan.stopped = budget.exhausted
            return


def find_causes(
    cluster: Cluster, topic: str, *, from_beginning: bool
) -> tuple[list[Cause], LetterScan]:
    """The causes of the letters, the most frequent first."""
    scan = LetterScan()
    found: dict[str, Cause] = {}
    ranges = letter_ranges(cluster, topic, from_beginning=from_beginning)
    for letter, timestamp_ms in _letters(cluster, topic, ranges, scan):
        key, group = cause_of(letter)
        cause = found.setdefault(key, Cause(key, group))
        cause.count += 1
        cause.newest_ms = max(cause.newest_ms, timestamp_ms)
        cause.samples.append(letter)
        del cause.samples[:-MOST_SAMPLES]
    return sorted(found.values(), key=lambda each: (-each.count, each.id)), scan


@dataclass(frozen=True, slots=True)
class DryRun:
    """What an order would do, as far as it was looked at."""

    plan: ResendPlan
    passed_over: int
    """Letters of other causes."""
    scan: LetterScan


def dry_run(cluster: Cluster, order: ResendOrder) -> DryRun:
    """Plans an order; nothing is sent or committed."""
    scan = LetterScan()
    ranges = letter_ranges(cluster, order.topic, from_beginning=order.from_beginning)
    letters = [letter for letter, _ in _letters(cluster, order.topic, ranges, scan)]
    chosen = [each for each in letters if wanted(order, each)]
    plan = plan_resend(chosen, partition_counts(cluster), target=order.target)
    return DryRun(plan, len(letters) - len(chosen), scan)


def wanted(order: ResendOrder, letter: StoredLetter) -> bool:
    return not order.cause or cause_of(letter)[0] == order.cause
