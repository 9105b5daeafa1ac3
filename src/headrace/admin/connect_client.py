"""The client of Kafka Connect's REST interface, which Headrace's own Connect has, too."""

import base64
import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlencode, urlsplit

ANSWER_TIMEOUT_S = 30.0
MOST_ANSWER_BYTES = 32_000_000
UNSENT = (ConnectionRefusedError, socket.gaierror)
"""Errors before a request is sent: no such port, no such host."""


class ConnectError(Exception):
    """Connect does not answer, or answers with an error."""

    def __init__(self, message: str, status: int = 0, *, unsent: bool = False) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status; 0 without an answer."""
        self.unsent = unsent
        """Whether the request has certainly not been carried out."""


@dataclass(frozen=True, slots=True)
class ConnectRest:
    """The address and credentials of a Connect worker. Any worker answers for all."""

    url: str
    """Without user info."""
    user_info: str | None = field(default=None, repr=False)
    """USER:PASSWORD for Basic authentication."""
    token: str | None = field(default=None, repr=False)
    """A bearer token, instead of user and password."""
    ca_file: str | None = None
    """Trusted CA certificates (PEM); by default those of the system."""
    timeout_s: float = ANSWER_TIMEOUT_S

    def request(
        self,
        method: str,
        *path: str,
        body: object = None,
        query: Mapping[str, object] | None = None,
    ) -> object:
        """The answer, or None if it has no body; raises ConnectError."""
        if any(part in ("", ".", "..") for part in path):
            raise ConnectError("Kafka Connect has no connector of this name", 404)
        place = "/".join(quote(part, safe="") for part in path)
        words = f"?{urlencode(query, doseq=True)}" if query else ""
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        elif self.user_info is not None:
            packed = base64.b64encode(self.user_info.encode()).decode()
            headers["Authorization"] = f"Basic {packed}"
        data = None if body is None else json.dumps(body).encode()
        if data is None and method in ("POST", "PUT"):
            data = b""
        request = urllib.request.Request(
            f"{self.url}/{place}{words}", method=method, data=data, headers=headers
        )
        context = None
        if self.url.startswith("https:"):
            context = ssl.create_default_context(cafile=self.ca_file)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s, context=context) as answer:
                return self._parsed(answer.read(MOST_ANSWER_BYTES + 1))
        except urllib.error.HTTPError as error:
            raise ConnectError(_message(error), error.code) from None
        except OSError as error:
            reason = getattr(error, "reason", error)
            text = getattr(reason, "strerror", None) or reason
            message = f"Kafka Connect at {self.url} does not answer: {text}"
            raise ConnectError(message, unsent=isinstance(reason, UNSENT)) from None

    def _parsed(self, text: bytes) -> object:
        if not text:
            return None
        if len(text) > MOST_ANSWER_BYTES:
            raise ConnectError(f"{self.url} answered with more than {MOST_ANSWER_BYTES} bytes")
        try:
            found: object = json.loads(text)
        except ValueError:
            message = f"{self.url} is not Kafka Connect: its answer is not JSON"
            raise ConnectError(message) from None
        return found


def make_connect_client(
    url: str,
    user_info: str | None,
    token: str | None,
    ca_file: str | None,
    *,
    timeout_s: float = ANSWER_TIMEOUT_S,
) -> ConnectRest:
    """The client for a URL, which may contain USER:PASSWORD; ValueError if it is not a URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not a URL such as http://localhost:8083")
    given, at, host = parts.netloc.rpartition("@")
    shown = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
    login = user_info or (unquote(given) if at else None)
    return ConnectRest(shown, login, token, ca_file, timeout_s)


def _message(error: urllib.error.HTTPError) -> str:
    """Connect's own message, if there is one."""
    try:
        found = json.loads(error.read(1_000_000))
    except (OSError, ValueError):
        found = None
    message = found.get("message") if isinstance(found, dict) else None
    return str(message) if message else f"Kafka Connect answered with status {error.code}"
