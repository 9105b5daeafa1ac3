"""Sends requests to the worker that owns a connector, with the credentials of the client."""

import asyncio
import http.client
import json
import ssl
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

FORWARDED = "x-headrace-forwarded"
"""A request header: another worker has sent it here, so it is not forwarded again."""
CONNECT_S = 5.0
AT_ONCE = 16
MOST_ANSWER_BYTES = 32_000_000


class OwnerUnreachable(Exception):
    """The other worker does not respond."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent
        """Whether the request may have been carried out."""


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """A request for another worker."""

    method: str
    target: str
    """Path and query."""
    body: bytes
    authorization: bytes | None

    def headers(self) -> dict[str, str | bytes]:
        found: dict[str, str | bytes] = {
            FORWARDED: "true",
            "accept": "application/json",
            "content-type": "application/json",
        }
        if self.authorization is not None:
            found["authorization"] = self.authorization
        return found


@dataclass(frozen=True, slots=True)
class ForwardedAnswer:
    """The response of the other worker."""

    status: int
    body: object
    """The parsed JSON; None without a body."""
    headers: Mapping[str, str]
    """Names in lower case."""


class Forwarder:
    """Requests to other workers, in threads of their own."""

    def __init__(self, tls: Callable[[], ssl.SSLContext] | None) -> None:
        """`tls` makes the context for workers with HTTPS."""
        self._tls = tls
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="connect-forward")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def send(self, url: str, request: ForwardedRequest, timeout_s: float) -> ForwardedAnswer:
        """The response of the worker at a URL; OwnerUnreachable if there is none."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._send, url, request, timeout_s)

    def _send(self, url: str, request: ForwardedRequest, timeout_s: float) -> ForwardedAnswer:
        place = urlsplit(url)
        assert place.hostname is not None, f"a worker has the URL {url!r}"
        if place.scheme == "https":
            context = ssl.create_default_context() if self._tls is None else self._tls()
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                place.hostname, place.port, timeout=CONNECT_S, context=context
            )
        else:
            connection = http.client.HTTPConnection(place.hostname, place.port, timeout=CONNECT_S)
        try:
            try:
                connection.connect()
            except OSError as error:
                raise OwnerUnreachable(
                    f"Worker {place.netloc} does not respond: {error}", sent=False
                ) from None
            connection.sock.settimeout(timeout_s)
            try:
                connection.request(
                    request.method, request.target, request.body or None, request.headers()
                )
                return _parsed(connection.getresponse())
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise OwnerUnreachable(
                    f"Worker {place.netloc} did not answer: {error}", sent=True
                ) from None
        finally:
            connection.close()


def _parsed(answer: http.client.HTTPResponse) -> ForwardedAnswer:
    text = answer.read(MOST_ANSWER_BYTES)
    headers = {name.lower(): value for name, value in answer.getheaders()}
    return ForwardedAnswer(answer.status, json.loads(text) if text else None, headers)
