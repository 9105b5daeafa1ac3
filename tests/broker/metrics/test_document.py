"""docs/metrics.md lists the metrics of the tables, with their types, labels and descriptions."""

import re
from collections.abc import Iterable
from pathlib import Path

from headrace.broker.metrics.table import (
    KAFKA_METRICS,
    KAFKA_PARTITION_METRICS,
    METRICS,
    PARTITION_METRICS,
    Metric,
)

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `\w+` \| (?:counter|gauge|histogram) \|.*$", re.MULTILINE)


def rows_of(metrics: Iterable[Metric]) -> list[str]:
    return [
        f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} "
        f"| {one.doc} |"
        for one in metrics
    ]


def test_the_page_has_every_metric_as_the_broker_describes_it() -> None:
    expected = rows_of((*METRICS, *PARTITION_METRICS, *KAFKA_METRICS, *KAFKA_PARTITION_METRICS))
    assert ROW.findall(PAGE.read_text()) == expected
