"""The client of Connect: its address and its credentials."""

import http.server
import threading
from collections.abc import Iterator

import pytest

from headrace.admin.connect_client import ConnectError, make_connect_client


class _Handler(http.server.BaseHTTPRequestHandler):
    seen: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        self.seen.append((self.path, self.headers["authorization"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"[]" if "connectors" in self.path else b"<html>")

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def address() -> Iterator[str]:
    _Handler.seen = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_credentials_come_from_the_url_or_are_given_and_are_never_shown(address: str) -> None:
    by_url = make_connect_client(f"http://al%40ice:p%3Aw@{address}/", None, None, None)
    by_token = make_connect_client(f"http://{address}", None, "t0ken", None)
    without = make_connect_client(f"http://{address}", None, None, None)
    for client in (by_url, by_token, without):
        assert client.request("GET", "connectors", "a/b", query={"expand": ["x", "y"]}) == []
    path = "/connectors/a%2Fb?expand=x&expand=y"
    assert _Handler.seen == [
        (path, "Basic YWxAaWNlOnA6dw=="),
        (path, "Bearer t0ken"),
        (path, None),
    ]
    assert "p:w" not in repr(by_url)
    assert "t0ken" not in repr(by_token)
    assert by_url.url == f"http://{address}"


def test_something_else_than_connect_is_named(address: str) -> None:
    client = make_connect_client(f"http://{address}", None, None, None)
    with pytest.raises(ConnectError, match="its answer is not JSON"):
        client.request("GET", "other")


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_be_another_path_is_not_sent(address: str, name: str) -> None:
    with pytest.raises(ConnectError):
        make_connect_client(f"http://{address}", None, None, None).request("GET", "a", name)
    assert _Handler.seen == []


@pytest.mark.parametrize("url", ["localhost:8083", "ftp://host", "http://", ""])
def test_what_is_not_a_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="is not a URL"):
        make_connect_client(url, None, None, None)
