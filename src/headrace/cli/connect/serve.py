"""`headrace connect serve`: starts a Connect worker for a Kafka cluster."""

from typing import TYPE_CHECKING

from headrace.cli import services
from headrace.cli.option_table import CommandOption, ProcessCommand

if TYPE_CHECKING:
    from headrace.connect.rest.call import ConnectCall
    from headrace.service.http_service import HttpService

DEFAULT_LISTEN = "127.0.0.1:8083"
WORDS = ("connect", "serve")
SUMMARY = "Start a Connect worker."
DETAILS = """
The worker has the REST interface of Kafka Connect and runs connectors as Spark streaming queries.
It stores connectors, offsets and states in compacted topics of the cluster, in Kafka Connect's own
format. The REST interface answers before Spark is up.
"""
EXAMPLES = (
    "headrace connect serve",
    "headrace connect serve --bootstrap kafka.lan:9092 --listen 0.0.0.0:8083",
    "headrace connect serve --client-config security/connect.properties",
    "headrace connect serve --set config.storage.topic=my-configs",
    "curl localhost:8083/connectors",
)
OPTIONS = services.service_options(
    CommandOption(
        "--listen", "HOST:PORT",
        "Address for HTTP, or HTTPS if there is a certificate (ssl.keystore.location); port 0 "
        "selects a free port.",
        env="HEADRACE_CONNECT_LISTEN", shown_default=DEFAULT_LISTEN,
    ),
    CommandOption(
        "--folder", "FOLDER", "Folder for the checkpoints of connectors.",
        shown_default="data/connect",
    ),
)  # fmt: skip
SETTINGS = {"--folder": "headrace.connect.folder"}


def start(words: list[str]) -> int:
    """Runs a worker until a signal; returns its exit code."""
    from headrace.settings.service_table import CONNECT_TABLE

    found = services.read_command_line(WORDS, OPTIONS, CONNECT_TABLE, words, SETTINGS)

    def build() -> "HttpService[ConnectCall]":
        from headrace.connect.service import connect_service

        return connect_service(found.settings, found.properties)

    return services.serve("connect", build, found)


COMMAND = ProcessCommand(WORDS, SUMMARY, DETAILS, EXAMPLES, OPTIONS, start)
