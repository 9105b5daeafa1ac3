"""Tokens for the client's login with OAUTHBEARER.

They come from a file, which is read for each login, or from an OAuth provider by the grant
`client_credentials` (RFC 6749, section 4.4). Tokens of a provider are reused for most of their
lifetime. The calls block; the asyncio connection makes them in a thread.
"""

import base64
import json
import re
import threading
from dataclasses import dataclass, field
from time import monotonic
from urllib.parse import quote_plus, urlencode

from headrace.client.errors import ClientError, Unreachable
from headrace.security.web_fetch import fetch, url_problem

_USED_PART = 0.8
"""The part of a token's lifetime after which the next one is fetched."""
_MOST_CACHED = 100
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")


@dataclass(frozen=True, slots=True)
class TokenSource:
    """The source of tokens: a provider, or a file if there is no client id."""

    url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""

    def problem(self) -> str:
        """The reason why this source is invalid; empty if it is valid."""
        why = url_problem(self.url)
        if not why and not self.url.startswith("file:") and not self.client_id:
            why = "a provider needs a client id and a client secret"
        return why


_lock = threading.Lock()
_cached: dict[TokenSource, tuple[str, float]] = {}
"""Cached tokens of providers, with the time until which each is used."""


def bearer_token(source: TokenSource) -> str:
    """A token for a login; Unreachable without a response, ClientError without a token."""
    if source.url.startswith("file:"):
        return _checked(_fetch(source).decode(errors="replace").strip(), source)
    with _lock:
        token, ends_at = _cached.get(source, ("", 0.0))
    if monotonic() < ends_at:
        return token
    token, lifetime_s = _parse(_fetch(source), source)
    with _lock:
        if len(_cached) >= _MOST_CACHED:
            _cached.clear()
        _cached[source] = (token, monotonic() + lifetime_s * _USED_PART)
    return token


def _fetch(source: TokenSource) -> bytes:
    from urllib.error import (
        HTTPError,
    )  # imported here, so that a client without tokens starts faster

    form = headers = None
    if not source.url.startswith("file:"):
        fields = {"grant_type": "client_credentials"}
        if source.scope:
            fields["scope"] = source.scope
        form = urlencode(fields).encode()
        pair = f"{quote_plus(source.client_id)}:{quote_plus(source.client_secret)}"
        headers = {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    try:
        return fetch(source.url, form, headers)
    except HTTPError as error:
        error.close()
        why = f"{source.url} refused a token for the client {source.client_id!r}: HTTP {error.code}"
        raise (Unreachable(why) if error.code >= 500 else ClientError(why)) from None
    except OSError as error:
        raise Unreachable(f"cannot get a token from {source.url}: {error}") from error


def _parse(answer: bytes, source: TokenSource) -> tuple[str, float]:
    try:
        fields = json.loads(answer)
        token, lifetime_s = fields["access_token"], float(fields.get("expires_in", 60))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ClientError(f"the response of {source.url} has no access_token") from None
    return _checked(str(token), source), lifetime_s


def _checked(token: str, source: TokenSource) -> str:
    if not _TOKEN.fullmatch(token):
        raise ClientError(f"{source.url} contains no valid token")
    return token
