"""The metrics that Grafana dashboards of others ask for, and the labels that they select by.

Their JSON is not part of this project. `python -m tests.support.dashboard_metrics FILE...` prints
what a dashboard needs; `tests/admin/dashboards.json` has the results.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "admin" / "dashboards.json"
_METRIC = re.compile(r"\b(kafka_[a-z_]+)\b(?:\{([^}]*)\})?")
_LABEL = re.compile(r'([a-z_]+)\s*(?:=~|!~|!=|=)\s*"')
_BY = re.compile(r"\bby\s*\(([^)]*)\)|label_values\([^,]*,\s*([a-z_]+)\)")


def required_metrics(dashboard: object) -> dict[str, list[str]]:
    """Labels by metric, from every query of a dashboard: panels and template variables."""
    found: dict[str, set[str]] = {}
    for query in _queries(dashboard):
        grouped = {
            label.strip()
            for match in _BY.finditer(query)
            for label in (match[1] or match[2]).split(",")
        }
        for match in _METRIC.finditer(query):
            labels = found.setdefault(match[1], set())
            labels |= set(_LABEL.findall(match[2] or "")) | grouped
    return {name: sorted(labels) for name, labels in sorted(found.items())}


def _queries(node: object) -> Iterator[str]:
    """The texts of `expr`, `query` and `definition`, at any depth."""
    if isinstance(node, list):
        for each in node:
            yield from _queries(each)
    elif isinstance(node, dict):
        for name, value in node.items():
            if name in ("expr", "query", "definition") and isinstance(value, str):
                yield value
            else:
                yield from _queries(value)


def dashboards() -> dict[str, dict[str, list[str]]]:
    """What each dashboard needs."""
    known = json.loads(RESULTS.read_text())
    return {name: found["metrics"] for name, found in known.items()}


if __name__ == "__main__":
    for file in sys.argv[1:]:
        print(json.dumps(required_metrics(json.loads(Path(file).read_text())), indent=2))
