"""Forecasts of unread records that retention deletes, by group, for any Kafka cluster.

Kafka deletes whole segments, and no response contains their bounds. So each time is the earliest
possible one: the record at the committed offset may live longer if newer records share its segment.
Limits in bytes and records become times through the rate of the last hour, an estimate.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.admin.group_view import GroupView
from headrace.admin.record_times import Gap, RecordTime, RecordTimes
from headrace.admin.topic_sizes import (
    BY_RECORDS,
    BY_SIZE,
    BY_TIME,
    RETENTION_CONFIGS,
    retention_settings,
)
from headrace.client.brokers import partition_sizes
from headrace.client.cluster import Cluster
from headrace.client.configs import topic_configs
from headrace.client.offsets import EARLIEST, LATEST, FoundOffset, available_offsets
from headrace.settings import LogSettings
from headrace.types import TopicPartition

RATE_SPAN_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """The data of a forecast for one partition; unknown values are None."""

    begin: int
    end: int
    size_bytes: int | None
    hour_ago: int | None
    """The offset an hour ago."""
    settings: LogSettings

    @property
    def records_per_ms(self) -> float:
        """The rate of the last hour; 0 if it is unknown."""
        if self.hour_ago is None:
            return 0.0
        return max(self.end - max(self.hour_ago, self.begin), 0) / RATE_SPAN_MS


@dataclass(frozen=True, slots=True)
class RetentionForecast:
    """The unread records of a group in a partition, and when retention deletes the first one."""

    group: str
    topic: str
    partition: int
    committed: int
    unread: int
    """Offsets that exist and are not read."""
    lost: int
    """Offsets that were deleted before they were read."""
    next_record: RecordTime
    limit: str | None = None
    """The setting that deletes first; None if nothing is deleted by the settings."""
    left_ms: int | None = None
    """Time until the first unread record can be deleted; None if it is unknown."""
    estimated: bool = False
    """Whether `left_ms` is computed from the rate of the last hour."""
    held: bool = False
    """Whether retention.hold.groups names the group, so that the broker keeps its records."""


@dataclass(frozen=True, slots=True)
class RetentionForecasts:
    """The forecasts, the most urgent first, and the partitions without one."""

    rows: tuple[RetentionForecast, ...]
    unknown: tuple[TopicPartition, ...]
    """Partitions that groups have read, and whose offsets or settings no broker has returned."""


def retention_forecast(
    cluster: Cluster, views: Sequence[GroupView], times: RecordTimes, now_ms: int
) -> RetentionForecasts:
    """All partitions of which a group has unread or lost records."""
    rows = [
        (view.description.name, TopicPartition(row.topic, row.partition), row.committed)
        for view in views
        for row in view.partitions
        if row.committed is not None
    ]
    facts = _facts(cluster, {at for _, at, _ in rows}, now_ms)
    found = [
        forecast
        for group, at, committed in rows
        if at in facts
        if (forecast := _unread(group, at, committed, facts[at])) is not None
    ]
    with_times = _with_times(cluster, found, facts, times)
    forecasts = [
        forecast_partition(each, facts[_place(each)], now_ms)
        for each in with_times
        # Transaction markers are not lost records.
        if each.unread or each.lost
    ]
    unknown = sorted({at for _, at, _ in rows if at not in facts})
    return RetentionForecasts(tuple(sorted(forecasts, key=_urgency)), tuple(unknown))


def _place(forecast: RetentionForecast) -> TopicPartition:
    return TopicPartition(forecast.topic, forecast.partition)


def _urgency(forecast: RetentionForecast) -> tuple[int, int, str, str, int]:
    place = (forecast.group, forecast.topic, forecast.partition)
    if forecast.left_ms is None:
        return (1 if forecast.lost else 2, 0, *place)
    return (0, forecast.left_ms, *place)


def _unread(
    group: str, at: TopicPartition, committed: int, facts: PartitionFacts
) -> RetentionForecast | None:
    lost = max(facts.begin - committed, 0)
    unread = max(facts.end - max(committed, facts.begin), 0)
    if not lost and not unread:
        return None
    unknown = RecordTime(None, Gap.EMPTY)
    return RetentionForecast(group, *at, committed, unread, lost, unknown)


def _with_times(
    cluster: Cluster,
    found: Sequence[RetentionForecast],
    facts: Mapping[TopicPartition, PartitionFacts],
    times: RecordTimes,
) -> Iterator[RetentionForecast]:
    """The forecasts with the time of the first unread record, with one request for each round."""
    waiting = [each for each in found if each.unread]
    yield from (each for each in found if not each.unread)
    while waiting:
        positions: dict[TopicPartition, int] = {}
        for each in waiting:
            at = _place(each)
            positions.setdefault(at, max(each.committed, facts[at].begin))
        looked_up = times.look_up(cluster, positions)
        rest = []
        for each in waiting:
            at = _place(each)
            if max(each.committed, facts[at].begin) == positions[at]:
                unread = 0 if looked_up[at].nothing_follows else each.unread
                yield replace(each, next_record=looked_up[at], unread=unread)
            else:
                rest.append(each)
        waiting = rest


def forecast_partition(
    forecast: RetentionForecast, facts: PartitionFacts, now_ms: int
) -> RetentionForecast:
    """When the first unread record can be deleted, and by which setting."""
    settings = facts.settings
    if not forecast.unread or not settings.cleanup_policy & {"delete", "consumed"}:
        return forecast
    limits = list(_limits(forecast, facts, now_ms))
    known = [(left_ms, limit) for limit, left_ms in limits if left_ms is not None]
    held = forecast.group in settings.retention_hold_groups
    if not known:
        return replace(forecast, limit=limits[0][0] if limits else None, held=held)
    left_ms, limit = min(known)
    return replace(
        forecast, limit=limit, left_ms=max(left_ms, 0), estimated=limit != BY_TIME, held=held
    )


def _limits(
    forecast: RetentionForecast, facts: PartitionFacts, now_ms: int
) -> Iterator[tuple[str, int | None]]:
    """Each setting that deletes records, and the time until it reaches the first unread one."""
    settings, unread = facts.settings, forecast.unread
    if settings.retention_ms >= 0:
        at_ms = forecast.next_record.timestamp_ms
        yield BY_TIME, None if at_ms is None else at_ms + settings.retention_ms - now_ms
    if settings.retention_bytes >= 0:
        if facts.size_bytes is None:
            yield BY_SIZE, None
        else:
            bytes_each = facts.size_bytes / (facts.end - facts.begin)
            left_records = settings.retention_bytes / max(bytes_each, 1) - unread
            yield BY_SIZE, _time_for(left_records, facts)
    if settings.retention_messages >= 0:
        yield BY_RECORDS, _time_for(settings.retention_messages - unread, facts)


def _time_for(records: float, facts: PartitionFacts) -> int | None:
    """The time until a number of records arrives; None without a rate."""
    if records <= 0:
        return 0
    return round(records / facts.records_per_ms) if facts.records_per_ms else None


def _facts(
    cluster: Cluster, partitions: set[TopicPartition], now_ms: int
) -> dict[TopicPartition, PartitionFacts]:
    """Offsets, bytes and settings, with one request of each kind to each broker."""
    if not partitions:
        return {}
    begins = available_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    ends = available_offsets(cluster, dict.fromkeys(partitions, LATEST))
    hour_ago = available_offsets(cluster, dict.fromkeys(partitions, now_ms - RATE_SPAN_MS))
    by_topic: dict[str, list[int]] = {}
    for at in partitions:
        by_topic.setdefault(at.topic, []).append(at.partition)
    brokers = cluster.retry("listing brokers", cluster.brokers)
    sizes = partition_sizes(cluster, brokers, by_topic)
    configs = topic_configs(cluster, by_topic, RETENTION_CONFIGS)
    settings = {name: retention_settings(found) for name, found in configs.items()}
    return {
        at: PartitionFacts(
            begins[at].offset,
            ends[at].offset,
            sizes.get(at),
            _offset(hour_ago.get(at), ends[at].offset),
            settings[at.topic],
        )
        for at in partitions
        if at in begins and at in ends and at.topic in settings
    }


def _offset(found: FoundOffset | None, end: int) -> int | None:
    """No record is newer: nothing has arrived since."""
    if found is None:
        return None
    return end if found.offset < 0 else found.offset
