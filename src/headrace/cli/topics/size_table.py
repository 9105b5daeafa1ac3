"""The output of `topics sizes`; with a broker's data folder also segments and the next deletion.

No response has the number of segments. In a data folder on this machine the segments are counted,
and the next deletion is computed like in the broker.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.admin.topic_sizes import (
    NextDeletion,
    PartitionSize,
    TopicSize,
    nearest_deletion,
    topic_sizes,
)
from headrace.cli import client, output
from headrace.cli.client import ClusterOptions
from headrace.cli.failures import bad_usage
from headrace.disk import RealDisk
from headrace.log.indexes import last_time
from headrace.log.retention import LogView, decide, left_of
from headrace.settings import LogSettings


@dataclass(frozen=True, slots=True)
class SegmentSize:
    """A segment, read from its files."""

    base_offset: int
    size: int
    newest: int

    def newest_ms(self) -> int:
        return self.newest


def look(cluster: ClusterOptions, names: Sequence[str], data_dir: Path | None) -> list[TopicSize]:
    """The named topics, or all except internal ones."""
    if data_dir is not None and not data_dir.is_dir():
        raise bad_usage(f"--data-dir {data_dir}: the folder does not exist")
    with client.admin(cluster) as connected, output.progress() as bar:
        task = bar.add_task("topics", total=None, state="")
        found = topic_sizes(
            connected, names, lambda done, total: bar.update(task, completed=done, total=total)
        )
    if data_dir is None:
        return found
    now_ms = time.time_ns() // 1_000_000
    return [
        replace(
            topic,
            partitions=[_with_segments(topic, each, data_dir, now_ms) for each in topic.partitions],
        )
        for topic in found
    ]


def _with_segments(
    topic: TopicSize, partition: PartitionSize, data_dir: Path, now_ms: int
) -> PartitionSize:
    segments = _segments(data_dir, f"{topic.topic}-{partition.partition}")
    if segments is None:
        return partition
    begin, end = partition.begin, partition.end
    if begin is None or end is None:
        return replace(partition, segments=len(segments))
    following = next_of(LogView(segments, begin, end, end), topic.settings, now_ms)
    return replace(partition, segments=len(segments), next=following)


def next_of(log: LogView, settings: LogSettings, now_ms: int) -> NextDeletion | None:
    """What the broker deletes at its next pass, or when the oldest segment is deleted."""
    due = decide(log, settings, now_ms, {}).reasons
    if due:
        size = sum(segment.size for segment in log.segments[: len(due)])
        return NextDeletion(due[0].value, now_ms, 0, len(due), size)
    if not log.segments[0].size:
        return None
    left = [(reason.value, amount) for reason, amount, _ in left_of(log, settings, now_ms, 0)]
    return nearest_deletion(left, settings, now_ms)


def _segments(data_dir: Path, folder: str) -> list[SegmentSize] | None:
    """The segments of a partition, oldest first; None if the folder does not have it."""
    found = []
    for path in sorted((data_dir / folder).glob("*.log")):
        try:
            if path.stem.isdecimal():
                found.append(SegmentSize(int(path.stem), path.stat().st_size, _newest(path)))
        except FileNotFoundError:
            continue  # deleted while we look
    return found or None


def _newest(log: Path) -> int:
    """The last entry of the time index, or the time of the last write, as in the broker."""
    disk = RealDisk()
    timestamp = last_time(disk, str(log.with_suffix(".timeindex")))
    return timestamp if timestamp > 0 else disk.modified_ms(str(log))


def deletion_text(following: NextDeletion) -> str:
    """The next deletion as text for a table."""
    limit = following.limit
    if following.segments is not None:
        return f"{following.segments} segments, {output.size(following.bytes)} ({limit})"
    if following.due_ms is not None:
        return f"{output.time_text(following.due_ms)[:-4]} ({limit})"
    if following.missing is None:
        return f"when read ({limit})"
    missing = following.missing
    amount = output.size(missing) if "bytes" in limit else output.records(missing)
    return f"after {amount} more ({limit})" if missing else f"now ({limit})"


def show(topics: Sequence[TopicSize], *, partitions: bool) -> None:
    """Print a table with one row per topic or per partition."""
    numbers = ("Partition", "Size", "Segments", "Records")
    head = ("Size", "Segments", "Records", "Oldest record", "Deleted next")
    if partitions:
        output.print_table(
            ("Topic", "Partition", *head),
            [
                (topic.topic, str(part.partition), *_cells(TopicSize(topic.topic, [part])))
                for topic in topics
                for part in topic.partitions
            ],
            numbers=numbers,
        )
    else:
        rows = [(topic.topic, *_cells(topic)) for topic in topics]
        output.print_table(("Topic", *head), rows, numbers=numbers)


def _cells(topic: TopicSize) -> tuple[str, ...]:
    return (
        output.size(topic.total("bytes")),
        output.number(topic.total("segments")),
        output.number(topic.records),
        output.time_text(topic.oldest_ms)[:-4] if topic.oldest_ms is not None else "-",
        deletion_text(topic.next) if topic.next is not None else "nothing",
    )
