"""Which groups lose unread records next by retention."""

import time

from headrace.admin.retention_forecast import RetentionForecast, retention_forecast
from headrace.console.console_request import ConsoleRequest

MOST_NAMED = 20
"""Partitions and groups without a forecast that are named."""


async def get_forecast(request: ConsoleRequest) -> object:
    """Partitions with unread records, the most urgent first."""
    views = await request.console.observer.groups()
    now_ms = time.time_ns() // 1_000_000
    console = request.console
    async with console.forecast_lock:  # the cache of times is not for several threads
        found = await console.cluster.run(retention_forecast, views, console.forecast_times, now_ms)
    refused = [view.description.name for view in views if view.problem]
    return {
        "rows": [_row(each) for each in found.rows],
        "unknown": [str(each) for each in found.unknown[:MOST_NAMED]],
        "unknown_count": len(found.unknown),
        "refused_groups": refused[:MOST_NAMED],
        "refused_count": len(refused),
        "problem": console.observer.problem,
    }


def _row(row: RetentionForecast) -> dict[str, object]:
    return {
        "group": row.group,
        "topic": row.topic,
        "partition": row.partition,
        "committed": str(row.committed),
        "unread": str(row.unread),
        "lost": str(row.lost),
        "limit": row.limit,
        "left_ms": row.left_ms,
        "estimated": row.estimated,
        "held": row.held,
    }
