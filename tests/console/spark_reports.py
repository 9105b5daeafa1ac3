"""Progress of Spark queries as their listener publishes it, without Spark."""

import time
import uuid
from collections.abc import Mapping
from typing import Any

from headrace.pipelines.running import progress
from headrace.pipelines.running.progress import Query
from headrace.pipelines.running.progress_topic import Publisher
from tests.support.headrace_console import HeadraceConsole


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def started(name: str, at_ms: int | None = None) -> Query:
    at = now_ms() if at_ms is None else at_ms
    return Query(str(uuid.uuid4()), "run-1", name, "shop.py", "local-17", at, at)


def batch(query: Query, number: int, at_ms: int, topics: Mapping[str, int], **more: Any) -> Query:
    """The query after a batch that has read these topics; each is 3 records behind."""
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_ms // 1000))
    return progress.advanced(
        query,
        {
            "runId": "run-1",
            "name": query.name,
            "timestamp": f"{text}.{at_ms % 1000:03}Z",
            "batchId": number,
            "batchDuration": 420,
            "durationMs": {"triggerExecution": 420, "addBatch": 300, "walCommit": 41},
            "numInputRows": 100,
            "inputRowsPerSecond": 50.0,
            "processedRowsPerSecond": 238.1,
            "stateOperators": [
                {
                    "numRowsTotal": 9_007_199_254_740_993,
                    "memoryUsedBytes": 2_000_000,
                    "numRowsDroppedByWatermark": 1,
                }
            ],
            "eventTime": {"watermark": "2026-11-16T09:00:00.000Z"},
            "sources": [
                {
                    "description": f"KafkaV2[Subscribe[{topic}]]",
                    "numInputRows": 100,
                    "endOffset": {topic: {"0": offset}},
                    "latestOffset": {topic: {"0": offset + 3}},
                }
                for topic, offset in topics.items()
            ],
            "sink": {"description": "FileSink[/data/lake/orders]"},
            **more,
        },
    )


def publish(console: HeadraceConsole, *queries: Query) -> None:
    publisher = Publisher(console.bootstrap, {})
    for each in queries:
        publisher.publish(each)
    publisher.flush(60)
