"""What the registry counts, in Prometheus's text format."""

from collections import defaultdict

from headrace.registry.service import Registry


class Metrics:
    """Counters of requests, and a look at the registry when asked."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._requests: dict[tuple[str, str, int], int] = defaultdict(int)
        self._seconds: dict[tuple[str, str], float] = defaultdict(float)

    def count(self, method: str, pattern: str, status: int, seconds: float) -> None:
        self._requests[method, pattern, status] += 1
        self._seconds[method, pattern] += seconds

    def text(self) -> str:
        """The page."""
        registry = self._registry
        state = registry.state
        lines = ["# TYPE headrace_registry_requests_total counter"]
        lines += [
            f'headrace_registry_requests_total{{method="{method}",path="{pattern}",'
            f'status="{status}"}} {count}'
            for (method, pattern, status), count in sorted(self._requests.items())
        ]
        lines.append("# TYPE headrace_registry_request_seconds_total counter")
        lines += [
            f'headrace_registry_request_seconds_total{{method="{method}",path="{pattern}"}} {s:.6f}'
            for (method, pattern), s in sorted(self._seconds.items())
        ]
        gauges = {
            "subjects": len(state.subjects),
            "schemas": sum(len(ids.by_id) for ids in state.contexts.values()),
            "versions": sum(len(versions) for versions in state.subjects.values()),
            "topic_offset": registry.reader.next_offset,
            "writer_changes_total": registry.writer.changes,
        }
        for name, value in gauges.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [
                f"# TYPE headrace_registry_{name} {kind}",
                f"headrace_registry_{name} {value}",
            ]
        return "\n".join(lines) + "\n"
