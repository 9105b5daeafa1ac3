"""Credentials, redirects and secrets of the HTTP connectors, against real servers."""

import base64
import logging

import pytest
from starlette.responses import JSONResponse, RedirectResponse, Response

from headrace.connect import PermanentError
from headrace.connect.connectors.http import credentials
from headrace.connect.connectors.http.exchange import HttpExchange, HttpRequest
from tests.support.http_server import HttpServerUnderTest, SeenRequest

SECRET = {"authorization": "Bearer s3cret", "x-api-key": "k3y", "accept": "text/json"}


def get(server: HttpServerUnderTest, config: dict[str, str] | None = None) -> int:
    exchange = HttpExchange(config or {})
    try:
        return exchange.send(HttpRequest("GET", f"{server.url}/a", None, SECRET)).status
    finally:
        exchange.close()


def test_a_login_and_a_token_are_headers(server: HttpServerUnderTest) -> None:
    login = {"connection.user": "u", "connection.password": "p:q", "auth.type": "basic"}
    get(server, login)
    get(server, {"auth.type": "BEARER", "bearer.token": "abc"})
    packed = base64.b64encode(b"u:p:q").decode()
    found = [each.headers["authorization"] for each in server.requests]
    assert found == [f"Basic {packed}", "Bearer abc"]


@pytest.mark.parametrize("mode", ["header", "url"])
def test_a_token_of_oauth_is_requested_once_and_again_when_it_is_refused(
    server: HttpServerUnderTest, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    def answer(request: SeenRequest) -> Response:
        if request.path == "/token":
            tokens.append(f"t{len(tokens)}")
            return JSONResponse({"access_token": tokens[-1], "expires_in": 3600})
        valid = request.headers["authorization"] == f"Bearer {tokens[-1]}"
        return Response(status_code=200 if valid else 401)

    tokens: list[str] = []
    monkeypatch.setattr(credentials, "_tokens", {})
    server.answer = answer
    config = {
        "auth.type": "OAUTH2",
        "oauth2.token.url": f"{server.url}/token",
        "oauth2.client.id": "me",
        "oauth2.client.secret": "s3cret",
        "oauth2.client.auth.mode": mode,
    }
    assert [get(server, config), get(server, config)] == [200, 200]
    assert tokens == ["t0"]
    tokens.append("revoked")
    assert get(server, config) == 200
    asked = server.requests[0]
    assert asked.method == "POST"
    assert b"grant_type=client_credentials" in asked.body
    assert ("authorization" in asked.headers) == (mode == "header")
    assert (b"s3cret" in asked.body) == (mode == "url")


def test_a_redirect_to_another_server_has_no_credentials(
    server: HttpServerUnderTest, other_server: HttpServerUnderTest
) -> None:
    server.answer = lambda request: RedirectResponse(f"{other_server.url}/b", 302)
    # Not even when it comes back.
    other_server.answer = lambda request: (
        Response() if len(other_server.requests) > 1 else RedirectResponse(f"{other_server.url}/c")
    )
    assert get(server, {"auth.type": "BEARER", "bearer.token": "abc"}) == 200
    assert server.requests[0].headers["x-api-key"] == "k3y"
    assert [each.path for each in other_server.requests] == ["/b", "/c"]
    for each in other_server.requests:
        assert not {"authorization", "x-api-key", "cookie"} & set(each.headers)
        assert each.headers["accept"] == "text/json"


def test_a_redirect_within_the_server_keeps_them(server: HttpServerUnderTest) -> None:
    server.answer = lambda request: (
        Response() if request.path == "/b" else RedirectResponse("/b", 301)
    )
    assert get(server) == 200
    assert server.requests[1].headers["x-api-key"] == "k3y"


def test_redirects_end_and_do_not_lose_a_body(server: HttpServerUnderTest) -> None:
    server.answer = lambda request: RedirectResponse("/a", 302)
    with pytest.raises(PermanentError, match="more than 5 times"):
        get(server)
    exchange = HttpExchange({})
    post = HttpRequest("POST", f"{server.url}/a", b"body")
    with pytest.raises(PermanentError, match="redirects POST"):
        exchange.send(post)
    server.answer = lambda request: (
        Response() if request.path == "/b" else RedirectResponse("/b", 308)
    )
    assert exchange.send(post).status == 200
    exchange.close()
    assert (server.requests[-1].method, server.requests[-1].body) == ("POST", b"body")


def test_a_body_is_not_redirected_to_another_server(
    server: HttpServerUnderTest, other_server: HttpServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "_tokens", {})
    server.answer = lambda request: RedirectResponse(f"{other_server.url}/b", 307)
    exchange = HttpExchange({})
    with pytest.raises(PermanentError, match=f"redirects POST to {other_server.url}"):
        exchange.send(HttpRequest("POST", f"{server.url}/a", b"body"))
    exchange.close()
    login = {"oauth2.client.id": "me", "oauth2.client.secret": "s3cret"}
    url = {"oauth2.token.url": f"{server.url}/token", "oauth2.client.auth.mode": "url"}
    with pytest.raises(PermanentError, match="gives no token: status 307"):
        get(server, {"auth.type": "OAUTH2", **login, **url})
    assert other_server.requests == []


def test_a_redirect_to_something_else_is_an_error(server: HttpServerUnderTest) -> None:
    server.answer = lambda request: RedirectResponse("ftp://example.com/", 302)
    with pytest.raises(PermanentError, match="not HTTP"):
        get(server)


def test_secrets_are_in_no_log_and_no_message(
    server: HttpServerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("httpx", "httpcore"):
        caplog.set_level(logging.DEBUG, name)
    server.answer = lambda request: Response(f"bad login {request.headers['authorization']}", 403)
    exchange = HttpExchange({"auth.type": "BEARER", "bearer.token": "s3cret"})
    exchange.hide(["k3y"])
    request = HttpRequest("GET", f"{server.url}/p4th?token=qu3ry", None, {"x-api-key": "k3y"})
    with pytest.raises(PermanentError) as caught:
        exchange.refuse(exchange.send(request))
    exchange.close()
    logged = [each.getMessage() for each in caplog.records if "uvicorn" not in each.name]
    for secret in ("s3cret", "k3y", "p4th", "qu3ry"):
        assert secret not in str(caught.value)
        assert secret not in str(logged)
        assert secret not in repr(request)


def test_a_response_without_end_is_an_error(
    server: HttpServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.connect.connectors.http.exchange.MOST_ANSWER_BYTES", 1000)
    server.answer = lambda request: Response(b"x" * 1001)
    with pytest.raises(PermanentError, match="more than 1000 bytes"):
        get(server)
