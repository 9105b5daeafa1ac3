"""The Typer application: the command names in the order of the help, each loaded when chosen.

Only the modules that the command line needs are imported; `headrace --help` and completion load
all of them, which is why none imports the client library or Rich at module level.
"""

import importlib
import os
from dataclasses import dataclass
from typing import Annotated

import typer

from headrace import __version__
from headrace.cli import help_style
from headrace.cli.failures import EXIT_CODES_HELP

HELP = """
[bold]A streaming platform with Apache Kafka's protocol.[/bold] Start a broker with one
command; every other command is an ordinary Kafka client and works on any Kafka cluster.
"""

EPILOG = f"""[bold]Examples[/bold]
  headrace serve                                        a broker on localhost:9092
  headrace topics create clicks --partitions 3
  echo 'alice:hello' | headrace produce clicks --key-separator :
  headrace consume clicks --from beginning              stops at the end; -f keeps following
  headrace topics describe clicks --json | jq .partitions

[bold]Which cluster[/bold]  --bootstrap HOST:PORT on every command, or the environment variable
               HEADRACE_BOOTSTRAP; otherwise localhost:9092. TLS and logins: --client-config
               FILE or HEADRACE_CLIENT_CONFIG; `headrace security init` creates such files.
{EXIT_CODES_HELP}
"""


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """One command of `headrace`: its module, and its heading in the help."""

    module: str
    panel: str
    summary: str


RUN = "Run a broker and its services"
DATA = "Topics and records"
PIPELINES = "Pipelines"
INSIDE = "Look inside"
SECURITY = "Security"

ENTRIES = {
    "serve": CommandEntry("broker.serve_help", RUN, "Start a broker on this machine."),
    "registry": CommandEntry("schemas.registry", RUN, "Start a schema registry for a cluster."),
    "console": CommandEntry("console_help", RUN, "Start a web console for a cluster."),
    "connect": CommandEntry(
        "connect.connect", RUN, "Run connectors with Kafka Connect's REST interface."
    ),
    "sql": CommandEntry(
        "sql.sql", RUN, "Continuous SQL over topics, with ksqlDB's statements; a prompt, a server."
    ),
    "topics": CommandEntry(
        "topics.topics", DATA, "List, create, describe, alter and delete topics."
    ),
    "produce": CommandEntry("records.produce", DATA, "Write records from stdin or a file."),
    "consume": CommandEntry("records.consume", DATA, "Read records, from any offset or time."),
    "offsets": CommandEntry(
        "records.offsets", DATA, "First and last offsets of a topic, or offsets by time."
    ),
    "groups": CommandEntry(
        "groups.groups", DATA, "Consumer groups: members, lag, offsets; watch them live."
    ),
    "transactions": CommandEntry(
        "records.transactions", DATA, "Transactional ids: list, describe, abort."
    ),
    "spark": CommandEntry(
        "spark.spark", PIPELINES, "Run PySpark programs; watch their streaming queries."
    ),
    "lake": CommandEntry(
        "spark.lake",
        PIPELINES,
        "Verify that a Delta or Iceberg table has each record of a topic once.",
    ),
    "schemas": CommandEntry(
        "schemas.schemas", DATA, "Schemas of topics: list, register, check, compare."
    ),
    "security": CommandEntry(
        "security.security", SECURITY, "Set up TLS, users and permissions; check, renew."
    ),
    "users": CommandEntry(
        "security.users", SECURITY, "Users that log in with a password: list, add, delete."
    ),
    "acls": CommandEntry(
        "security.acls", SECURITY, "Permissions of users: list, add, remove, explain."
    ),
    "tokens": CommandEntry(
        "security.tokens", SECURITY, "Delegation tokens: list, create, renew, delete."
    ),
    "quotas": CommandEntry(
        "security.quotas", SECURITY, "Limit what users, client ids and addresses may use."
    ),
    "configs": CommandEntry(
        "topics.configs", INSIDE, "Show and change settings of topics and brokers."
    ),
    "cluster": CommandEntry(
        "cluster.cluster", INSIDE, "Brokers, controller, health; balance and drain."
    ),
    "log": CommandEntry("broker.log", INSIDE, "Read a partition's files from disk."),
    "bench": CommandEntry("records.bench", INSIDE, "Measure throughput and latency of a cluster."),
}


class _Root(help_style.CommandGroup):
    wanted_order = tuple(ENTRIES)


def _print_version(value: bool) -> None:
    if value:
        print(f"headrace {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Its docstring is replaced by HELP; Typer needs a function for the root options."""


def build(only: str | None = None) -> typer.Typer:
    """The application with all its commands, or with the one that will run."""
    app = typer.Typer(
        name="headrace",
        cls=_Root,
        help=HELP,
        epilog=EPILOG,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name, entry in ENTRIES.items():
        if only in (None, name):
            part: typer.Typer = importlib.import_module(f"headrace.cli.{entry.module}").app
            help_style.apply(part)
            # A Typer with one command and no callback runs that command directly.
            if part.registered_callback is None:
                command = part.registered_commands[0]
                command.name, command.rich_help_panel = name, entry.panel
                command.short_help = entry.summary
                app.registered_commands.append(command)
            else:
                app.add_typer(
                    part, name=name, rich_help_panel=entry.panel, short_help=entry.summary
                )
    return app


def run(words: list[str], *, everything: bool = False) -> int:
    """Run a command line; a Failure passes through to the caller."""
    first = words[0] if words and words[0] in ENTRIES and not everything else None
    # Typer's help is as wide as the terminal; lines of over 100 columns are hard to read.
    columns = os.get_terminal_size().columns if os.isatty(1) else 100
    os.environ.setdefault("TERMINAL_WIDTH", str(min(columns, 100)))
    try:
        build(first)(words, prog_name="headrace")
    except help_style.ReaderGone:
        # The pipe is closed; without this Python reports it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    return 0
