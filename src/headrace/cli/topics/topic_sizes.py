"""How large topics are and what retention deletes next: `topics sizes`.

Bytes, offsets, the oldest record's time and the settings come from any Kafka cluster. The number of
segments is in no response: with a data folder on the broker's machine the segments are counted
there, and the next deletion is computed as the broker does it.
Without the folder it is the earliest moment at which something can go.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli import client, output
from headrace.cli.client import ClusterOptions
from headrace.cli.failures import bad_usage
from headrace.cli.records import positions
from headrace.client.brokers import partition_sizes
from headrace.client.configs import describe_configs
from headrace.client.topics import TopicDescription, describe_topics
from headrace.disk import RealDisk
from headrace.log.indexes import last_time
from headrace.log.retention import LogView, Reason, decide, left_of
from headrace.settings import LogSettings, Settings, log_settings
from headrace.types import ConfigResourceType, TopicPartition

if TYPE_CHECKING:
    from headrace.client.cluster import Cluster as Connected

_LIMITS = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "retention.messages",
    "retention.hold.groups",
    "retention.hold.bytes",
)


@dataclass(frozen=True, slots=True)
class Next:
    """What goes next: by which setting, and when, or after how many more bytes or records."""

    limit: str
    due_ms: int | None = None
    missing: int | None = None
    segments: int | None = None
    bytes: int | None = None

    def text(self) -> str:
        """For a table."""
        if self.segments is not None:
            return f"{self.segments} segments, {output.size(self.bytes)} ({self.limit})"
        if self.due_ms is not None:
            return f"{output.time_text(self.due_ms)[:-4]} ({self.limit})"
        if self.missing is None:
            return f"when read ({self.limit})"
        unit = "bytes" if "bytes" in self.limit else "records"
        amount = output.size(self.missing) if unit == "bytes" else output.records(self.missing)
        return f"after {amount} more ({self.limit})" if self.missing else f"now ({self.limit})"


@dataclass(frozen=True, slots=True)
class PartitionSize:
    """One partition; unknown values are None."""

    partition: int
    bytes: int | None
    segments: int | None
    begin: int | None
    end: int | None
    oldest_ms: int | None
    next: Next | None


@dataclass(frozen=True, slots=True)
class TopicSize:
    """One topic: the sums of its partitions, and the first of what goes next."""

    topic: str
    partitions: list[PartitionSize]

    def total(self, field: str) -> int | None:
        known = [getattr(each, field) for each in self.partitions]
        found = [value for value in known if value is not None]
        return sum(found) if found else None

    @property
    def records(self) -> int | None:
        begin, end = self.total("begin"), self.total("end")
        return None if begin is None or end is None else end - begin

    @property
    def oldest_ms(self) -> int | None:
        return min((p.oldest_ms for p in self.partitions if p.oldest_ms is not None), default=None)

    @property
    def next(self) -> Next | None:
        known = [each.next for each in self.partitions if each.next is not None]
        return min(known, key=_order, default=None)

    def as_json(self) -> dict[str, object]:
        return {
            "topic": self.topic,
            "bytes": self.total("bytes"),
            "segments": self.total("segments"),
            "records": self.records,
            "oldest_ms": self.oldest_ms,
            "next": asdict(self.next) if self.next is not None else None,
            "partitions": [asdict(each) for each in self.partitions],
        }


def _order(following: Next) -> tuple[int, int]:
    """What goes now stands before what has a date, and that before what depends on others."""
    if following.segments is not None or following.missing == 0:
        return 0, -(following.bytes or 0)
    if following.due_ms is not None:
        return 1, following.due_ms
    return 2, following.missing or 0


@dataclass(frozen=True, slots=True)
class SegmentSize:
    """A segment as its files show it."""

    base_offset: int
    size: int
    newest: int

    def newest_ms(self) -> int:
        return self.newest


def look(cluster: ClusterOptions, names: Sequence[str], data_dir: Path | None) -> list[TopicSize]:
    """The named topics, or all but the cluster's own."""
    if data_dir is not None and not data_dir.is_dir():
        raise bad_usage(f"--data-dir {data_dir}: there is no such folder")
    with client.admin(cluster) as connected:
        if not names:
            known = describe_topics(connected)
            names = sorted(name for name in known if not name.startswith("__"))
        if not names:
            return []
        found = client.describe_topics(connected, names)
        partitions = {topic.name: list(topic.partitions) for topic in found}
        sizes = partition_sizes(connected, client.replica_brokers(found), partitions)
        views = []
        with output.progress() as bar:
            task = bar.add_task("topics", total=len(found), state="")
            for topic in found:
                bar.update(task, state=topic.name)
                views.append(_topic(connected, topic, sizes, data_dir))
                bar.advance(task)
    return views


def _topic(
    connected: "Connected",
    topic: TopicDescription,
    sizes: Mapping[TopicPartition, int],
    data_dir: Path | None,
) -> TopicSize:
    name, led = topic.name, topic.led
    settings = _settings(connected, name)
    bounds = positions.bounds(connected, name, led) if led else {}
    # The first record that is not from before 1970: the oldest.
    oldest = positions.ask_offsets(connected, name, led, 0) if led else {}
    now_ms = time.time_ns() // 1_000_000
    partitions = []
    for index in topic.partitions:
        size = sizes.get(TopicPartition(name, index))
        begin, end = bounds.get(index, (None, None))
        oldest_ms = oldest[index][1] if index in oldest and oldest[index][0] >= 0 else None
        segments = _segments(data_dir, f"{name}-{index}") if data_dir is not None else None
        if segments and begin is not None and end is not None:
            log = LogView(segments, begin, end, end)
            following = next_of(log, settings, now_ms)
        else:
            following = earliest(settings, size, begin, end, oldest_ms)
        partitions.append(
            PartitionSize(
                index, size, len(segments) if segments else None, begin, end, oldest_ms, following
            )
        )
    return TopicSize(name, partitions)


def _settings(connected: "Connected", topic: str) -> LogSettings:
    """The topic's own settings and those that it inherits, as far as the cluster has them."""
    configs = describe_configs(connected, ConfigResourceType.TOPIC, topic)
    told = {each.name: each.value for each in configs}
    known = {name: value for name in _LIMITS if (value := told.get(name)) is not None}
    return log_settings(Settings.parse({}), known)


def next_of(log: LogView, settings: LogSettings, now_ms: int) -> Next | None:
    """What the broker deletes at its next pass, or else when the oldest segment goes."""
    due = decide(log, settings, now_ms, {}).reasons
    if due:
        size = sum(segment.size for segment in log.segments[: len(due)])
        return Next(due[0].value, now_ms, 0, len(due), size)
    if not log.segments[0].size:
        return None
    return _nearest(left_of(log, settings, now_ms, 0), settings, now_ms)


def earliest(
    settings: LogSettings,
    size: int | None,
    begin: int | None,
    end: int | None,
    oldest_ms: int | None,
) -> Next | None:
    """When the first segment can go at the earliest, from what any cluster tells."""
    if begin is None or end is None or begin == end:
        return None
    left: list[tuple[Reason, int, int]] = []
    now_ms = time.time_ns() // 1_000_000
    if settings.retention_ms >= 0 and oldest_ms is not None:
        age_ms = now_ms - oldest_ms
        left.append((Reason.TIME, settings.retention_ms - age_ms, settings.retention_ms))
    if settings.retention_bytes >= 0 and size is not None:
        limit = settings.retention_bytes
        left.append((Reason.SIZE, limit - size, limit))
    if settings.retention_messages >= 0:
        limit = settings.retention_messages
        left.append((Reason.MESSAGES, limit - (end - begin), limit))
    return _nearest(left, settings, now_ms)


def _nearest(
    left: Sequence[tuple[Reason, int, int]], settings: LogSettings, now_ms: int
) -> Next | None:
    if not settings.cleanup_policy & {"delete", "consumed"}:
        return None
    found = [
        Next(reason.value, now_ms + amount)
        if reason is Reason.TIME
        else Next(reason.value, None, max(amount, 0))
        for reason, amount, _ in left
    ]
    if "consumed" in settings.cleanup_policy:
        found.append(Next(Reason.CONSUMED.value))
    return min(found, key=_order, default=None)


def _segments(data_dir: Path, folder: str) -> list[SegmentSize] | None:
    """The segments of a partition, oldest first; None if the folder does not hold it."""
    found = []
    for path in sorted((data_dir / folder).glob("*.log")):
        try:
            if path.stem.isdecimal():
                found.append(SegmentSize(int(path.stem), path.stat().st_size, _newest(path)))
        except FileNotFoundError:
            continue  # deleted while we look
    return found or None


def _newest(log: Path) -> int:
    """The last entry of the time index, or the time of the last write: as the broker has it."""
    disk = RealDisk()
    timestamp = last_time(disk, str(log.with_suffix(".timeindex")))
    return timestamp if timestamp > 0 else disk.modified_ms(str(log))


def show(topics: Sequence[TopicSize], *, partitions: bool) -> None:
    """A table: a row a topic, or a row a partition."""
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
        topic.next.text() if topic.next is not None else "nothing",
    )
