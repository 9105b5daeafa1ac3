"""`headrace registry serve`: starts a schema registry for a Kafka cluster."""

from typing import TYPE_CHECKING

from headrace.cli import services
from headrace.cli.option_table import CommandOption, ProcessCommand

if TYPE_CHECKING:
    from headrace.registry.call import Call
    from headrace.service.http_service import HttpService

DEFAULT_LISTEN = "127.0.0.1:8081"
WORDS = ("registry", "serve")
SUMMARY = "Start a schema registry."
DETAILS = """
The registry stores schemas in a compacted topic of the cluster, in the record format of Confluent's
registry, and needs no local storage. Several instances can run on one topic; each accepts reads and
writes.
"""
EXAMPLES = (
    "headrace registry serve",
    "headrace registry serve --bootstrap kafka.lan:9092 --listen 0.0.0.0:8081",
    "headrace registry serve --client-config security/registry.properties",
    "headrace registry serve --config registry.properties --set shutdown.graceful.ms=30000",
    "curl localhost:8081/subjects",
)
OPTIONS = services.service_options(
    CommandOption(
        "--listen", "HOST:PORT",
        "Address for HTTP, or HTTPS if there is a certificate (ssl.keystore.location); port 0 "
        "selects a free port.",
        env="HEADRACE_REGISTRY_LISTEN", shown_default=DEFAULT_LISTEN,
    ),
    CommandOption(
        "--topic", "TOPIC", "Compacted topic that stores the schemas.", shown_default="_schemas"
    ),
)  # fmt: skip
SETTINGS = {"--topic": "kafkastore.topic"}


def start(words: list[str]) -> int:
    """Runs a registry until a signal; returns its exit code."""
    from headrace.settings.service_table import REGISTRY_TABLE

    found = services.read_command_line(WORDS, OPTIONS, REGISTRY_TABLE, words, SETTINGS)

    def build() -> "HttpService[Call]":
        from headrace.registry.http_service import registry_service
        from headrace.registry.schemas_topic import TopicLocation
        from headrace.registry.service import Registry

        settings = found.settings
        location = TopicLocation(
            settings.text("bootstrap.servers"), settings.text("kafkastore.topic"), found.properties
        )
        return registry_service(Registry(location))

    return services.serve("registry", build, found)


COMMAND = ProcessCommand(WORDS, SUMMARY, DETAILS, EXAMPLES, OPTIONS, start)
