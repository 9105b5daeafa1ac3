"""Responses that are not JSON: content, streams, pages, and the checks that pages need."""

import time
from collections.abc import Iterator

import httpx
import pytest

from tests.service.running import running


def test_content_has_its_own_media_type_and_headers(http: httpx.Client) -> None:
    answer = http.get("/picture")
    assert (answer.content, answer.headers["content-type"]) == (b"\x89PNG", "image/png")
    assert answer.headers["x-picture"] == "1"


def test_a_stream_arrives_while_it_is_produced_and_ends_with_its_client(http: httpx.Client) -> None:
    with http.stream("GET", "/ticks") as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        lines = answer.iter_lines()
        assert [next(lines) for _ in range(4)] == ["data: tick", "", "data: tick", ""]
    deadline = time.monotonic() + 60
    while http.get("/notes/closed").status_code != 200:
        assert time.monotonic() < deadline, "the generator was not closed"
        time.sleep(0.05)


def test_an_open_stream_does_not_delay_a_stop() -> None:
    with running(graceful_stop_s=250) as service, service.http.stream("GET", "/ticks") as answer:
        lines = answer.iter_lines()
        assert next(lines) == "data: tick"
        service.terminate()
        # The response ends whole: the client can tell a stop from a broken connection.
        assert set(lines) <= {"data: tick", ""}
        code, output, _ = service.end()
    assert (code, output) == (0, "stopped\n")


@pytest.fixture(scope="module")
def pages() -> Iterator[httpx.Client]:
    with running(pages=True) as service:
        yield service.http


def test_paths_without_a_row_get_the_page_and_other_methods_do_not(pages: httpx.Client) -> None:
    assert pages.get("/topics/a%2Fb").text == "page of /topics/a%2Fb"
    assert pages.get("/notes/none").status_code == 404
    assert pages.post("/topics/a").status_code == 404


@pytest.mark.parametrize("path", ["/picture", "/topics", "/notes/none", "/ticks"])
def test_every_response_has_the_headers_of_the_service(pages: httpx.Client, path: str) -> None:
    with pages.stream("GET", path) as answer:
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:99", 200),
        ("evil.example", 403),
        ("evil.example:8080", 403),
        ("[::1]", 200),  # no DNS server can point an address to another one
        ("192.0.2.1:80", 200),
        ("", 403),
    ],
)
def test_host_names_that_are_not_accepted_are_refused(
    pages: httpx.Client, host: str, status: int
) -> None:
    assert pages.get("/picture", headers={"host": host}).status_code == status
