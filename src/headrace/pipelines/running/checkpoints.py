"""What Spark's checkpoint of a query says about its progress. Nothing here imports Spark."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from headrace.pipelines.source.ranges import from_stored

READS = 20
PAUSE_S = 0.05

InputOffsets: TypeAlias = Mapping[str, Mapping[str, int]]
"""Offsets by topic and partition, as Spark's sources have them."""


@dataclass(frozen=True, slots=True)
class QueryPosition:
    """How far a query is, as its checkpoint says."""

    query: str
    """The id in the checkpoint, which names its epochs in the ledger of the sink."""
    epoch: int
    offsets: InputOffsets
    """The ends of the epoch in its inputs."""
    is_finished: bool
    """Whether the results of the epoch are in the topic."""
    is_quiet: bool
    """Whether no further epoch follows without new records, as watermarks cause them."""
    sources: int = 1
    """How many sources the query has."""


def last_epoch(folder: Path) -> int | None:
    """The newest epoch in a log of a checkpoint: `offsets` or `commits`."""
    numbers = [int(each.name) for each in folder.glob("*") if each.name.isdigit()]
    return max(numbers, default=None)


def read_position(checkpoint: Path) -> QueryPosition | None:
    """How far a query is; None if it has not begun an epoch."""
    begun, ended = last_epoch(checkpoint / "offsets"), last_epoch(checkpoint / "commits")
    if begun is None:
        return None
    for _ in range(READS):
        try:
            return _read(checkpoint, begun, begun == ended)
        except (OSError, ValueError, KeyError, IndexError):
            # Spark is about to write the file.
            time.sleep(PAUSE_S)
    return QueryPosition("", begun, {}, is_finished=False, is_quiet=False)


def _read(checkpoint: Path, epoch: int, is_finished: bool) -> QueryPosition:
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    # A line with the version, one with the metadata, and one for each source.
    _, metadata, *sources = (checkpoint / "offsets" / str(epoch)).read_text().splitlines()
    offsets: dict[str, dict[str, int]] = {}
    for line in sources:
        # `source_NAME:{...}`, or a dash for a source without records.
        stored = json.loads(line[line.index("{") :]) if "{" in line else {}
        for at, offset in from_stored(stored).offsets.items():
            known = offsets.setdefault(at.topic, {})
            name = str(at.partition)
            # A topic may be read twice, by a join with itself.
            known[name] = min(offset, known.get(name, offset))
    is_quiet = False
    if is_finished:
        _, done = (checkpoint / "commits" / str(epoch)).read_text().splitlines()[:2]
        before = json.loads(metadata)["batchWatermarkMs"]
        is_quiet = json.loads(done)["nextBatchWatermarkMs"] <= before
    return QueryPosition(query, epoch, offsets, is_finished, is_quiet, len(sources))
