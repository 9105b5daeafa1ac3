"""The client of a Connect worker, ours or Kafka's, for the commands."""

import base64
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import quote, urlencode

import typer

from headrace.cli.failures import ExitCode, Failure, not_found
from headrace.cli.option_table import CLUSTER_PANEL

DEFAULT_CONNECT = "http://localhost:8083"
USER_INFO_VARIABLE = "HEADRACE_CONNECT_USER_INFO"
TOKEN_VARIABLE = "HEADRACE_CONNECT_TOKEN"
CA_VARIABLE = "HEADRACE_CONNECT_CA"
TIMEOUT_S = 90.0
"""Longer than a worker takes to check a configuration."""

ConnectOption = Annotated[
    str,
    typer.Option(
        "--connect",
        "-c",
        envvar="HEADRACE_CONNECT",
        metavar="URL",
        help=f"A Connect worker. USER:PASSWORD is read from {USER_INFO_VARIABLE} or a token from "
        f"{TOKEN_VARIABLE}, a file of CA certificates from {CA_VARIABLE}.",
        rich_help_panel=CLUSTER_PANEL,
    ),
]


class ConnectClient:
    """Requests to one worker; a Failure if it refuses one."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/") if "://" in url else f"http://{url}".rstrip("/")
        self._headers = {"accept": "application/json", **_login(os.environ)}
        ca = os.environ.get(CA_VARIABLE)
        self._tls = ssl.create_default_context(cafile=ca) if ca else None

    def get(self, *path: str, **query: str | list[str]) -> object:
        return self.send("GET", path, query=query)

    def put(self, *path: str, body: object = None) -> object:
        return self.send("PUT", path, body)

    def post(self, *path: str, body: object = None, **query: str) -> object:
        return self.send("POST", path, body, query)

    def patch(self, *path: str, body: object) -> object:
        return self.send("PATCH", path, body)

    def delete(self, *path: str) -> object:
        return self.send("DELETE", path)

    def send(
        self,
        method: str,
        path: tuple[str, ...],
        body: object = None,
        query: Mapping[str, str | list[str]] | None = None,
    ) -> object:
        """The JSON of the response; None if it has no body."""
        url = "/".join((self._url, *(quote(part, safe="") for part in path)))
        if query:
            url += "?" + urlencode(query, doseq=True)
        data = None if body is None else json.dumps(body).encode()
        headers = dict(self._headers)
        if data is not None:
            headers["content-type"] = "application/json"
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._tls) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise _refused(error.code, error.read()) from None
        except (urllib.error.URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise Failure(
                f"no Connect worker responds at {self._url}: {reason}",
                exit_code=ExitCode.UNREACHABLE,
                code="UNREACHABLE",
                hint="Start one with `headrace connect serve`, or name one with --connect URL.",
            ) from None
        return json.loads(text) if text else None


def _refused(status: int, body: bytes) -> Failure:
    try:
        message = str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        message = f"the worker answered with HTTP status {status}"
    if status == 404:
        return not_found(message, "`headrace connect list` shows the connectors.")
    return Failure(message, code=f"HTTP_{status}")


def _login(env: Mapping[str, str]) -> dict[str, str]:
    if user := env.get(USER_INFO_VARIABLE):
        return {"authorization": "Basic " + base64.b64encode(user.encode()).decode()}
    if token := env.get(TOKEN_VARIABLE):
        return {"authorization": f"Bearer {token}"}
    return {}
