"""`headrace console`: starts the web console for a Kafka cluster."""

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import services
from headrace.cli.failures import bad_usage
from headrace.cli.options import ClientConfig, examples
from headrace.cli.schemas.registry_option import make_client

if TYPE_CHECKING:
    from headrace.console.console_request import ConsoleRequest
    from headrace.service.http_service import HttpService

app = typer.Typer()

DEFAULT_LISTEN = "127.0.0.1:8080"
LOOPBACK = ("127.", "localhost", "::1")

RegistryUrl = Annotated[
    str | None,
    typer.Option(
        "--registry",
        metavar="URL",
        envvar="HEADRACE_REGISTRY",
        help="Schema registry that decodes values and whose schemas are shown.",
    ),
]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Disable all changes.")]
Metrics = Annotated[
    bool,
    typer.Option("--metrics", help="Add kafka_exporter's metrics of the cluster to /metrics."),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure", help="Listen on an address that other machines reach, without a login."
    ),
]


@app.command(
    epilog=examples(
        "headrace console",
        "headrace console --bootstrap kafka.lan:9092 --registry http://kafka.lan:8081",
        "headrace console --client-config security/admin.properties --read-only",
    )
)
def console(
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            envvar="HEADRACE_CONSOLE_LISTEN",
            help="Address for browsers; port 0 picks a free one.",
            show_default=DEFAULT_LISTEN,
        ),
    ] = None,
    registry: RegistryUrl = None,
    read_only: ReadOnly = False,
    metrics: Metrics = False,
    insecure: Insecure = False,
    config: services.ConfigFile = None,
    assignments: services.Assignments = None,
    bootstrap: services.ServiceBootstrap = None,
    client_config: ClientConfig = None,
    log_format: services.LogFormatOption = services.LogFormat.TEXT,
    log_level: services.LogLevelOption = services.LogLevel.INFO,
) -> None:
    """Start a web console for a Kafka cluster.

    The console shows topics, records, consumer groups, schemas and Spark queries. It is an ordinary
    Kafka client and also shows Apache Kafka. It stores nothing.
    """
    from headrace.cli import client
    from headrace.settings.service_table import CONSOLE_TABLE

    properties = client.read_properties_file(client_config) if client_config else {}
    in_file = properties.pop("bootstrap.servers", None)
    settings = services.read_settings(
        CONSOLE_TABLE,
        config,
        assignments,
        {
            "listeners": services.listener(listen),
            "bootstrap.servers": bootstrap or in_file,
            "schema.registry.url": registry,
            "console.read.only": "true" if read_only else None,
            "console.metrics": "true" if metrics else None,
        },
    )
    host, _ = settings.listen
    without_login = settings.words("authentication.method") == ("NONE",)
    if without_login and not insecure and not host.startswith(LOOPBACK):
        raise bad_usage(
            f"{host} can be reached from other machines, and the console has no login",
            "Listen on 127.0.0.1, set authentication.method, or add --insecure.",
        )

    url = settings.text("schema.registry.url")
    schema_client = make_client(url) if url else None

    def build() -> "HttpService[ConsoleRequest]":
        from headrace.console.console import Console
        from headrace.console.http_service import console_service
        from headrace.console.options import read_options

        options = read_options(settings, properties, schema_client)
        return console_service(Console(options), host)

    services.serve("console", build, settings, log_format, log_level)
