"""`headrace registry serve`: starts a schema registry for a Kafka cluster."""

from enum import StrEnum
from typing import Annotated

import typer

from headrace.cli.failures import Failure, bad_usage
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientConfig, examples

app = typer.Typer(
    no_args_is_help=True, epilog=examples("headrace registry serve --bootstrap kafka.lan:9092")
)

DEFAULT_LISTEN = "127.0.0.1:8081"


class LogFormat(StrEnum):
    """Format of the registry's log."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """Lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@app.callback()
def registry() -> None:
    """Schema registry with the HTTP API of Confluent's registry."""


@app.command(
    epilog=examples(
        "headrace registry serve",
        "headrace registry serve --bootstrap kafka.lan:9092 --listen 0.0.0.0:8081",
        "curl localhost:8081/subjects",
    )
)
def serve(
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            envvar="HEADRACE_REGISTRY_LISTEN",
            help="Address for HTTP; port 0 picks a free one.",
        ),
    ] = DEFAULT_LISTEN,
    topic: Annotated[
        str,
        typer.Option("--topic", metavar="TOPIC", help="Compacted topic that stores the schemas."),
    ] = "_schemas",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientConfig = None,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="Format of the log on standard error.")
    ] = LogFormat.TEXT,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", help="Lowest level that is logged.")
    ] = LogLevel.INFO,
) -> None:
    """Start a schema registry.

    The registry stores schemas in a compacted topic of the cluster, in the record format of
    Confluent's registry, and needs no local storage. Several instances can run on one topic; each
    accepts reads and writes.
    """
    from headrace.cli import client

    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise bad_usage(f"--listen {listen!r} is not of the form HOST:PORT")
    properties = client.read_properties_file(client_config) if client_config else {}
    try:
        from headrace.registry.http_service import registry_service
        from headrace.registry.schemas_topic import TopicLocation
        from headrace.registry.service import Registry
        from headrace.service.server import ProcessOptions, run
    except ModuleNotFoundError as error:
        raise Failure(
            f"the registry needs the package {error.name}, which is not installed",
            hint="pip install 'headrace[services]'",
        ) from None
    location = TopicLocation(bootstrap, topic, properties)
    options = ProcessOptions((host.strip("[]"), int(port)), log_format.value, log_level.value)
    if code := run(registry_service(Registry(location)), options):
        raise typer.Exit(code)
