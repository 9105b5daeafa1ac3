"""Recurring retention: checks every partition, deletes segments that are due, warns of slow groups.

`log/retention.py` decides which segments are due. A pass over ten thousand partitions is divided
into slices, between which the event loop serves clients; a worker removes the files of deleted
segments.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import TypeAlias

from headrace.broker.metrics.values import Metrics
from headrace.clock import Clock
from headrace.errors import KafkaError
from headrace.log.retention import NOTHING_READ, Reason, Risk, decide, risks
from headrace.replication.partition import Partition
from headrace.replication.replicas import Replicas
from headrace.types import TopicPartition

CommittedOffsets: TypeAlias = Mapping[str, Mapping[str, Mapping[int, int]]]
"""By topic, group and partition: the offset that the group reads next."""

FindCommitted: TypeAlias = Callable[[Collection[str]], Awaitable[CommittedOffsets]]
"""Returns the offsets of all groups in these topics; KafkaError if some are unknown."""

logger = logging.getLogger(__name__)

_HOUR_S = 3600
_SLICE_S = 0.002
_PAUSE_S = 0.005
_SEGMENTS_AT_ONCE = 25
"""Segments of a partition deleted in one slice: after a restart their indexes are read."""
_LEFT_METRICS = {
    Reason.TIME: "headrace_retention_left_seconds",
    Reason.SIZE: "headrace_retention_left_bytes",
    Reason.HOLD: "headrace_retention_left_bytes",
    Reason.MESSAGES: "headrace_retention_left_records",
}
_LEFT_GAUGES = tuple(dict.fromkeys(_LEFT_METRICS.values()))


class Retention:
    """Applies retention to all partitions of this broker, one pass at a time."""

    def __init__(
        self, replicas: Replicas, clock: Clock, committed: FindCommitted, metrics: Metrics
    ) -> None:
        self._replicas = replicas
        self._clock = clock
        self._committed = committed
        self._metrics = metrics
        self._at_risk: set[tuple[str, TopicPartition]] = set()
        # Partitions that are not opened and have no records, so they need no check.
        self._empty: set[Partition] = set()

    async def look(self) -> None:
        """Make one pass over all partitions."""
        began_s = slice_s = self._clock.monotonic()
        # Only leaders: a follower deletes what its leader has deleted.
        partitions = [one for one in self._replicas.all_partitions() if one.leads]
        committed = await self._find_committed(
            {each.name.topic for each in partitions if _limited(each)}
        )
        at_risk: dict[tuple[str, TopicPartition], Risk] = {}
        held: dict[TopicPartition, int] = {}
        for partition in partitions:
            if self._clock.monotonic() - slice_s > _SLICE_S:
                await asyncio.sleep(_PAUSE_S)
                slice_s = self._clock.monotonic()
            try:
                if not partition.closed and self._worth_opening(partition):
                    await self._look_at(partition, committed, at_risk, held)
            except Exception as error:  # the other partitions are checked
                known = isinstance(error, KafkaError | OSError)
                logger.error(
                    "retention of %s failed: %s", partition.name, error,
                    exc_info=None if known else error,
                )  # fmt: skip
        self._tell(at_risk, held)
        self._metrics.add("headrace_retention_passes_total", 1)
        self._metrics.set("headrace_retention_pass_seconds", self._clock.monotonic() - began_s)

    async def _find_committed(self, topics: Collection[str]) -> CommittedOffsets:
        try:
            return await self._committed(topics)
        except KafkaError as error:
            # No offset counts as read, so no segment is deleted that a group may still need.
            logger.info("the groups' offsets are not available to retention yet: %s", error)
            return {}

    def _worth_opening(self, partition: Partition) -> bool:
        if partition.replica.opened:
            self._empty.discard(partition)
            return partition.replica.log.availability.offline is None
        if not _limited(partition) or partition in self._empty:
            return False
        if self._replicas.directories.holds_records(partition.name):
            return True
        self._empty.add(partition)
        return False

    async def _look_at(
        self,
        partition: Partition,
        committed: CommittedOffsets,
        at_risk: dict[tuple[str, TopicPartition], Risk],
        held: dict[TopicPartition, int],
    ) -> None:
        name, settings, now_ms = partition.name, partition.settings, self._clock.now_ms()
        groups = committed.get(name.topic, {})
        index = name.partition
        read = {group: offsets.get(index, NOTHING_READ) for group, offsets in groups.items()}
        start = partition.replica.log.start_offset
        segments: Counter[Reason] = Counter()
        sizes: Counter[Reason] = Counter()
        while True:
            view = partition.replica.retention_view()
            decision = decide(view, settings, now_ms, read, _SEGMENTS_AT_ONCE)
            if Reason.TIME in decision.reasons:
                _verify_time_indexes(partition, len(decision.reasons))
                decision = decide(view, settings, now_ms, read, _SEGMENTS_AT_ONCE)
            count = len(decision.reasons)
            # Segments that are being compacted are deleted in the next pass.
            if not count or partition.replica.log.compacting:
                break
            for reason, segment in zip(decision.reasons, view.segments, strict=False):
                segments[reason] += 1
                sizes[reason] += segment.size
            partition.replica.delete_segments(count, now_ms)
            if count == _SEGMENTS_AT_ONCE:
                await asyncio.sleep(_PAUSE_S)
        if segments:
            self._tell_deletion(name, segments, sizes)
            for group, offset in read.items():
                if start <= offset < view.start_offset:
                    self._tell_loss(name, group, offset, view.start_offset, [*segments][-1])
        if decision.held_bytes:
            held[name] = decision.held_bytes
        if read:
            for risk in risks(view, settings, now_ms, read):
                at_risk[risk.group, name] = risk

    def _tell_deletion(
        self,
        name: TopicPartition,
        segments: Mapping[Reason, int],
        sizes: Mapping[Reason, int],
    ) -> None:
        """Log the number of deleted segments and bytes for each reason."""
        for reason, count in segments.items():
            labels = (name.topic, reason.value)
            self._metrics.add("headrace_retention_deleted_segments_total", count, *labels)
            self._metrics.add("headrace_retention_deleted_bytes_total", sizes[reason], *labels)
        logger.info(
            "%s: deleted %d segments of %d bytes (%s)",
            name,
            sum(segments.values()),
            sum(sizes.values()),
            ", ".join(reason.value for reason in segments),
        )

    def _tell_loss(
        self, name: TopicPartition, group: str, offset: int, start: int, reason: Reason
    ) -> None:
        self._metrics.add(
            "headrace_retention_unread_records_total", start - offset, group, name.topic
        )
        logger.warning(
            "group %s had not read offsets %d to %d of %s, and %s has deleted them",
            group, offset, start - 1, name, reason.value,
            extra={"fields": {
                "event": "unread_records_deleted", "group": group, "topic": name.topic,
                "partition": name.partition, "offset": offset, "start_offset": start,
                "reason": reason.value,
            }},
        )  # fmt: skip

    def _tell(
        self,
        at_risk: Mapping[tuple[str, TopicPartition], Risk],
        held: Mapping[TopicPartition, int],
    ) -> None:
        """Update the metrics; warn of each group at risk once."""
        for gauge in (*_LEFT_GAUGES, "headrace_retention_held_bytes"):
            self._metrics.clear(gauge)
        for name, held_bytes in held.items():
            self._metrics.set(
                "headrace_retention_held_bytes", held_bytes, name.topic, str(name.partition)
            )
        for (group, name), risk in at_risk.items():
            left = risk.left / 1000 if risk.limit is Reason.TIME else risk.left
            self._metrics.set(
                _LEFT_METRICS[risk.limit], left, group, name.topic, str(name.partition)
            )
            if (group, name) not in self._at_risk:
                _warn(name, risk)
        self._at_risk = set(at_risk)


def _verify_time_indexes(partition: Partition, count: int) -> None:
    """Read the oldest segments, so that a damaged time index deletes no records too early."""
    for segment in partition.replica.log.segments[:count]:
        with suppress(KafkaError):  # damaged records cannot be read, so they may be deleted
            segment.latest_time()


def _warn(name: TopicPartition, risk: Risk) -> None:
    logger.warning(
        "group %s is about to lose unread records of %s: it reads offset %d next, which %s "
        "deletes after %s",
        risk.group, name, risk.offset, risk.limit.value, _left_text(risk),
        extra={"fields": {
            "event": "unread_records_at_risk", "group": risk.group, "topic": name.topic,
            "partition": name.partition, "offset": risk.offset, "limit": risk.limit.value,
            "left": risk.left, "unit": _unit(risk.limit),
        }},
    )  # fmt: skip


def _unit(limit: Reason) -> str:
    return {Reason.TIME: "ms", Reason.MESSAGES: "records"}.get(limit, "bytes")


def _left_text(risk: Risk) -> str:
    if risk.limit is not Reason.TIME:
        return f"{risk.left} more {_unit(risk.limit)}"
    seconds = risk.left // 1000
    if seconds < _HOUR_S:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // _HOUR_S} h {seconds % _HOUR_S // 60} min"


def _limited(partition: Partition) -> bool:
    return bool(partition.settings.cleanup_policy & {"delete", "consumed"})
