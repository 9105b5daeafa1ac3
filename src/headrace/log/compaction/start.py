"""The plan of a log's compaction, and the job that the broker sends to the process."""

from dataclasses import dataclass

from headrace.log.compaction.job import Job
from headrace.log.compaction.plan import CompactionPlan, first_dirty_offset, plan
from headrace.log.log import Log


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """The limits of a compaction from the broker's settings."""

    map_bytes: int
    map_load_factor: float
    bytes_per_second: float
    max_decompressed_bytes: int


def plan_for(log: Log, cleaned_to: int | None, last_stable: int, now_ms: int) -> CompactionPlan:
    """The compaction plan of this log; `cleaned_to` is its checkpoint."""
    return plan(
        log.segments,
        first_dirty_offset(cleaned_to, log.start_offset, log.end_offset),
        min(last_stable, log.durability.recovery_point),
        log.settings,
        now_ms,
    )


def job_for(log: Log, chosen: CompactionPlan, limits: CompactionLimits, now_ms: int) -> Job:
    """The job for the compaction process."""
    settings = log.settings
    return Job(
        folder=log.folder,
        segments=tuple(
            (segment.base_offset, segment.size)
            for segment in log.segments
            if segment.base_offset < chosen.end
        ),
        first_dirty=chosen.first_dirty,
        end=chosen.end,
        aborted=tuple(
            (producer_id, first, marker, stable)
            for producer_id, first, marker, stable in log.transactions.aborted_before(chosen.end)
        ),
        producers=tuple(
            (producer_id, producer.last_offset, producer.epoch)
            for producer_id, producer in log.producers.producers.items()
        ),
        now_ms=now_ms,
        delete_retention_ms=settings.delete_retention_ms,
        segment_bytes=settings.segment_bytes,
        segment_index_bytes=settings.segment_index_bytes,
        index_interval_bytes=settings.index_interval_bytes,
        max_decompressed_bytes=limits.max_decompressed_bytes,
        map_bytes=limits.map_bytes,
        map_load_factor=limits.map_load_factor,
        bytes_per_second=limits.bytes_per_second,
    )
