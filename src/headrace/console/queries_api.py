"""Spark's streaming queries: the list, and one query with its figures over time."""

from headrace.console.console_request import ConsoleRequest
from headrace.console.flow.query_progress import QueryPoint, SeenQuery, now_ms, trouble
from headrace.pipelines.running.progress import Query, QuerySource
from headrace.pipelines.running.progress_topic import TOPIC
from headrace.service.errors import HttpError


async def list_queries(request: ConsoleRequest) -> object:
    """All queries that the topic has. A program that ended long ago may still be there."""
    progress = request.console.queries
    seen = await progress.queries()
    return {
        "topic": TOPIC,
        "exists": progress.exists,
        "problem": progress.problem,
        "position": str(progress.position),
        "end": str(progress.end),
        "queries": [_row(each.query) for each in seen],
    }


async def get_query(request: ConsoleRequest) -> object:
    """One query by its id or name."""
    name = request.path["query"]
    seen = await request.console.queries.find(name)
    if seen is None:
        raise HttpError(404, f"Topic {TOPIC} has no query {name}")
    return {**_row(seen.query), **_details(seen)}


def _row(query: Query) -> dict[str, object]:
    problem = trouble(query, now_ms())
    return {
        "id": query.id,
        "name": query.title,
        "application": query.application,
        "state": query.state,
        "silent": bool(problem) and query.state.alive,
        "trouble": problem,
        "time": str(query.time_ms),
        "batch": _text(query.batch),
        "batch_ms": query.batch_ms,
        "input_rows_per_s": query.input_rows_per_s,
        "processed_rows_per_s": query.processed_rows_per_s,
        "lag": _text(query.lag_records),
        "state_rows": str(query.state_rows),
        "state_bytes": str(query.state_bytes),
        "late_rows": str(query.late_rows),
        "watermark": query.watermark,
        "topics": sorted({topic for each in query.sources for topic in each.positions}),
    }


def _details(seen: SeenQuery) -> dict[str, object]:
    query = seen.query
    return {
        "run": query.run,
        "application_id": query.application_id,
        "started": str(query.started_ms),
        "rows": str(query.rows),
        "rows_total": str(query.rows_total),
        "restarts": query.restarts,
        "restart_reason": query.restart_reason,
        "sink": query.sink,
        "durations_ms": dict(query.durations_ms),
        "sources": [_source(each) for each in query.sources],
        "history": [_point(each) for each in seen.points],
    }


def _source(source: QuerySource) -> dict[str, object]:
    return {
        "description": source.description,
        "rows": str(source.rows),
        "rows_per_s": source.rows_per_s,
        "lag": _text(source.lag_records),
        "topics": [
            {
                "topic": topic,
                "lag": _text(source.topics.get(topic)),
                "position": _text(source.positions.get(topic)),
            }
            for topic in sorted({*source.topics, *source.positions})
        ],
    }


def _point(point: QueryPoint) -> list[object]:
    return [
        point.time_ms,
        point.input_rows_per_s,
        point.processed_rows_per_s,
        _text(point.lag_records),
        point.batch_ms,
        str(point.state_rows),
        str(point.state_bytes),
    ]


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)
