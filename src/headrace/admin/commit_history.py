"""The lag of groups in the past, from the records of `__consumer_offsets`.

A console has no history when it starts. The topic has the commits of the last hours with their
times, unless compaction has removed them. ListOffsets by time returns the ends of partitions then.
The user needs the right to read `__consumer_offsets`. The number of records is bounded.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.admin.lag import PastLag, PastPoint
from headrace.client.cluster import Cluster
from headrace.client.fetching import DataLoss, Fetched, FetchPlan, fetch_range
from headrace.client.offsets import COMMITTED, EARLIEST, LATEST, available_offsets
from headrace.client.topics import describe_topics
from headrace.types import TopicPartition
from headrace.wire.batch import CONTROL, TRANSACTIONAL, read_header
from headrace.wire.records import iterate

OFFSETS_TOPIC = "__consumer_offsets"
SPAN_MS = 3_600_000
POINTS = 31
MOST_RECORDS = 200_000
MAX_DECOMPRESSED_BYTES = 64 << 20
OFFSET_KEY_VERSIONS = (0, 1)
"""Keys with other versions are not those of offsets."""


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """A commit in `__consumer_offsets`; the offset is None if it was deleted."""

    group: str
    partition: TopicPartition
    offset: int | None
    time_ms: int


def past_lag(
    cluster: Cluster,
    now_ms: int,
    *,
    span_ms: int = SPAN_MS,
    points: int = POINTS,
    most_records: int = MOST_RECORDS,
) -> list[PastLag]:
    """The lag of every group at `points` times of the last `span_ms`, where it is known."""
    times = [now_ms - span_ms + span_ms * index // (points - 1) for index in range(points)]
    commits: dict[tuple[str, TopicPartition], list[CommitRecord]] = {}
    for commit in read_commits(cluster, times[0], most_records):
        commits.setdefault((commit.group, commit.partition), []).append(commit)
    ends = _ends(cluster, {at for _, at in commits}, times)
    return [
        PastLag(group, *at, tuple(_points(found, ends[at], times)))
        for (group, at), found in sorted(commits.items())
        if at in ends
    ]


def _points(
    commits: Sequence[CommitRecord], ends: Sequence[int], times_ms: Sequence[int]
) -> Iterator[PastPoint]:
    """The last commit before each time; None before the first one."""
    stamps = [commit.time_ms for commit in commits]
    before = 0
    for end, at_ms in zip(ends, times_ms, strict=True):
        count = bisect_right(stamps, at_ms)
        committed = commits[count - 1].offset if count else None
        if committed is not None:
            yield PastPoint(at_ms, committed, max(end, committed), count > before)
        before = count


def _ends(
    cluster: Cluster, partitions: set[TopicPartition], times_ms: Sequence[int]
) -> dict[TopicPartition, list[int]]:
    """The end of partitions at each time: the first offset of a newer record, or the end."""
    latest = available_offsets(cluster, dict.fromkeys(partitions, LATEST))
    ends: dict[TopicPartition, list[int]] = {at: [] for at in latest}
    for at_ms in times_ms:
        found = available_offsets(cluster, dict.fromkeys(ends, at_ms + 1))
        for at in list(ends):
            if at not in found:
                del ends[at]
            else:
                offset = found[at].offset
                ends[at].append(latest[at].offset if offset < 0 else offset)
    return ends


def read_commits(cluster: Cluster, since_ms: int, most_records: int) -> Iterator[CommitRecord]:
    """The commits since a time, by partition of the topic; the newest if there are too many."""
    topic = describe_topics(cluster, [OFFSETS_TOPIC]).get(OFFSETS_TOPIC)
    if topic is None:
        return
    partitions = [TopicPartition(OFFSETS_TOPIC, index) for index in topic.led]
    firsts = available_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    starts = available_offsets(cluster, dict.fromkeys(partitions, since_ms))
    stops = available_offsets(cluster, dict.fromkeys(partitions, LATEST), COMMITTED)
    ranges = {
        at: (max(starts[at].offset, firsts[at].offset), stops[at].offset)
        for at in partitions
        if at in firsts and at in stops and at in starts and starts[at].offset >= 0
    }
    full = {at: each for at, each in ranges.items() if each[0] < each[1]}
    share = max(most_records // max(len(full), 1), 1)
    for at, (start, stop) in full.items():
        plan = FetchPlan(at, isolation=COMMITTED)
        try:
            for fetched in fetch_range(cluster, plan, max(start, stop - share), stop):
                yield from _decoded(fetched)
        except DataLoss:  # compacted or deleted meanwhile: the history is shorter, but correct
            continue


def _decoded(fetched: Fetched) -> Iterator[CommitRecord]:
    aborted = {producer for producer, _ in fetched.aborted}
    for start, stop in zip(fetched.positions, [*fetched.positions[1:], fetched.end], strict=True):
        header = read_header(fetched.data, start)
        if header.attributes & CONTROL:
            continue
        if header.attributes & TRANSACTIONAL and header.producer_id in aborted:
            continue
        for record in iterate(fetched.data, start, stop, MAX_DECOMPRESSED_BYTES):
            commit = parse_commit(record.key, record.value, record.timestamp)
            if commit is not None:
                yield commit


def parse_commit(key: bytes | None, value: bytes | None, time_ms: int) -> CommitRecord | None:
    """The commit in a record of the topic; None if the record is another one, or malformed.

    The key: version int16, group and topic as strings (int16 length), partition int32. The value:
    version int16, offset int64, and fields that are not needed here.
    """
    try:
        (version,) = struct.unpack_from(">h", key or b"")
        if version not in OFFSET_KEY_VERSIONS or key is None:
            return None
        group, at = _string(key, 2)
        topic, at = _string(key, at)
        (partition,) = struct.unpack_from(">i", key, at)
        offset = None if value is None else int(struct.unpack_from(">hq", value)[1])
    except (struct.error, UnicodeDecodeError):
        return None
    return CommitRecord(group, TopicPartition(topic, partition), offset, time_ms)


def _string(data: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", data, at)
    return data[at + 2 : at + 2 + size].decode(), at + 2 + size
