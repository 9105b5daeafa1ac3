"""Logs to compact, and compacting them in one process."""

from collections.abc import Iterator

from headrace.disk import Disk
from headrace.log.compaction.compaction import compact
from headrace.log.compaction.job import Cleaned, Failed, Finished
from headrace.log.compaction.plan import CompactionPlan
from headrace.log.compaction.start import CompactionLimits, job_for, plan_for
from headrace.log.compaction.swap import put_in_place
from headrace.log.log import Log
from headrace.settings import LogSettings
from headrace.wire.batch import CONTROL, TRANSACTIONAL, Header, read_header
from headrace.wire.markers import encode_marker
from headrace.wire.records import Record, encode_batch, iterate
from tests.log.samples import NOW, append

COMPACT = LogSettings(
    segment_bytes=600,
    index_interval_bytes=150,
    cleanup_policy=frozenset({"compact"}),
    delete_retention_ms=1000,
)
LIMITS = CompactionLimits(1 << 20, 0.9, 1e18, 1 << 26)


def put(
    log: Log,
    *records: tuple[bytes | None, bytes | None],
    codec: int = 0,
    timestamp: int = NOW,
    producer: tuple[int, int, int] | None = None,
    transactional: bool = False,
) -> int:
    """Append one batch of keys and values; `producer` is id, epoch and sequence."""
    producer_id, epoch, sequence = producer or (-1, -1, -1)
    data = encode_batch(
        [Record(n, timestamp + n, key, value) for n, (key, value) in enumerate(records)],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=TRANSACTIONAL if transactional else 0,
    )
    return append(log, data)


def mark(log: Log, producer_id: int, epoch: int, *, commit: bool, timestamp: int = NOW) -> int:
    """End a producer's transaction."""
    return append(log, encode_marker(producer_id, epoch, commit, 0, timestamp))


def seal(log: Log) -> None:
    """Make everything so far compactable."""
    log.roll()
    log.flush()
    log.transactions.stable_below(log.end_offset)


def planned(log: Log, cleaned_to: int | None = None, now_ms: int = NOW) -> CompactionPlan:
    return plan_for(log, cleaned_to, log.last_stable_offset(log.end_offset), now_ms)


def compacted(
    log: Log,
    cleaned_to: int | None = None,
    now_ms: int = NOW,
    limits: CompactionLimits = LIMITS,
    disk: Disk | None = None,
) -> Finished:
    """Compact the log as the broker does, whether it is due or not."""
    job = job_for(log, planned(log, cleaned_to, now_ms), limits, now_ms)
    segments = {segment.base_offset: segment for segment in log.segments}
    for answer in compact(job, disk or log.disk):
        match answer:
            case Cleaned(sources, size, aborted):
                put_in_place(log, [segments[base] for base in sources], size, aborted)
            case Failed(reason):
                raise AssertionError(reason)
            case Finished():
                return answer
    raise AssertionError("no end was reported")


def batches(log: Log) -> Iterator[tuple[Header, list[Record]]]:
    """All batches that a reader gets, with their records."""
    offset = log.start_offset
    while (piece := log.read(offset, 300, log.end_offset, True)) is not None:
        data = log.disk.pread(piece.file.fd, piece.length, piece.position)
        at = 0
        while at < len(data):
            header = read_header(data, at)
            end = at + header.size_bytes
            yield header, [*iterate(data, at, end, 1 << 26)]
            offset, at = header.next_offset, end


def records(log: Log) -> list[Record]:
    """The records of all data batches, those of aborted transactions included."""
    return [
        record
        for header, held in batches(log)
        if not header.attributes & CONTROL
        for record in held
    ]


def values(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of each."""
    return [(record.offset, record.key, record.value) for record in records(log)]
