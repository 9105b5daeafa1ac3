"""`headrace sql serve`: starts a SQL server for a Kafka cluster."""

import os
from typing import TYPE_CHECKING

from headrace.cli import services
from headrace.cli.failures import bad_usage
from headrace.cli.option_table import CommandOption, ProcessCommand

if TYPE_CHECKING:
    from headrace.admin.connect_client import ConnectRest
    from headrace.schemas.client import SchemaClient
    from headrace.service.http_service import HttpService
    from headrace.sql.rest.call import SqlCall

DEFAULT_LISTEN = "127.0.0.1:8088"
WORDS = ("sql", "serve")
SUMMARY = "Start a SQL server."
DETAILS = """
The server has ksqlDB's statements and REST interface. It stores statements in a compacted topic of
the cluster, and runs their queries with Spark, exactly once, into topics. Tables are answered from
a local store. The REST interface answers before Spark is up.
"""
EXAMPLES = (
    "headrace sql serve",
    "headrace sql serve --registry http://localhost:8081 --connect http://localhost:8083",
    "headrace sql serve --bootstrap kafka.lan:9092 --listen 0.0.0.0:8088 --folder /data/sql",
    "headrace sql serve --service reports --folder data/reports",
    "curl localhost:8088/info",
)
OPTIONS = services.service_options(
    CommandOption(
        "--listen", "HOST:PORT",
        "Address for HTTP, or HTTPS if there is a certificate (ssl.keystore.location); port 0 "
        "selects a free port.",
        env="HEADRACE_SQL_LISTEN", shown_default=DEFAULT_LISTEN,
    ),
    CommandOption(
        "--folder", "FOLDER", "Folder for checkpoints of queries and for views of tables.",
        shown_default="data/sql",
    ),
    CommandOption("--service", "NAME", "Name of the service.", shown_default="default_"),
    CommandOption(
        "--registry", "URL", "Schema registry for AVRO, JSON_SR and PROTOBUF.",
        env="HEADRACE_REGISTRY",
    ),
    CommandOption(
        "--connect", "URL", "Kafka Connect for statements about connectors.", env="HEADRACE_CONNECT"
    ),
)  # fmt: skip
SETTINGS = {
    "--folder": "headrace.sql.folder",
    "--service": "ksql.service.id",
    "--registry": "ksql.schema.registry.url",
    "--connect": "ksql.connect.url",
}


def start(words: list[str]) -> int:
    """Runs a server until a signal; returns its exit code."""
    from headrace.settings.service_table import SQL_TABLE

    found = services.read_command_line(WORDS, OPTIONS, SQL_TABLE, words, SETTINGS)

    def build() -> "HttpService[SqlCall]":
        from headrace.sql.service import sql_service

        settings = found.settings
        registry = registry_client(settings.text("ksql.schema.registry.url"))
        connect = connect_client(settings.text("ksql.connect.url"))
        return sql_service(settings, found.properties, registry, connect)

    return services.serve("sql", build, found, "sql")


def registry_client(url: str) -> "SchemaClient | None":
    """The client of the schema registry, with the credentials of the environment."""
    if not url:
        return None
    from headrace.cli.schemas.registry_client import make_client

    return make_client(url)


def connect_client(url: str) -> "ConnectRest | None":
    """The client of Kafka Connect, with the credentials of the environment."""
    if not url:
        return None
    from headrace.admin.connect_client import make_connect_client
    from headrace.cli.connect.rest_client import LOGIN_VARIABLES

    try:
        given = (os.environ.get(name) or None for name in LOGIN_VARIABLES)
        return make_connect_client(url, *given)
    except ValueError as error:
        raise bad_usage(f"--connect {error}") from None


COMMAND = ProcessCommand(WORDS, SUMMARY, DETAILS, EXAMPLES, OPTIONS, start)
