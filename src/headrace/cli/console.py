"""`headrace console`: starts the web console for a Kafka cluster."""

import os
from typing import TYPE_CHECKING

from headrace.cli import services
from headrace.cli.failures import bad_usage
from headrace.cli.option_table import CommandOption, ProcessCommand

if TYPE_CHECKING:
    from headrace.admin.connect_client import ConnectRest
    from headrace.admin.sql_client import SqlRest
    from headrace.console.console_request import ConsoleRequest
    from headrace.service.http_service import HttpService

DEFAULT_LISTEN = "127.0.0.1:8080"
LOOPBACK = ("127.", "localhost", "::1")
"""As for `headrace connect`."""
WORDS = ("console",)
SUMMARY = "Start a web console for a Kafka cluster."
DETAILS = """
The console shows topics, records, consumer groups, schemas and Spark queries. It is an ordinary
Kafka client and also shows Apache Kafka. It stores nothing.
"""
EXAMPLES = (
    "headrace console",
    "headrace console --bootstrap kafka.lan:9092 --registry http://kafka.lan:8081",
    "headrace console --client-config security/admin.properties --read-only",
)
OPTIONS = services.service_options(
    CommandOption(
        "--listen", "HOST:PORT", "Address for browsers; port 0 picks a free one.",
        env="HEADRACE_CONSOLE_LISTEN", shown_default=DEFAULT_LISTEN,
    ),
    CommandOption(
        "--registry", "URL", "Schema registry that decodes values and whose schemas are shown.",
        env="HEADRACE_REGISTRY",
    ),
    CommandOption(
        "--connect", "URL", "Kafka Connect whose connectors are shown.", env="HEADRACE_CONNECT"
    ),
    CommandOption("--sql", "URL", "SQL server for the SQL page.", env="HEADRACE_SQL"),
    CommandOption("--read-only", "", "Disable all changes."),
    CommandOption("--metrics", "", "Add kafka_exporter's metrics of the cluster to /metrics."),
    CommandOption(
        "--metrics-url", "URL[,URL...]",
        "The /metrics pages of the brokers, for the metrics that clients push.",
    ),
    CommandOption(
        "--insecure", "", "Listen on an address that other machines reach, without a login."
    ),
)  # fmt: skip
SETTINGS = {
    "--registry": "schema.registry.url",
    "--connect": "console.connect.url",
    "--sql": "console.sql.url",
    "--read-only": "console.read.only",
    "--metrics": "console.metrics",
    "--metrics-url": "console.metrics.urls",
}


def start(words: list[str]) -> int:
    """Runs a console until a signal; returns its exit code."""
    from headrace.settings.service_table import CONSOLE_TABLE

    found = services.read_command_line(WORDS, OPTIONS, CONSOLE_TABLE, words, SETTINGS)
    host, _ = found.settings.listen
    without_login = found.settings.words("authentication.method") == ("NONE",)
    if without_login and not found.given.switched("--insecure") and not host.startswith(LOOPBACK):
        raise bad_usage(
            f"{host} can be reached from other machines, and the console has no login",
            "Listen on 127.0.0.1, set authentication.method, or add --insecure.",
        )

    def build() -> "HttpService[ConsoleRequest]":
        from headrace.cli.schemas.registry_client import make_client
        from headrace.console.consoles import Consoles
        from headrace.console.http_service import console_service
        from headrace.console.options import read_options

        url = found.settings.text("schema.registry.url")
        registry = make_client(url) if url else None
        connect = _connect_client(found.settings.text("console.connect.url"))
        sql = _sql_client(found.settings.text("console.sql.url"))
        options = read_options(found.settings, found.properties, registry, connect, sql)
        return console_service(Consoles(options), host)

    return services.serve("console", build, found)


def _connect_client(url: str) -> "ConnectRest | None":
    if not url:
        return None
    from headrace.admin.connect_client import make_connect_client
    from headrace.cli.connect.rest_client import LOGIN_VARIABLES

    try:
        given = (os.environ.get(name) or None for name in LOGIN_VARIABLES)
        return make_connect_client(url, *given)
    except ValueError as error:
        raise bad_usage(f"--connect {error}") from None


def _sql_client(url: str) -> "SqlRest | None":
    if not url:
        return None
    from headrace.admin.sql_client import make_sql_client
    from headrace.cli.sql.rest_client import LOGIN_VARIABLES

    try:
        given = (os.environ.get(name) or None for name in LOGIN_VARIABLES)
        return make_sql_client(url, *given)
    except ValueError as error:
        raise bad_usage(f"--sql {error}") from None


COMMAND = ProcessCommand(WORDS, SUMMARY, DETAILS, EXAMPLES, OPTIONS, start)
