"""`headrace registry serve`: starts a schema registry for a Kafka cluster."""

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import services
from headrace.cli.options import ClientConfig, examples

if TYPE_CHECKING:
    from headrace.registry.call import Call
    from headrace.service.http_service import HttpService

app = typer.Typer(
    no_args_is_help=True, epilog=examples("headrace registry serve --bootstrap kafka.lan:9092")
)

DEFAULT_LISTEN = "127.0.0.1:8081"


@app.callback()
def registry() -> None:
    """Schema registry with the HTTP API of Confluent's registry."""


@app.command(
    epilog=examples(
        "headrace registry serve",
        "headrace registry serve --bootstrap kafka.lan:9092 --listen 0.0.0.0:8081",
        "headrace registry serve --client-config security/registry.properties",
        "headrace registry serve --config registry.properties --set shutdown.graceful.ms=30000",
        "curl localhost:8081/subjects",
    )
)
def serve(
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            envvar="HEADRACE_REGISTRY_LISTEN",
            help="Address for HTTP, or HTTPS if there is a certificate (ssl.keystore.location); "
            "port 0 selects a free port.",
            show_default=DEFAULT_LISTEN,
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            metavar="TOPIC",
            help="Compacted topic that stores the schemas.",
            show_default="_schemas",
        ),
    ] = None,
    config: services.ConfigFile = None,
    assignments: services.Assignments = None,
    bootstrap: services.ServiceBootstrap = None,
    client_config: ClientConfig = None,
    log_format: services.LogFormatOption = services.LogFormat.TEXT,
    log_level: services.LogLevelOption = services.LogLevel.INFO,
) -> None:
    """Start a schema registry.

    The registry stores schemas in a compacted topic of the cluster, in the record format of
    Confluent's registry, and needs no local storage. Several instances can run on one topic; each
    accepts reads and writes.
    """
    from headrace.cli import client
    from headrace.settings.service_table import REGISTRY_TABLE

    properties = client.read_properties_file(client_config) if client_config else {}
    in_file = properties.pop("bootstrap.servers", None)
    settings = services.read_settings(
        REGISTRY_TABLE,
        config,
        assignments,
        {
            "listeners": services.listener(listen),
            "bootstrap.servers": bootstrap or in_file,
            "kafkastore.topic": topic,
        },
    )

    def build() -> "HttpService[Call]":
        from headrace.registry.http_service import registry_service
        from headrace.registry.schemas_topic import TopicLocation
        from headrace.registry.service import Registry

        location = TopicLocation(
            settings.text("bootstrap.servers"), settings.text("kafkastore.topic"), properties
        )
        return registry_service(Registry(location))

    services.serve("registry", build, settings, log_format, log_level)
