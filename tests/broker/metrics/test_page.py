"""/metrics and /health as Prometheus and a load balancer ask for them."""

import asyncio
import base64
import json
import re
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from headrace.apis.slices import Slices
from headrace.broker.metrics import values as metrics_module
from headrace.broker.metrics.page import HealthChecks, make_metrics_page
from headrace.broker.metrics.table import METRICS, PARTITION_METRICS
from headrace.broker.metrics.values import Labels, Metrics
from headrace.errors import SettingError
from headrace.prometheus import Histogram
from headrace.security.http_users import verifier_text, write_user
from headrace.settings import Settings
from headrace.wire.steps import Steps, finish
from tests.security.authority import Authority, write

LINE = re.compile(r'[a-z_]+(\{([a-z]+="([^"\\\n]|\\.)*",?)+\})? -?[0-9.e+]+')


class Checks:
    """What the broker of these tests says about its health."""

    def __init__(self) -> None:
        self.not_ready: list[str] = []
        self.problems: list[str] = []
        self.prepared = False

    def prepare(self) -> Steps[None]:
        yield
        self.prepared = True

    def as_asked(self) -> HealthChecks:
        return HealthChecks(
            lambda: self.not_ready,
            lambda: self.problems if self.prepared else ["not prepared"],
            lambda: ["look out"],
            self.prepare,
        )


def with_problem(problem: str) -> Checks:
    checks = Checks()
    checks.problems = [problem]
    return checks


def ask(
    request: bytes,
    metrics: Metrics | None = None,
    checks: Checks | None = None,
    settings: Mapping[str, str] | None = None,
    context: ssl.SSLContext | None = None,
) -> str:
    """What the page answers to these bytes."""

    async def talk() -> bytes:
        given = Settings.parse({"headrace.metrics.address": "127.0.0.1:0", **(settings or {})})
        page, (host, _) = make_metrics_page(
            given, metrics or Metrics(), (checks or Checks()).as_asked(), Slices()
        )
        port = await page.start(host, 0)
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        page.stop()
        return answer

    return asyncio.run(talk()).decode()


def get(target: str, login: str = "") -> bytes:
    packed = base64.b64encode(login.encode()).decode()
    more = f"Authorization: Basic {packed}\r\n" if login else ""
    return f"GET {target} HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode()


def rendered(metrics: Metrics) -> list[str]:
    return b"".join(finish(metrics.render_steps())).decode().splitlines()


def test_metrics_are_in_prometheus_format_with_help_and_type() -> None:
    metrics = Metrics()
    metrics.add("headrace_retention_passes_total", 2)
    metrics.add("headrace_retention_passes_total", 1)
    metrics.set("headrace_retention_held_bytes", 12_345_678_901, 'odd "name"\n\\', "0")
    head, _, body = ask(get("/metrics"), metrics).partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK\r\n")
    assert "text/plain; version=0.0.4" in head
    assert f"Content-Length: {len(body)}" in head
    lines = body.splitlines()
    assert "headrace_retention_passes_total 3" in lines
    held = 'headrace_retention_held_bytes{topic="odd \\"name\\"\\n\\\\",partition="0"} 12345678901'
    assert held in lines
    for row in METRICS:
        assert f"# TYPE {row.name} {row.kind}" in lines
        assert f"# HELP {row.name} {row.doc}" in lines
    assert all(LINE.fullmatch(line) for line in lines if not line.startswith("#"))


def test_values_by_a_label_are_computed_when_the_page_is_read() -> None:
    metrics = Metrics()
    counts = {"Fetch": 2.0}
    metrics.watch_each("headrace_requests_total", lambda: counts)
    assert 'headrace_requests_total{api="Fetch"} 2.0' in rendered(metrics)
    counts = {"Fetch": 3.0, "Produce": 1.0}
    lines = rendered(metrics)
    assert 'headrace_requests_total{api="Fetch"} 3.0' in lines
    assert 'headrace_requests_total{api="Produce"} 1.0' in lines


def test_a_histogram_is_shown_with_its_labels() -> None:
    metrics, histogram = Metrics(), Histogram((1.0,))
    histogram.observe(0.5)
    metrics.watch_each("headrace_request_seconds", lambda: {"Fetch": histogram})
    lines = rendered(metrics)
    assert "# TYPE headrace_request_seconds histogram" in lines
    assert 'headrace_request_seconds_bucket{api="Fetch",le="1.0"} 1' in lines
    assert 'headrace_request_seconds_sum{api="Fetch"} 0.5' in lines


def test_a_value_of_all_may_stand_beside_those_with_labels() -> None:
    metrics = Metrics()
    metrics.watch_series("headrace_requests_total", lambda: [((), 3), (("Fetch",), 2)])
    lines = rendered(metrics)
    assert "headrace_requests_total 3" in lines
    assert 'headrace_requests_total{api="Fetch"} 2' in lines


def test_clients_cannot_make_a_counter_grow_without_bound() -> None:
    metrics, most = Metrics(), metrics_module.MOST_SERIES
    for number in range(most + 5):
        metrics.add("headrace_throttle_seconds_total", 1, "fetch", "", f"client-{number}")
    metrics.add("headrace_throttle_seconds_total", 1, "fetch", "", "client-3")
    lines = rendered(metrics)
    shown = [line for line in lines if line.startswith("headrace_throttle_seconds_total{")]
    assert len(shown) == most + 1
    assert 'headrace_throttle_seconds_total{quota="",user="",client_id=""} 5' in shown
    assert 'headrace_throttle_seconds_total{quota="fetch",user="",client_id="client-3"} 2' in shown


def test_a_page_of_many_partitions_lets_requests_run_in_between() -> None:
    metrics = Metrics()
    metrics.extend(PARTITION_METRICS)

    def series() -> Iterator[tuple[Labels, float]]:
        for number in range(10_000):
            yield ("orders", str(number)), number

    for row in PARTITION_METRICS:
        metrics.watch_series(row.name, series)
    page, turns = asyncio.run(rendered_with_turns(metrics))
    assert page.count("\nheadrace_partition_end_offset{") == 10_000
    values = 10_000 * len(PARTITION_METRICS)
    assert turns > values / 64 / 3  # a slice of this clock is two or three steps


async def rendered_with_turns(metrics: Metrics) -> tuple[str, int]:
    """The page, and how often the event loop ran something else until it was there."""
    ticks = turns = 0

    def now() -> float:
        nonlocal ticks
        ticks += 1
        return ticks / 1000  # each look at the clock takes a millisecond

    async def other_work() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(other_work())
    pieces = await Slices(now).finish(metrics.render_steps())
    other.cancel()
    return b"".join(pieces).decode(), turns


def test_health_has_the_reason_of_a_problem() -> None:
    head, _, body = ask(get("/health")).partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK\r\n")
    assert json.loads(body) == {
        "healthy": True,
        "problems": [],
        "warnings": ["look out"],
    }
    checks = with_problem("/data is offline")
    head, _, body = ask(get("/health?x=1"), checks=checks).partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 503 ")
    assert json.loads(body) == {
        "healthy": False,
        "problems": ["/data is offline"],
        "warnings": ["look out"],
    }


def test_a_broker_that_is_not_ready_is_still_live() -> None:
    checks = Checks()
    checks.not_ready = ["this broker is starting"]
    head, _, body = ask(get("/health/ready"), checks=checks).partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 503 ")
    assert json.loads(body) == {"ready": False, "reasons": ["this broker is starting"]}
    head, _, body = ask(get("/health/live"), checks=checks).partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK\r\n")
    assert json.loads(body) == {"live": True}


def test_a_partition_without_a_leader_makes_a_broker_neither_dead_nor_unready() -> None:
    checks = with_problem("1 partition(s) with a replica here have no leader, such as orders-0")
    assert ask(get("/health"), checks=checks).startswith("HTTP/1.1 503 ")
    assert ask(get("/health/live"), checks=checks).startswith("HTTP/1.1 200 ")
    head, _, body = ask(get("/health/ready"), checks=checks).partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 ")
    assert json.loads(body) == {"ready": True, "reasons": []}


def test_anything_else_is_refused_and_rubbish_is_cut_off() -> None:
    assert ask(get("/")).startswith("HTTP/1.1 404 ")
    assert ask(b"POST /metrics HTTP/1.1\r\n\r\n").startswith("HTTP/1.1 405 ")
    head = ask(b"HEAD /metrics HTTP/1.1\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 ")
    assert head.endswith("\r\n\r\n")
    assert ask(b"x" * 100_000 + b"\r\n\r\n") == ""


def test_metrics_need_a_login_and_health_tells_only_its_status_without_one(tmp_path: Path) -> None:
    write_user(tmp_path / "users", "prometheus", f"{verifier_text('p-secret')},read")
    users = {"headrace.metrics.users.file": str(tmp_path / "users")}
    answer = ask(get("/metrics"), settings=users)
    assert answer.startswith("HTTP/1.1 401 ")
    assert 'WWW-Authenticate: Basic realm="headrace"' in answer
    for wrong in ("prometheus:wrong", "nobody:p-secret", "prometheus"):
        assert ask(get("/metrics", wrong), settings=users).startswith("HTTP/1.1 401 ")
    assert ask(get("/metrics", "prometheus:p-secret"), settings=users).startswith("HTTP/1.1 200 ")
    _, _, body = ask(get("/health"), settings=users, checks=with_problem("no disk")).partition(
        "\r\n\r\n"
    )
    assert json.loads(body) == {"healthy": False}
    known = ask(
        get("/health", "prometheus:p-secret"), settings=users, checks=with_problem("no disk")
    )
    assert json.loads(known.partition("\r\n\r\n")[2])["problems"] == ["no disk"]


def test_metrics_over_tls_have_the_brokers_certificate(tmp_path: Path) -> None:
    authority = Authority()
    issued = authority.issue("CN=broker")
    settings = {
        "headrace.metrics.address": "https://127.0.0.1:0",
        "ssl.keystore.location": write(
            tmp_path / "broker.pem", issued.key_pem(), issued.certificate_pem
        ),
    }
    context = ssl.create_default_context(cadata=authority.pem)
    assert ask(get("/metrics"), settings=settings, context=context).startswith("HTTP/1.1 200 ")
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(get("/metrics"), settings=settings, context=ssl.create_default_context())


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"headrace.metrics.address": "https://127.0.0.1:0"}, "has no certificate"),
        (
            {"headrace.metrics.address": "0.0.0.0:0", "headrace.metrics.users.file": "/x"},
            "Use https://0.0.0.0:0",
        ),
        ({"headrace.metrics.users.file": "/nowhere"}, "headrace.metrics.users.file=/nowhere"),
    ],
)
def test_a_page_that_cannot_be_protected_as_asked_is_not_served(
    settings: dict[str, str], named: str
) -> None:
    with pytest.raises(SettingError, match=named):
        ask(get("/metrics"), settings=settings)
