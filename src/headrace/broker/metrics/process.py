"""Figures of the broker's process, and the delay of its event loop, for `/metrics`."""

import asyncio
import resource
import sys
import time
from collections.abc import Iterable
from functools import partial

from headrace import __version__, process
from headrace.broker.metrics.values import Labels, Metrics
from headrace.prometheus import Histogram
from headrace.wire.steps import Steps

_LOOK_S = 0.25
_DELAY_BOUNDS_S = (
    0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip


def _memory(place: int) -> list[tuple[Labels, float]]:
    """One of the figures of memory; nothing if the system does not tell it."""
    found = process.memory()
    return [] if found is None else [((), found[place])]


class ProcessMetrics:
    """Reads the figures at each scrape, and the delay of the event loop all the time."""

    def __init__(self, metrics: Metrics) -> None:
        self._open_files = 0
        self._delays = Histogram(_DELAY_BOUNDS_S)
        self._timer: asyncio.TimerHandle | None = None
        python = ".".join(map(str, sys.version_info[:3]))
        metrics.set("headrace_build_info", 1, __version__, python)
        metrics.set("process_start_time_seconds", process.started_at())
        metrics.set("process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        metrics.watch("process_cpu_seconds_total", time.process_time)
        for place, kind in enumerate(("virtual", "resident")):
            metrics.watch_series(f"process_{kind}_memory_bytes", partial(_memory, place))
        metrics.watch("process_open_fds", lambda: self._open_files)
        metrics.watch_series("headrace_event_loop_delay_seconds", self._delay)
        metrics.prepare(self._count_files)

    def start(self) -> None:
        """Measure the delay of the running event loop from now on."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_LOOK_S, self._look)

    def stop(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        assert self._timer is not None
        loop = asyncio.get_running_loop()
        self._delays.observe(max(loop.time() - self._timer.when(), 0.0))
        self._timer = loop.call_later(_LOOK_S, self._look)

    def _delay(self) -> Iterable[tuple[Labels, Histogram]]:
        return [((), self._delays)]

    def _count_files(self) -> Steps[None]:
        for count in process.open_files():
            self._open_files = count
            yield
