"""Which requests a webhook takes: credentials, and bounds of what it has in memory."""

import asyncio
import hashlib
import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.requests import Request

BODY_WITHIN_S = 30.0
REQUEST_BYTES = 1024
"""What a request takes besides its body."""


class Refused(Exception):
    """A request that is not taken, with the status of its response."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Admission:
    """Bounds the bytes of requests that are being received or wait. Used by one event loop."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0

    @contextmanager
    def admitted(self, request: "Request", most: int) -> Iterator[None]:
        """Reserves what the request says, or the most that its body may have."""
        said = request.headers.get("content-length", "")
        size = int(said) if said.isascii() and said.isdecimal() else most
        if size > most:
            raise Refused(413, f"the body has more than {most} bytes")
        size += REQUEST_BYTES
        # One request is always taken, whatever the bound is.
        if self._bytes and self._bytes + size > self._max_bytes:
            raise Refused(503, "too many requests wait; send it again later")
        self._bytes += size
        try:
            yield
        finally:
            self._bytes -= size


async def read_body(request: "Request", most: int) -> bytes:
    """The body; Refused if it is longer, or does not arrive in time."""
    from starlette.requests import ClientDisconnect

    found = bytearray()
    try:
        async with asyncio.timeout(BODY_WITHIN_S):
            async for chunk in request.stream():
                found += chunk
                if len(found) > most:
                    raise Refused(413, f"the body has more than {most} bytes")
    except TimeoutError:
        raise Refused(408, "the body did not arrive in time") from None
    except ClientDisconnect:
        raise Refused(400, "the body is incomplete") from None
    return bytes(found)


def is_token(given: str, token: str) -> bool:
    """Whether a header Authorization has the token."""
    kind, _, found = given.partition(" ")
    return kind.lower() == "bearer" and _equal(found.strip(), token)


def is_signed(body: bytes, given: str, secret: str) -> bool:
    """Whether a header has the signature of the body: `sha256=` and the digest."""
    expected = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return _equal(given.strip().lower(), f"sha256={expected}")


def _equal(given: str, expected: str) -> bool:
    """In a time that does not tell how much is right."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())
