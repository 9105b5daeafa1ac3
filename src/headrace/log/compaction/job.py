"""The messages between the broker and the compaction process: lines of JSON.

A job is for one log: its sealed segments before `end`, and what the other process needs to know of
the log without opening it. The answers are one `Cleaned` for every group of segments, as soon as
its new files are on the disk, and a `Finished` or a `Failed` at the end.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Job:
    """One log to compact."""

    folder: str
    segments: tuple[tuple[int, int], ...]
    """(base offset, bytes) of each, oldest first."""
    first_dirty: int
    """Below it the log is clean: no key appears twice."""
    end: int
    """The base offset of the first segment that is not compacted."""
    aborted: tuple[tuple[int, int, int, int], ...]
    """Aborted transactions: producer id, first offset, the marker's offset, last stable offset."""
    producers: tuple[tuple[int, int, int], ...]
    """Producer id, offset of the last record (-1: none is known) and epoch of active producers."""
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    max_decompressed_bytes: int
    map_bytes: int
    """Memory for the keys; the rest is left for the next run."""
    map_load_factor: float
    bytes_per_second: float
    """The limit of reads and writes."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """New files, with the suffix `.cleaned`, are ready to replace these segments."""

    sources: tuple[int, ...]
    """Their base offsets; the new segment has the first one's."""
    size: int
    aborted: tuple[int, ...]
    """The offsets of the markers of aborted transactions that still have data."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Everything below `clean_to` is clean now."""

    clean_to: int
    records_read: int
    records_kept: int
    bytes_read: int
    bytes_kept: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The job failed; only the reported groups were compacted."""

    reason: str


Answer: TypeAlias = Cleaned | Finished | Failed

_KINDS = {"cleaned": Cleaned, "finished": Finished, "failed": Failed}


def encode_job(job: Job) -> bytes:
    """One line."""
    return json.dumps(asdict(job)).encode() + b"\n"


def decode_job(line: bytes) -> Job:
    """The job that `encode_job` wrote."""
    return Job(**_with_tuples(json.loads(line)))


def encode_answer(answer: Answer) -> bytes:
    """One line."""
    kind = type(answer).__name__.lower()
    return json.dumps({"kind": kind, **asdict(answer)}).encode() + b"\n"


def decode_answer(line: bytes) -> Answer:
    """The answer that `encode_answer` wrote; ValueError if it is malformed."""
    try:
        fields = _with_tuples(json.loads(line))
        answer: Answer = _KINDS[fields.pop("kind")](**fields)
    except (TypeError, KeyError) as error:
        raise ValueError(f"not an answer: {line[:200]!r}") from error
    return answer


def _with_tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """JSON has lists where our values have tuples."""
    return {
        name: tuple(tuple(row) if isinstance(row, list) else row for row in value)
        if isinstance(value, list)
        else value
        for name, value in fields.items()
    }
