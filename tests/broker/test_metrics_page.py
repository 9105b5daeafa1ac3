"""/metrics and /health as Prometheus and a load balancer ask for them."""

import asyncio
import base64
import json
import re
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.broker.metrics import METRICS, Metrics
from headrace.broker.metrics_page import make_metrics_page
from headrace.errors import SettingError
from headrace.security.http_users import verifier_text, write_user
from headrace.settings import Settings
from tests.security.authority import Authority, write

LINE = re.compile(r'[a-z_]+(\{([a-z]+="([^"\\\n]|\\.)*",?)+\})? -?[0-9.e+]+')


def ask(
    request: bytes,
    metrics: Metrics | None = None,
    problems: list[str] | None = None,
    settings: Mapping[str, str] | None = None,
    context: ssl.SSLContext | None = None,
) -> str:
    """What the page answers to these bytes."""

    async def talk() -> bytes:
        given = Settings.parse({"headrace.metrics.address": "127.0.0.1:0", **(settings or {})})
        page, (host, _) = make_metrics_page(
            given, metrics or Metrics(), lambda: problems or [], lambda: ["look out"]
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


def test_values_by_a_label_are_asked_for_when_somebody_reads_them() -> None:
    metrics = Metrics()
    counts = {"Fetch": 2.0}
    metrics.watch_each("headrace_requests_total", lambda: counts)
    assert 'headrace_requests_total{api="Fetch"} 2.0' in metrics.render().splitlines()
    counts = {"Fetch": 3.0, "Produce": 1.0}
    lines = metrics.render().splitlines()
    assert 'headrace_requests_total{api="Fetch"} 3.0' in lines
    assert 'headrace_requests_total{api="Produce"} 1.0' in lines


def test_health_says_what_is_wrong() -> None:
    head, _, body = ask(get("/health")).partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK\r\n")
    assert json.loads(body) == {
        "healthy": True,
        "problems": [],
        "warnings": ["look out"],
    }
    head, _, body = ask(get("/health?x=1"), problems=["/data is offline"]).partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 503 ")
    assert json.loads(body) == {
        "healthy": False,
        "problems": ["/data is offline"],
        "warnings": ["look out"],
    }


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
    _, _, body = ask(get("/health"), settings=users, problems=["no disk"]).partition("\r\n\r\n")
    assert json.loads(body) == {"healthy": False}
    known = ask(get("/health", "prometheus:p-secret"), settings=users, problems=["no disk"])
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
