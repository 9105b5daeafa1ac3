"""Requests and responses of a service on the chassis, over real HTTP."""

from collections.abc import Iterator
from urllib.parse import unquote

import httpx
import pytest

from tests.service.running import running
from tests.service.tiny_service import BODY_BYTES
from tests.support.prometheus import complaints, needs_prometheus

TOKEN = {"authorization": "Bearer secret"}


def test_a_handler_gets_path_and_body_and_its_result_becomes_json(http: httpx.Client) -> None:
    written = http.put("/notes/a", json={"text": "ä"})
    assert (written.status_code, written.json()) == (200, {"name": "a", "by": None})
    read = http.get("/notes/a")
    assert read.headers["content-type"] == "application/json"
    assert read.content == '{"text":"ä"}'.encode()


@pytest.mark.parametrize("name", ["a%2Fb", "%2E%2E", "..%2Fx", "a%20b", "%7Bname%7D"])
def test_a_path_is_split_before_it_is_decoded(http: httpx.Client, name: str) -> None:
    assert http.put(f"/notes/{name}", json=1).json()["name"] == unquote(name)
    assert http.get(f"/notes/{name}").json() == 1


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/notes/none", 404, 40401),
        ("GET", "/nowhere", 404, 404),
        ("GET", "/notes/a/b", 404, 404),
        ("GET", "/notes/%FF", 400, 400),
        ("GET", "/notes/a?x=%FF", 400, 400),
        ("GET", "/notes/a?" + "x=1&" * 60, 400, 400),
        ("DELETE", "/notes/a", 405, 405),
        ("POST", "/metrics", 405, 405),
        ("GET", "/notes/bug", 500, 50001),
    ],
)
def test_errors_are_json_with_a_code_and_a_message(
    http: httpx.Client, method: str, path: str, status: int, code: int
) -> None:
    answer = http.request(method, path)
    assert (answer.status_code, answer.json()["error_code"]) == (status, code)
    assert answer.json()["message"]


def test_the_methods_of_a_path_are_named_if_another_is_used(http: httpx.Client) -> None:
    assert http.delete("/notes/a").headers["allow"] == "GET, PUT"


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"[NaN]", "application/json", 400),
        (b"[" * 900, "application/json", 400),
        (b"1" * (BODY_BYTES + 1), "application/json", 413),
        (b"<a/>", "text/xml", 415),
    ],
)
def test_a_body_that_is_too_long_or_not_json_is_rejected(
    http: httpx.Client, body: bytes, kind: str, status: int
) -> None:
    answer = http.put("/notes/x", content=body, headers={"content-type": kind})
    assert (answer.status_code, answer.json()["error_code"]) == (status, status)


def test_a_body_without_a_length_is_read_up_to_the_limit_only(http: httpx.Client) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(10):
            yield b" " * (BODY_BYTES // 5)

    assert http.put("/notes/x", content=pieces()).status_code == 413


def test_a_response_type_that_the_service_does_not_have_is_rejected(http: httpx.Client) -> None:
    refused = http.put("/notes/accept", json=1, headers={"accept": "text/html"})
    assert refused.status_code == 406
    assert http.get("/notes/accept").status_code == 404
    assert http.get("/metrics", headers={"accept": "text/plain"}).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_of_another_site_cannot_write(http: httpx.Client, site: str) -> None:
    answer = http.put("/notes/foreign", json=1, headers={"sec-fetch-site": site})
    assert answer.status_code == 403
    assert http.get("/notes/foreign").status_code == 404
    own = http.put("/notes/own", json=1, headers={"sec-fetch-site": "same-origin"})
    assert own.status_code == 200


def test_metrics_count_requests_by_route_and_show_the_values_of_the_service(
    http: httpx.Client,
) -> None:
    http.get("/notes/not-there")
    page = http.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    counted = 'headrace_tiny_requests_total{method="GET",path="/notes/{name}",status="404"} '
    assert counted in page.text
    route = 'method="GET",path="/notes/{name}"'
    assert f'headrace_tiny_request_seconds_bucket{{{route},le="+Inf"}} ' in page.text
    assert f"headrace_tiny_request_seconds_sum{{{route}}} " in page.text
    notes = (
        "# HELP headrace_tiny_notes Notes.\n# TYPE headrace_tiny_notes gauge\nheadrace_tiny_notes "
    )
    assert notes in page.text
    assert "\nprocess_resident_memory_bytes " in page.text


@needs_prometheus
def test_prometheus_has_no_complaints_about_the_metrics_of_a_service(http: httpx.Client) -> None:
    http.get("/notes/not-there")
    assert complaints(http.get("/metrics").text) == []


def test_health_of_a_service_that_is_ready(http: httpx.Client) -> None:
    assert http.get("/health/live").json() == {"status": "UP"}
    assert http.get("/health/ready").json() == {"status": "UP"}
    detailed = http.get("/health")
    assert detailed.status_code == 200
    assert detailed.json().keys() == {"status", "notes"}


def test_a_service_that_is_not_ready_is_live_and_says_what_is_wrong() -> None:
    with running(problem="the disk is full") as service:
        assert service.http.get("/health/live").status_code == 200
        ready = service.http.get("/health/ready")
        assert (ready.status_code, ready.json()["message"]) == (503, "the disk is full")
        detailed = service.http.get("/health")
        assert detailed.status_code == 503
        assert detailed.json() == {
            "error_code": 503, "message": "the disk is full", "status": "DOWN", "notes": 0,
        }  # fmt: skip


def test_the_principal_that_authentication_returns_is_known_to_the_handler(
    guarded: httpx.Client,
) -> None:
    answer = guarded.put("/notes/a", json=1, headers=TOKEN)
    assert answer.json() == {"name": "a", "by": "User:alice"}


@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT", "/notes/b"), ("GET", "/notes/b"), ("GET", "/metrics"), ("GET", "/health")],
)
def test_a_request_without_credentials_is_rejected_before_its_body_is_read(
    guarded: httpx.Client, method: str, path: str
) -> None:
    answer = guarded.request(method, path, content=b"x" * 2 * BODY_BYTES)
    assert (answer.status_code, answer.json()["error_code"]) == (401, 401)
    assert answer.headers["www-authenticate"] == "Bearer"


def test_probes_need_no_credentials(guarded: httpx.Client) -> None:
    assert guarded.get("/health/live").status_code == 200
    assert guarded.get("/health/ready").status_code == 200
    assert guarded.get("/health", headers=TOKEN).json()["status"] == "UP"
    assert guarded.get("/metrics", headers=TOKEN).status_code == 200
