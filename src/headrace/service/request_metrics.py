"""Request metrics of a service, and the page of `/metrics` in Prometheus's text format."""

import time
from collections import defaultdict
from collections.abc import Iterable

from headrace import __version__, process
from headrace.prometheus import Histogram, head, label_text, line
from headrace.service.http_service import ServiceMetric

_ROUTE = ("method", "path")
_ANSWERED = (*_ROUTE, "status")


class RequestMetrics:
    """Requests and their duration by method and route. Names begin with `headrace_SERVICE_`."""

    def __init__(self, service: str) -> None:
        self._prefix = f"headrace_{service}_"
        self._requests: dict[tuple[str, str, str], int] = defaultdict(int)
        self._seconds: dict[tuple[str, str], Histogram] = defaultdict(Histogram)
        self._started_at = process.started_at()

    def count(self, method: str, pattern: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests[method, pattern, str(status)] += 1
        self._seconds[method, pattern].observe(seconds)

    def page(self, values: Iterable[ServiceMetric]) -> str:
        """The metrics of requests, of the process, and of the service itself."""
        name = f"{self._prefix}requests_total"
        lines = head(name, "counter", "Requests by route and status.")
        for answered, count in sorted(self._requests.items()):
            lines.append(line(name, label_text(_ANSWERED, answered), count))
        name = f"{self._prefix}request_seconds"
        lines += head(name, "histogram", "Time from a request until its response was sent.")
        for route, seconds in sorted(self._seconds.items(), key=lambda item: item[0]):
            lines += seconds.lines(name, label_text(_ROUTE, route))
        for metric in values:
            name = f"{self._prefix}{metric.name}"
            kind = "counter" if metric.name.endswith("_total") else "gauge"
            lines += [*head(name, kind, metric.doc), line(name, "", metric.value)]
        return "\n".join([*lines, *self._process_lines()]) + "\n"

    def _process_lines(self) -> Iterable[str]:
        build = f"{self._prefix}build_info"
        yield from head(build, "gauge", "1, with the version of Headrace as label.")
        yield line(build, label_text(("version",), (__version__,)), 1)
        memory = process.memory()
        for name, kind, doc, value in (
            ("cpu_seconds_total", "counter", "CPU time of the process.", time.process_time()),
            ("resident_memory_bytes", "gauge", "Resident memory.", memory and memory.resident),
            ("virtual_memory_bytes", "gauge", "Address space.", memory and memory.virtual),
            ("open_fds", "gauge", "Open files and sockets.", max(process.open_files())),
            ("start_time_seconds", "gauge", "Start in seconds since 1970.", self._started_at),
        ):
            if value is not None:
                yield from [*head(f"process_{name}", kind, doc), line(f"process_{name}", "", value)]
