"""The state of a streaming query: an immutable value that Spark's events update, with a JSON form.

It is pure: Spark's progress is passed as the dictionary of its JSON. Lag is computed from the
source's offsets by topic; sources that are not logs have none.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any


class QueryState(StrEnum):
    """The state of a query."""

    STARTING = "starting"
    RUNNING = "running"
    # Nothing new to read.
    IDLE = "idle"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def alive(self) -> bool:
        return self not in (QueryState.STOPPED, QueryState.FAILED)


@dataclass(frozen=True, slots=True)
class QuerySource:
    """One of a query's sources in its last batch."""

    description: str
    rows: int
    rows_per_s: float | None
    lag_records: int | None
    # Lag by topic.
    topics: Mapping[str, int] = field(default_factory=dict)
    # The position by topic: the sum of its partitions' offsets.
    positions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SinkTarget:
    """Where a query writes; what does not apply or is not known is None."""

    # headrace, kafka, delta, iceberg, file, memory, console, foreachBatch, foreach, noop or other.
    kind: str
    # None if the rows themselves name their topics.
    topic: str | None = None
    table: str | None = None
    path: str | None = None
    # append, update or complete.
    mode: str | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """A streaming query after its last event."""

    id: str
    run: str
    name: str | None
    application: str
    application_id: str
    started_ms: int
    time_ms: int
    state: QueryState = QueryState.STARTING
    error: str | None = None
    batch: int | None = None
    batch_ms: int | None = None
    durations_ms: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    # All rows since the query was started.
    rows_total: int = 0
    input_rows_per_s: float | None = None
    processed_rows_per_s: float | None = None
    sources: tuple[QuerySource, ...] = ()
    sink: str | None = None
    state_rows: int = 0
    state_bytes: int = 0
    late_rows: int = 0
    # How often its program was restarted, and the reason of the last restart.
    restarts: int = 0
    restart_reason: str | None = None
    watermark: str | None = None
    sink_target: SinkTarget | None = None

    @property
    def title(self) -> str:
        """The name of the query, or a replacement."""
        return self.name or self.id

    @property
    def lag_records(self) -> int | None:
        """The lag of all sources together in records; None if it is unknown."""
        known = [each.lag_records for each in self.sources if each.lag_records is not None]
        return sum(known) if known else None

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "lag_records": self.lag_records}


def from_json(found: Mapping[str, Any]) -> Query:
    """Parse the output of `as_json`; fields of newer versions are ignored."""
    known = {name: found[name] for name in Query.__dataclass_fields__ if name in found}
    known["state"] = QueryState(known["state"])
    known["sources"] = tuple(
        QuerySource(
            **{name: each[name] for name in QuerySource.__dataclass_fields__ if name in each}
        )
        for each in known.get("sources", ())
    )
    if target := known.get("sink_target"):
        names = SinkTarget.__dataclass_fields__
        known["sink_target"] = SinkTarget(**{name: target[name] for name in names & target.keys()})
    return Query(**known)


def advanced(query: Query, progress: Mapping[str, Any]) -> Query:
    """The query after a batch, from the progress that Spark reports."""
    operators = progress.get("stateOperators") or ()
    rows = int(progress.get("numInputRows") or 0)
    return replace(
        query,
        run=str(progress["runId"]),
        name=progress.get("name") or query.name,
        time_ms=time_ms(progress["timestamp"]),
        state=QueryState.RUNNING,
        error=None,
        batch=progress["batchId"],
        batch_ms=progress.get("batchDuration"),
        durations_ms=dict(progress.get("durationMs") or {}),
        rows=rows,
        rows_total=query.rows_total + rows,
        input_rows_per_s=_rate(progress.get("inputRowsPerSecond")),
        processed_rows_per_s=_rate(progress.get("processedRowsPerSecond")),
        sources=tuple(_source(each) for each in progress.get("sources") or ()),
        sink=_text((progress.get("sink") or {}).get("description")),
        state_rows=sum(each.get("numRowsTotal", 0) for each in operators),
        state_bytes=sum(each.get("memoryUsedBytes", 0) for each in operators),
        late_rows=query.late_rows
        + sum(each.get("numRowsDroppedByWatermark", 0) for each in operators),
        watermark=(progress.get("eventTime") or {}).get("watermark"),
    )


def idle(query: Query, at_ms: int) -> Query:
    """The query when Spark reports that it waits for data."""
    return replace(query, state=QueryState.IDLE, time_ms=at_ms, rows=0, input_rows_per_s=0.0)


def ended(query: Query, at_ms: int, error: str | None) -> Query:
    """The query after its end, with the first line of an error."""
    state = QueryState.FAILED if error else QueryState.STOPPED
    line = next(iter((error or "").strip().splitlines()), None)
    return replace(query, state=state, time_ms=at_ms, error=_text(line), input_rows_per_s=0.0)


def without_secrets(text: str) -> str:
    """A text without the passwords and query strings of the URLs in it."""
    return _QUERY_STRING.sub(r"\1", _PASSWORD.sub(r"\1@", text))


_PASSWORD = re.compile(r"(\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/@:\]]*):[^\s/@]*@")
_QUERY_STRING = re.compile(r"(\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s?\]]*)\?[^\s\]]*")


def _text(found: str | None) -> str | None:
    return None if found is None else without_secrets(found)


def time_ms(text: str) -> int:
    """Parse Spark's time, such as 2026-01-31T12:00:00.000Z."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def _source(found: Mapping[str, Any]) -> QuerySource:
    topics = topic_lags(found.get("endOffset"), found.get("latestOffset"))
    return QuerySource(
        description=without_secrets(str(found.get("description") or "")),
        rows=int(found.get("numInputRows") or 0),
        rows_per_s=_rate(found.get("processedRowsPerSecond")),
        lag_records=None if topics is None else sum(topics.values()),
        topics=topics or {},
        positions={
            topic: sum(partitions.values())
            for topic, partitions in (_offsets(found.get("endOffset")) or {}).items()
        },
    )


def topic_lags(end: object, latest: object) -> dict[str, int] | None:
    """The lag in records by topic, from offsets in the format of Kafka's source; else None.

    {"orders": {"0": 17, "1": 4}} in both arguments; partitions in only one of them are ignored, and
    so are the other keys of our source, such as the topic's id.
    """
    ends, latests = _offsets(end), _offsets(latest)
    if ends is None or latests is None:
        return None
    return {
        topic: sum(
            max(newest - partitions[index], 0)
            for index, newest in latests.get(topic, {}).items()
            if index in partitions
        )
        for topic, partitions in ends.items()
    }


def _offsets(found: object) -> dict[str, dict[str, int]] | None:
    if isinstance(found, str):
        try:
            found = json.loads(found)
        except ValueError:
            return None
    if not isinstance(found, dict) or not found:
        return None
    if not all(isinstance(partitions, dict) for partitions in found.values()):
        return None
    topics = {
        topic: {index: offset for index, offset in partitions.items() if str(index).isdecimal()}
        for topic, partitions in found.items()
    }
    if not all(isinstance(o, int) for partitions in topics.values() for o in partitions.values()):
        return None
    return topics


def _rate(found: object) -> float | None:
    """A rate, or None if Spark reports NaN or no rate."""
    if not isinstance(found, int | float) or found != found or found in (float("inf"),):
        return None
    return round(float(found), 1)
