"""Metrics that clients pushed, read from the pages of brokers."""

import base64
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from headrace.admin import pushed_metrics
from headrace.admin.pushed_metrics import (
    PushedMetric,
    parse_pushed_metrics,
    read_pushed_metrics,
    without_login,
)
from tests.support.ports import free_port

PAGE = """\
# TYPE headrace_connections gauge
headrace_connections 3
# TYPE org_apache_kafka_producer_x counter
org_apache_kafka_producer_x{client_id="a \\"b\\"",client_instance_id="I1"} 9007199254740993
org_apache_kafka_producer_x{client_id="c",client_instance_id="I2",topic="t"} 0.5
"""


def test_series_are_grouped_by_client_and_keep_all_digits() -> None:
    found = parse_pushed_metrics("here", PAGE.splitlines())
    name = "org_apache_kafka_producer_x"
    assert found.clients == {
        ('a "b"', "I1"): [PushedMetric(name, (), "9007199254740993")],
        ("c", "I2"): [PushedMetric(name, (("topic", "t"),), "0.5")],
    }
    assert (found.problem, found.left_out) == ("", 0)


def test_values_beyond_the_limit_are_counted() -> None:
    lines = [f'm{n}{{client_id="",client_instance_id="I"}} 1' for n in range(7)]
    limit = pushed_metrics.MOST_SERIES
    found = parse_pushed_metrics("here", lines * (limit // 7 + 1))
    assert len(found.clients["", "I"]) == limit
    assert found.left_out == 7 * (limit // 7 + 1) - limit


def test_a_page_that_cannot_be_read_says_why_without_the_password() -> None:
    port = free_port()
    found = read_pushed_metrics(f"http://ada:secret@127.0.0.1:{port}/metrics")
    assert found.source == f"http://127.0.0.1:{port}/metrics"
    assert "does not answer" in found.problem
    assert "refused" in found.problem
    assert "secret" not in found.problem
    assert without_login("http://h:1/m") == "http://h:1/m"


def test_user_and_password_of_the_url_are_sent() -> None:
    seen: list[str] = []

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("authorization", ""))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(PAGE.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        found = read_pushed_metrics(f"http://ada:s%40cret@127.0.0.1:{server.server_port}/metrics")
        thread.join()
    assert len(found.clients) == 2
    assert base64.b64decode(seen[0].removeprefix("Basic ")) == b"ada:s@cret"
