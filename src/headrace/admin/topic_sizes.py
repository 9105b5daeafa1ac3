"""The sizes of topics, and when retention can delete records next, for any Kafka cluster.

Bytes, offsets, the time of the oldest record and the settings come from the cluster. No
response contains segments, so the time of the next deletion is the earliest possible one.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice

from headrace.admin.topics import existing_topics, replica_brokers
from headrace.client.brokers import partition_sizes
from headrace.client.cluster import Cluster
from headrace.client.configs import topic_configs
from headrace.client.offsets import EARLIEST, LATEST, FoundOffset, find_offsets
from headrace.client.topics import TopicDescription, describe_topics
from headrace.settings import LogSettings, Settings, log_settings
from headrace.types import TopicPartition

RETENTION_CONFIGS = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "retention.messages",
    "retention.hold.groups",
    "retention.hold.bytes",
)
BY_TIME, BY_SIZE, BY_RECORDS = "retention.ms", "retention.bytes", "retention.messages"
BY_CONSUMPTION = "consumed.groups"
TOPICS_AT_ONCE = 500
OLDEST = 0
"""ListOffsets with this time finds the first record that is not from before 1970."""


@dataclass(frozen=True, slots=True)
class NextDeletion:
    """The next deletion: its setting, and the time, bytes or records until then."""

    limit: str
    due_ms: int | None = None
    missing: int | None = None
    segments: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionSize:
    """One partition; unknown values are None."""

    partition: int
    bytes: int | None
    segments: int | None
    begin: int | None
    end: int | None
    oldest_ms: int | None
    next: NextDeletion | None


@dataclass(frozen=True, slots=True)
class TopicSize:
    """One topic: the sums of its partitions, and its next deletion."""

    topic: str
    partitions: list[PartitionSize]
    settings: LogSettings = field(default_factory=LogSettings)

    def total(self, name: str) -> int | None:
        known = [getattr(each, name) for each in self.partitions]
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
    def next(self) -> NextDeletion | None:
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


def _order(following: NextDeletion) -> tuple[int, int]:
    """Deletions that are due come first, then those with a time, then all others."""
    if following.segments is not None or following.missing == 0:
        return 0, -(following.bytes or 0)
    if following.due_ms is not None:
        return 1, following.due_ms
    return 2, following.missing or 0


def topic_sizes(
    cluster: Cluster,
    names: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> list[TopicSize]:
    """The named topics, or all except internal ones.

    `progress` is called with the number of topics that are done, and the total.
    """
    if not names:
        known = describe_topics(cluster)
        names = sorted(name for name in known if not name.startswith("__"))
    if not names:
        return []
    found = existing_topics(cluster, names)
    sizes: list[TopicSize] = []
    rest = iter(found)
    while batch := list(islice(rest, TOPICS_AT_ONCE)):
        sizes += _sizes(cluster, batch)
        if progress is not None:
            progress(len(sizes), len(found))
    return sizes


def _sizes(cluster: Cluster, topics: Sequence[TopicDescription]) -> list[TopicSize]:
    """A batch of topics, with one request of each kind to each broker."""
    partitions = {topic.name: list(topic.partitions) for topic in topics}
    bytes_of = partition_sizes(cluster, replica_brokers(topics), partitions)
    configs = topic_configs(cluster, partitions, RETENTION_CONFIGS)
    led = [TopicPartition(topic.name, index) for topic in topics for index in topic.led]
    begins = find_offsets(cluster, dict.fromkeys(led, EARLIEST))
    ends = find_offsets(cluster, dict.fromkeys(led, LATEST))
    oldest = find_offsets(cluster, dict.fromkeys(led, OLDEST))
    now_ms = time.time_ns() // 1_000_000
    found = []
    for topic in topics:
        settings = retention_settings(configs.get(topic.name, {}))
        rows = []
        for at in (TopicPartition(topic.name, index) for index in topic.partitions):
            begin, end = _offset(begins.get(at)), _offset(ends.get(at))
            first = oldest.get(at)
            oldest_ms = first.timestamp_ms if first is not None and first.offset >= 0 else None
            size = bytes_of.get(at)
            following = earliest_deletion(settings, size, begin, end, oldest_ms, now_ms)
            rows.append(PartitionSize(at.partition, size, None, begin, end, oldest_ms, following))
        found.append(TopicSize(topic.name, rows, settings))
    return found


def _offset(found: FoundOffset | None) -> int | None:
    return None if found is None else found.offset


def retention_settings(configs: Mapping[str, str | None]) -> LogSettings:
    """The settings of the topic, its own and inherited, where the cluster returns them."""
    known = {name: value for name in RETENTION_CONFIGS if (value := configs.get(name)) is not None}
    return log_settings(Settings.parse({}), known)


def earliest_deletion(
    settings: LogSettings,
    size: int | None,
    begin: int | None,
    end: int | None,
    oldest_ms: int | None,
    now_ms: int,
) -> NextDeletion | None:
    """The earliest time at which the first segment can be deleted."""
    if begin is None or end is None or begin == end:
        return None
    left: list[tuple[str, int]] = []
    if settings.retention_ms >= 0 and oldest_ms is not None:
        left.append((BY_TIME, settings.retention_ms - (now_ms - oldest_ms)))
    if settings.retention_bytes >= 0 and size is not None:
        left.append((BY_SIZE, settings.retention_bytes - size))
    if settings.retention_messages >= 0:
        left.append((BY_RECORDS, settings.retention_messages - (end - begin)))
    return nearest_deletion(left, settings, now_ms)


def nearest_deletion(
    left: Sequence[tuple[str, int]], settings: LogSettings, now_ms: int
) -> NextDeletion | None:
    """The limit that is reached first; `left` has how much of each setting is left."""
    if not settings.cleanup_policy & {"delete", "consumed"}:
        return None
    found = [
        NextDeletion(limit, now_ms + amount)
        if limit == BY_TIME
        else NextDeletion(limit, None, max(amount, 0))
        for limit, amount in left
    ]
    if "consumed" in settings.cleanup_policy:
        found.append(NextDeletion(BY_CONSUMPTION))
    return min(found, key=_order, default=None)
