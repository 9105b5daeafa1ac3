"""The client of a SQL server's REST interface: Headrace's, or ksqlDB with the same paths.

Its methods block, so the console calls them in threads. Rows of a query are read in one thread,
and another one may end the query at any moment.
"""

import base64
import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

DELIMITED = "application/vnd.ksqlapi.delimited.v1"
KSQL_JSON = "application/vnd.ksql.v1+json"
ROLE_HEADER = "x-headrace-role"
"""Limits a request to the statements of a role. ksqlDB ignores it."""
CONNECT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 180.0
"""Longer than Spark takes to start, which the first statement may wait for."""
MOST_ANSWER_BYTES = 32_000_000
MOST_LINE_BYTES = 8_000_000


class SqlRestError(Exception):
    """The server does not answer, or refuses a statement."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        """The HTTP status; 0 without an answer."""


class SqlRows:
    """The open response of a query."""

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
        url: str,
    ) -> None:
        self._connection = connection
        self._socket = connection.sock
        self._response = response
        self._url = url
        self._is_closed = False

    def lines(self) -> Iterator[str]:
        """The lines as they come, until the query ends; SqlRestError if the connection is lost."""
        try:
            while line := self._response.readline(MOST_LINE_BYTES + 1):
                if len(line) > MOST_LINE_BYTES:
                    raise SqlRestError(f"A row has more than {MOST_LINE_BYTES} bytes")
                yield line.decode(errors="replace").rstrip("\n")
        except (OSError, ValueError, AttributeError, http.client.HTTPException) as error:
            # Closing it from another thread makes any of these of the read.
            if not self._is_closed:
                raise SqlRestError(f"The connection to {self._url} was lost: {error}") from None
        finally:
            self._connection.close()

    def close(self) -> None:
        """Ends the query, and wakes a thread that waits for a row."""
        self._is_closed = True
        # The server may have closed it first.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True, slots=True)
class SqlRest:
    """The address and credentials of a server."""

    url: str
    """Without user info."""
    user_info: str | None = field(default=None, repr=False)
    """USER:PASSWORD for Basic authentication."""
    token: str | None = field(default=None, repr=False)
    """A bearer token, instead of user and password."""
    ca_file: str | None = None
    """Trusted CA certificates (PEM); by default those of the system."""

    def info(self) -> Mapping[str, Any]:
        """Name, version and state of the server."""
        found = self._parsed("GET", "/info", None, {})
        info = found.get("KsqlServerInfo") if isinstance(found, dict) else None
        if not isinstance(info, dict):
            raise SqlRestError(f"{self.url} is not a SQL server")
        return info

    def run(
        self, text: str, properties: Mapping[str, str], role: str = ""
    ) -> list[Mapping[str, Any]]:
        """The results of statements. `role` limits what they may be."""
        body = {"ksql": text, "streamsProperties": dict(properties)}
        found = self._parsed("POST", "/ksql", body, _limit(role))
        return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []

    def query(self, text: str, properties: Mapping[str, str]) -> SqlRows:
        """The rows of a SELECT or PRINT. Returns when the query has started."""
        body = {"sql": text, "properties": dict(properties)}
        headers = {"accept": DELIMITED, **_limit("read")}
        connection, response = self._send("POST", "/query-stream", body, headers)
        # A push query may have no row for days.
        connection.sock.settimeout(None)
        return SqlRows(connection, response, self.url)

    def _parsed(self, method: str, path: str, body: object, headers: Mapping[str, str]) -> object:
        connection, response = self._send(method, path, body, headers)
        try:
            text = response.read(MOST_ANSWER_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise SqlRestError(f"The connection to {self.url} was lost: {error}") from None
        finally:
            connection.close()
        if len(text) > MOST_ANSWER_BYTES:
            raise SqlRestError(f"{self.url} answered with more than {MOST_ANSWER_BYTES} bytes")
        try:
            found: object = json.loads(text)
        except ValueError:
            raise SqlRestError(f"{self.url} is not a SQL server: its answer is not JSON") from None
        return found

    def _send(
        self, method: str, path: str, body: object, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        parts = urlsplit(self.url)
        assert parts.hostname is not None, "make_sql_client checks the URL"
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=self.ca_file)
            connection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=CONNECT_TIMEOUT_S, context=context
            )
        else:
            connection = http.client.HTTPConnection(
                parts.hostname, parts.port, timeout=CONNECT_TIMEOUT_S
            )
        data = None if body is None else json.dumps(body).encode()
        try:
            connection.connect()
            connection.sock.settimeout(ANSWER_TIMEOUT_S)
            connection.request(method, parts.path + path, data, {**self._headers(), **headers})
            response = connection.getresponse()
            if response.status >= 400:
                raise SqlRestError(_message(response), response.status)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise SqlRestError(f"The SQL server at {self.url} does not answer: {reason}") from None
        except BaseException:
            connection.close()
            raise
        return connection, response

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": KSQL_JSON, "accept": "application/json"}
        if self.token is not None:
            headers["authorization"] = f"Bearer {self.token}"
        elif self.user_info is not None:
            packed = base64.b64encode(self.user_info.encode()).decode()
            headers["authorization"] = f"Basic {packed}"
        return headers


def make_sql_client(
    url: str, user_info: str | None, token: str | None, ca_file: str | None
) -> SqlRest:
    """The client for a URL, which may contain USER:PASSWORD; ValueError if it is not a URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not a URL such as http://localhost:8088")
    given, at, host = parts.netloc.rpartition("@")
    shown = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
    return SqlRest(shown, user_info or (unquote(given) if at else None), token, ca_file)


def _limit(role: str) -> dict[str, str]:
    return {ROLE_HEADER: role} if role else {}


def _message(response: http.client.HTTPResponse) -> str:
    """The server's own message, if there is one."""
    try:
        found = json.loads(response.read(1_000_000))
    except (OSError, ValueError, http.client.HTTPException):
        found = None
    message = found.get("message") if isinstance(found, dict) else None
    return str(message) if message else f"The SQL server answered with status {response.status}"
