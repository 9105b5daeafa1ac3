"""The client of a Connect worker, ours or Kafka's, for the commands."""

import os
from collections.abc import Mapping
from typing import Annotated

import typer

from headrace.admin.connect_client import ConnectError, make_connect_client
from headrace.cli.failures import ExitCode, Failure, bad_usage, not_found
from headrace.cli.option_table import CLUSTER_PANEL

DEFAULT_CONNECT = "http://localhost:8083"
USER_INFO_VARIABLE = "HEADRACE_CONNECT_USER_INFO"
TOKEN_VARIABLE = "HEADRACE_CONNECT_TOKEN"
CA_VARIABLE = "HEADRACE_CONNECT_CA"
LOGIN_VARIABLES = (USER_INFO_VARIABLE, TOKEN_VARIABLE, CA_VARIABLE)
TIMEOUT_S = 90.0
"""Longer than a worker takes to check a configuration."""

ConnectOption = Annotated[
    str,
    typer.Option(
        "--connect",
        "-c",
        envvar="HEADRACE_CONNECT",
        metavar="URL",
        help="A Connect worker; of several, separated by commas, the first that responds. "
        f"USER:PASSWORD is read from {USER_INFO_VARIABLE} or a token from "
        f"{TOKEN_VARIABLE}, a file of CA certificates from {CA_VARIABLE}.",
        rich_help_panel=CLUSTER_PANEL,
    ),
]


class ConnectClient:
    """Requests to a worker, or to the first of several that responds; a Failure if it refuses."""

    def __init__(self, urls: str) -> None:
        login = [os.environ.get(name) or None for name in LOGIN_VARIABLES]
        words = [url.strip() for url in urls.split(",") if url.strip()] or [urls]
        try:
            self._workers = [
                make_connect_client(
                    url if "://" in url else f"http://{url}", *login, timeout_s=TIMEOUT_S
                )
                for url in words
            ]
        except ValueError as error:
            raise bad_usage(f"--connect: {error}") from None

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
        trouble: list[str] = []
        for worker in list(self._workers):
            try:
                return worker.request(method, *path, body=body, query=query)
            except ConnectError as error:
                # What may have been carried out is not asked of another worker.
                if error.status or (method != "GET" and not error.unsent):
                    raise _failure(error) from None
                trouble.append(str(error))
                # Further requests begin with the next worker.
                self._workers.append(self._workers.pop(0))
        raise _failure(ConnectError("; ".join(trouble)))


def _failure(error: ConnectError) -> Failure:
    if error.status == 404:
        return not_found(str(error), "`headrace connect list` shows the connectors.")
    if error.status:
        return Failure(str(error), code=f"HTTP_{error.status}")
    return Failure(
        str(error),
        exit_code=ExitCode.UNREACHABLE,
        code="UNREACHABLE",
        hint="Start one with `headrace connect serve`, or name one with --connect URL.",
    )
