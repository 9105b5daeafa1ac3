"""A wall clock that jumps is reported; one that is corrected slowly, or stands still, is not."""

import json
import logging
import time
import urllib.request
from collections.abc import Callable

import pytest

from headrace.broker.clock_watch import ClockWatch
from headrace.broker.metrics.values import Metrics
from headrace.clock import ManualClock
from headrace.testing.running import RunningBroker
from headrace.wire.steps import finish
from tests.support.ports import free_port

DAY_MS = 86_400_000
HOUR_MS = 3_600_000


class JumpingClock(ManualClock):
    """A clock whose wall time can be set."""

    __slots__ = ("skew_ms",)

    def __init__(self) -> None:
        super().__init__()
        self.skew_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.skew_ms


class Watched:
    def __init__(self) -> None:
        self.clock = JumpingClock()
        self.metrics = Metrics()
        self.watch = ClockWatch(self.clock, self.metrics)

    def pass_time(self, ms: int) -> None:
        for step in [1000] * min(ms // 1000, 5):
            self.clock.advance(step)
            self.watch.look()
        self.clock.advance(ms - 1000 * min(ms // 1000, 5))
        self.watch.look()

    def shown(self, name: str) -> list[str]:
        lines = b"".join(finish(self.metrics.render_steps())).decode().splitlines()
        return [line for line in lines if line.startswith(name)]


@pytest.fixture
def watched(caplog: pytest.LogCaptureFixture) -> Watched:
    caplog.set_level(logging.WARNING)
    return Watched()


def test_a_clock_that_goes_back_is_reported_until_it_has_caught_up(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.pass_time(10_000)
    assert watched.watch.warnings() == []
    watched.clock.skew_ms = -DAY_MS // 2
    watched.pass_time(1000)
    (line,) = caplog.messages
    assert "jumped back by 43200.0 s" in line
    assert "INVALID_TIMESTAMP" in line
    (warning,) = watched.watch.warnings()
    assert "jumped back by 43200 s" in warning
    assert watched.shown("headrace_clock_jumps_total{") == [
        'headrace_clock_jumps_total{direction="back"} 1'
    ]
    watched.pass_time(HOUR_MS)
    assert f"is {11 * 3600} s behind" in watched.watch.warnings()[0]
    assert watched.shown("headrace_clock_behind_seconds ") == [
        f"headrace_clock_behind_seconds {11 * 3600}.0"
    ]
    watched.pass_time(11 * HOUR_MS)
    assert watched.watch.warnings() == []
    assert len(caplog.messages) == 1, "a jump is logged once"


def test_a_clock_that_is_set_right_again_is_no_longer_reported_as_behind(watched: Watched) -> None:
    watched.clock.skew_ms = -DAY_MS
    watched.pass_time(1000)
    watched.clock.skew_ms = 0
    watched.pass_time(1000)
    (warning,) = watched.watch.warnings()
    assert "jumped forward by 86400 s" in warning
    assert watched.shown("headrace_clock_behind_seconds ") == ["headrace_clock_behind_seconds 0.0"]


def test_a_clock_that_goes_forward_is_reported_for_an_hour(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.clock.skew_ms = DAY_MS
    watched.pass_time(1000)
    assert "jumped forward by 86400.0 s" in caplog.messages[0]
    assert "retention" in watched.watch.warnings()[0]
    watched.pass_time(HOUR_MS)
    assert watched.watch.warnings() == []


def test_slow_corrections_and_long_pauses_are_no_jumps(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        watched.clock.skew_ms -= 500
        watched.pass_time(1000)
    watched.clock.advance(HOUR_MS)  # nobody looked, but both clocks went on
    watched.watch.look()
    assert caplog.messages == []
    assert watched.watch.warnings() == []


def test_health_and_log_of_a_broker_tell_of_a_clock_that_jumped(
    headrace_factory: Callable[..., RunningBroker],
) -> None:
    address = f"127.0.0.1:{free_port()}"
    broker = headrace_factory({"headrace.metrics.address": address})

    def health() -> dict[str, object]:
        with urllib.request.urlopen(f"http://{address}/health", timeout=60) as answer:
            found: dict[str, object] = json.load(answer)
            return found

    assert health() == {"healthy": True, "problems": [], "warnings": []}
    broker.move_clock(-DAY_MS)
    deadline = time.monotonic() + 60
    while not (warnings := health()["warnings"]):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert "jumped back by 86400 s" in str(warnings)
    assert "jumped back by" in broker.log_file.read_text()
