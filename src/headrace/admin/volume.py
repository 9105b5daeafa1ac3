"""The number of records of a topic over time, by ListOffsets with times, for charts.

The figures are differences of offsets, so they also count transaction markers and records that
were compacted away. At most one request goes to each leader for each point in time; a span in
which no offset changes is not divided further.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.admin.errors import InvalidRequest
from headrace.admin.topics import existing_topics
from headrace.client.cluster import Cluster
from headrace.client.offsets import LATEST, available_offsets
from headrace.types import TopicPartition

MOST_POINTS = 500


@dataclass(frozen=True, slots=True)
class TopicVolume:
    """The offsets of each partition at points in time, and the records between them.

    `offsets[partition][i]` is the first offset whose record is not older than `times_ms[i]`, or the
    end of the partition. `records[i]` is the number of offsets between the points i and i + 1 in
    all partitions. Partitions whose leader did not answer are in `missing`.
    """

    topic: str
    times_ms: tuple[int, ...]
    offsets: Mapping[int, tuple[int, ...]]
    records: tuple[int, ...]
    missing: tuple[int, ...]


@dataclass(slots=True)
class _Search:
    """One partition: its end, its offsets by point, and the spans that are not divided yet."""

    end: int
    offsets: dict[int, int] = field(default_factory=dict)
    spans: list[tuple[int, int]] = field(default_factory=list)

    def next_point(self) -> int | None:
        """The middle of the next span whose ends differ; spans with equal ends are done."""
        while self.spans:
            low, high = self.spans.pop()
            if self.offsets[low] == self.offsets[high]:
                self.offsets |= dict.fromkeys(range(low + 1, high), self.offsets[low])
            elif high - low > 1:
                middle = (low + high) // 2
                # The middle is known when the next span is looked at.
                self.spans += [(middle, high), (low, middle)]
                return middle
        return None


def topic_volume(
    cluster: Cluster, topic: str, start_ms: int, stop_ms: int, points: int
) -> TopicVolume:
    """The volume between two times, at `points` equidistant times including both."""
    if not 2 <= points <= MOST_POINTS or stop_ms <= start_ms:
        raise InvalidRequest(
            f"cannot divide {start_ms} to {stop_ms} into {points} points",
            f"The end has to be after the start, with 2 to {MOST_POINTS} points.",
        )
    times = tuple(start_ms + (stop_ms - start_ms) * i // (points - 1) for i in range(points))
    (described,) = existing_topics(cluster, [topic])
    partitions = [TopicPartition(topic, index) for index in described.partitions]
    ends = available_offsets(cluster, dict.fromkeys(partitions, LATEST))
    searches = {at: _Search(found.offset) for at, found in sorted(ends.items())}
    last = points - 1
    for point in (0, last):
        _ask(cluster, searches, dict.fromkeys(searches, point), times)
    for search in searches.values():
        if last in search.offsets and 0 in search.offsets:
            search.spans.append((0, last))
    while wanted := _next_points(searches):
        _ask(cluster, searches, wanted, times)
    found = {
        at.partition: tuple(search.offsets[point] for point in range(points))
        for at, search in searches.items()
        if len(search.offsets) == points
    }
    return TopicVolume(
        topic,
        times,
        found,
        tuple(sum(row[point + 1] - row[point] for row in found.values()) for point in range(last)),
        tuple(at.partition for at in partitions if at.partition not in found),
    )


def _next_points(searches: Mapping[TopicPartition, _Search]) -> dict[TopicPartition, int]:
    points = {at: search.next_point() for at, search in searches.items()}
    return {at: point for at, point in points.items() if point is not None}


def _ask(
    cluster: Cluster,
    searches: Mapping[TopicPartition, _Search],
    wanted: Mapping[TopicPartition, int],
    times_ms: tuple[int, ...],
) -> None:
    """The offset of one point of each partition; partitions without a response are dropped."""
    found = available_offsets(cluster, {at: times_ms[point] for at, point in wanted.items()})
    for at, point in wanted.items():
        search = searches[at]
        if at not in found:
            search.spans.clear()
            continue
        # Records that arrive meanwhile are after the common end of all points.
        offset = found[at].offset
        search.offsets[point] = search.end if offset < 0 else min(offset, search.end)
