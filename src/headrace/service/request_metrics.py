"""Request counters of a service, and the page of `/metrics` in Prometheus's text format."""

from collections import defaultdict
from collections.abc import Mapping


class RequestMetrics:
    """Requests and their duration by method and route. Names begin with `headrace_SERVICE_`."""

    def __init__(self, service: str) -> None:
        self._prefix = f"headrace_{service}_"
        self._requests: dict[tuple[str, str, int], int] = defaultdict(int)
        self._seconds: dict[tuple[str, str], float] = defaultdict(float)

    def count(self, method: str, pattern: str, status: int, seconds: float) -> None:
        self._requests[method, pattern, status] += 1
        self._seconds[method, pattern] += seconds

    def page(self, values: Mapping[str, float]) -> str:
        """The request counters and the service's own values; `*_total` are counters."""
        prefix = self._prefix
        lines = [f"# TYPE {prefix}requests_total counter"]
        lines += [
            f'{prefix}requests_total{{method="{method}",path="{pattern}",status="{status}"}} {n}'
            for (method, pattern, status), n in sorted(self._requests.items())
        ]
        lines.append(f"# TYPE {prefix}request_seconds_total counter")
        lines += [
            f'{prefix}request_seconds_total{{method="{method}",path="{pattern}"}} {seconds:.6f}'
            for (method, pattern), seconds in sorted(self._seconds.items())
        ]
        for name, value in values.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# TYPE {prefix}{name} {kind}", f"{prefix}{name} {value}"]
        return "\n".join(lines) + "\n"
