"""Fetches small documents of an OAuth provider: https, http and file, without redirects.

The calls block; brokers make them in worker threads. Certificates are checked against the system's
authorities, or those in the file of SSL_CERT_FILE.
"""

from collections.abc import Mapping
from functools import cache
from time import monotonic
from typing import IO, TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    import urllib.request

TIMEOUT_S = 10.0
LARGEST_BYTES = 1 << 20
SCHEMES = ("https", "http", "file")


def url_problem(url: str) -> str:
    """The reason why a URL is not valid; empty if it is valid."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return str(error)
    if parts.scheme not in SCHEMES:
        return f"it must begin with one of {', '.join(f'{one}://' for one in SCHEMES)}"
    if parts.scheme == "file":
        return "" if parts.path.startswith("/") and not parts.netloc else "expected file:///PATH"
    if parts.username is not None or port == 0 or not parts.hostname:
        return "expected https://HOST[:PORT]/PATH"
    return ""


def fetch(url: str, form: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
    """The document at a URL, or the response to a form; OSError without one in time."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        with open(unquote(parts.path), "rb") as file:
            return _bounded(file, monotonic() + TIMEOUT_S)
    import urllib.request
    from http.client import HTTPException

    request = urllib.request.Request(
        url, form, {"Accept": "application/json", "Connection": "close", **(headers or {})}
    )
    ends_at = monotonic() + TIMEOUT_S
    try:
        with _opener().open(request, timeout=TIMEOUT_S) as answer:
            return _bounded(answer, ends_at)
    except HTTPException as error:
        raise OSError(f"invalid HTTP response: {error!r}") from error


@cache
def _opener() -> "urllib.request.OpenerDirector":
    import urllib.request  # imported here, so that a client without tokens starts faster

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        """Refuses redirects, which could lead from https to http or to an unknown host."""

        def redirect_request(self, *_: object) -> None:
            return None

    return urllib.request.build_opener(NoRedirects)


def _bounded(source: IO[bytes], ends_at: float) -> bytes:
    parts = bytearray()
    while chunk := source.read1(1 << 16):  # type: ignore[attr-defined]
        parts += chunk
        if len(parts) > LARGEST_BYTES:
            raise OSError(f"it has more than {LARGEST_BYTES} bytes")
        if monotonic() > ends_at:
            raise TimeoutError(f"it was not complete within {TIMEOUT_S:g} s")
    return bytes(parts)
