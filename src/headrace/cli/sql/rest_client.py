"""The client of a SQL server, ours or ksqlDB, for the commands."""

import base64
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from headrace.cli.failures import ExitCode, Failure, bad_usage
from headrace.cli.option_table import CLUSTER_PANEL

DEFAULT_SERVER = "http://localhost:8088"
USER_INFO_VARIABLE = "HEADRACE_SQL_USER_INFO"
TOKEN_VARIABLE = "HEADRACE_SQL_TOKEN"
CA_VARIABLE = "HEADRACE_SQL_CA"
LOGIN_VARIABLES = (USER_INFO_VARIABLE, TOKEN_VARIABLE, CA_VARIABLE)
KSQL_JSON = "application/vnd.ksql.v1+json"
DELIMITED = "application/vnd.ksqlapi.delimited.v1"
TIMEOUT_S = 180.0
"""Longer than Spark takes to start, which the first statement may wait for."""

ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        "-s",
        envvar="HEADRACE_SQL",
        metavar="URL",
        help=f"The SQL server; by default {DEFAULT_SERVER}, or one for this command if none "
        f"responds there. USER:PASSWORD is read from {USER_INFO_VARIABLE} or a token from "
        f"{TOKEN_VARIABLE}, a file of CA certificates from {CA_VARIABLE}.",
        rich_help_panel=CLUSTER_PANEL,
    ),
]


class ServerUnreachable(Failure):
    """No server responds."""

    def __init__(self, url: str, reason: object) -> None:
        super().__init__(
            f"the SQL server at {url} does not respond: {reason}",
            exit_code=ExitCode.UNREACHABLE,
            code="UNREACHABLE",
            hint="Start one with `headrace sql serve`, or name one with --server URL.",
        )


class StatementFailed(Failure):
    """The server refuses a statement."""

    def __init__(self, error: Mapping[str, Any], status: int) -> None:
        code = error.get("error_code", status)
        super().__init__(str(error.get("message") or f"HTTP {status}"), code=str(code))
        self.statement = error.get("statementText")
        found = error.get("entities")
        self.done: list[dict[str, Any]] = found if isinstance(found, list) else []


class SqlClient:
    """Requests to one server."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise bad_usage(f"--server {url!r} is not a URL", f"Example: {DEFAULT_SERVER}.")
        self.url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        self._headers = {"content-type": KSQL_JSON}
        login = os.environ.get(USER_INFO_VARIABLE) or parts.netloc.rpartition("@")[0]
        if token := os.environ.get(TOKEN_VARIABLE):
            self._headers["authorization"] = f"Bearer {token}"
        elif login:
            packed = base64.b64encode(login.encode()).decode()
            self._headers["authorization"] = f"Basic {packed}"
        self._context: ssl.SSLContext | None = None
        if parts.scheme == "https":
            self._context = ssl.create_default_context(cafile=os.environ.get(CA_VARIABLE) or None)

    def info(self) -> dict[str, Any]:
        """Name and version of the server."""
        found = json.loads(self._request("GET", "/info").read())
        info: dict[str, Any] = found["KsqlServerInfo"]
        return info

    def run(
        self, text: str, properties: Mapping[str, str], variables: Mapping[str, str]
    ) -> list[dict[str, Any]]:
        """The results of statements."""
        body = {"ksql": text, "streamsProperties": properties, "sessionVariables": variables}
        found: list[dict[str, Any]] = json.loads(self._request("POST", "/ksql", body).read())
        return found

    def query(
        self, text: str, properties: Mapping[str, str], variables: Mapping[str, str]
    ) -> Generator[str, None, None]:
        """The lines of a query's response; closing the iterator ends the query."""
        body = {"sql": text, "properties": properties, "sessionVariables": variables}
        # A push query may have no row for days.
        with self._request("POST", "/query-stream", body, DELIMITED, None) as response:
            for line in response:
                yield line.decode().rstrip("\n")

    def export(self) -> str:
        """All statements as a script."""
        text: str = self._request("GET", "/headrace/export").read().decode()
        return text

    def _request(
        self,
        method: str,
        path: str,
        body: object = None,
        accept: str = "application/json",
        timeout_s: float | None = TIMEOUT_S,
    ) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, "accept": accept}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            return urllib.request.urlopen(request, timeout=timeout_s, context=self._context)
        except urllib.error.HTTPError as error:
            raise StatementFailed(_json(error.read()), error.code) from None
        except (OSError, ValueError) as error:
            raise ServerUnreachable(self.url, getattr(error, "reason", error)) from None


def _json(text: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}
