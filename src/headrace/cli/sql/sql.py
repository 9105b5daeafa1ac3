"""`headrace sql`: a prompt for streams and tables, scripts, and the server."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.failures import Failure, bad_usage
from headrace.cli.option_help import add_command
from headrace.cli.option_table import DEFAULT_BOOTSTRAP
from headrace.cli.options import AsJson, Bootstrap, ClientConfig, examples
from headrace.cli.sql.rest_client import (
    DEFAULT_SERVER,
    ServerOption,
    ServerUnreachable,
    SqlClient,
)
from headrace.cli.sql.serve import COMMAND

DEFAULT_FOLDER = "data/sql"

app = typer.Typer(
    invoke_without_command=True,
    epilog=examples(
        "headrace sql                                            a prompt",
        "headrace sql -e 'LIST STREAMS;'",
        "headrace sql -f pipeline.sql                            stops at the first error",
        "headrace sql -e 'SELECT * FROM orders EMIT CHANGES;' --json | jq .total",
        "headrace sql -e 'COMPARE totals_v2 WITH totals;'        code 1 if they differ",
        "headrace sql export > all.sql",
        "headrace sql serve                                      a server on localhost:8088",
    ),
)

Folder = Annotated[
    str,
    typer.Option(
        "--folder",
        metavar="FOLDER",
        help="Folder of the server that is started if none responds.",
    ),
]
Service = Annotated[
    str | None,
    typer.Option(
        "--service",
        metavar="NAME",
        help="Service of the server that is started if none responds; by default default_.",
    ),
]


@app.callback()
def sql(
    context: typer.Context,
    execute: Annotated[
        list[str] | None,
        typer.Option("--execute", "-e", metavar="SQL", help="Run statements; may be repeated."),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="Run a script; - is standard input."),
    ] = None,
    define: Annotated[
        list[str] | None,
        typer.Option("--define", "-d", metavar="NAME=VALUE", help="A variable: ${NAME}."),
    ] = None,
    server: ServerOption = None,
    folder: Folder = DEFAULT_FOLDER,
    service: Service = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientConfig = None,
    as_json: AsJson = False,
) -> None:
    """Continuous SQL: statements over topics, with ksqlDB's syntax.

    Without -e and -f it is a prompt. If no server responds, one runs until the command ends; its
    statements are stored, and continue with the next command or server.
    """
    if context.invoked_subcommand is not None:
        return
    from headrace.cli.sql.prompt import SqlPrompt, is_terminal
    from headrace.cli.sql.shell import SqlShell

    if execute and file:
        raise bad_usage("-e and -f cannot be used together")
    with _server(server, folder, service, bootstrap, client_config) as client:
        shell = SqlShell(client, as_json=as_json)
        for each in define or ():
            name, equals, value = each.partition("=")
            if not equals:
                raise bad_usage(f"--define {each!r} is not NAME=VALUE")
            shell.variables[name] = value
        try:
            if execute:
                for text in execute:
                    shell.run(text)
            elif file or not is_terminal():
                shell.run_file(file or "-")
            else:
                info = client.info()
                output.note(
                    f"Headrace {info['version']}, service {info['ksqlServiceId']} at {client.url}. "
                    "`help` shows statements, `exit` ends."
                )
                SqlPrompt(shell).run()
        finally:
            shell.close()


@contextlib.contextmanager
def _server(
    url: str | None, folder: str, service: str | None, bootstrap: str, client_config: str | None
) -> Iterator[SqlClient]:
    """The server, or one for this command if none was named and none responds."""
    client = SqlClient(url or DEFAULT_SERVER)
    try:
        client.info()
        running = True
    except ServerUnreachable:
        if url is not None:
            raise
        running = False
    if running:
        yield client
        return
    from headrace.cli.sql.own_server import options_of, own_server

    output.note(f"No SQL server responds at {DEFAULT_SERVER}; one is started for this command.")
    with own_server(Path(folder), options_of(bootstrap, client_config, service)) as address:
        yield SqlClient(address)


add_command(app, COMMAND)


@app.command(epilog=examples("headrace sql export > all.sql", "headrace sql -f all.sql"))
def export(
    server: ServerOption = None,
    service: Annotated[
        str,
        typer.Option("--service", metavar="NAME", help="The service, if no server responds."),
    ] = "default_",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientConfig = None,
) -> None:
    """Print all statements as a script, in the order in which they can be repeated.

    If no server responds, the statements are read from the command topic.
    """
    try:
        print(SqlClient(server or DEFAULT_SERVER).export(), end="")
    except ServerUnreachable:
        if server is not None:
            raise
        print(_export_of_topic(service, bootstrap, client_config), end="")


def _export_of_topic(service: str, bootstrap: str, client_config: str | None) -> str:
    from headrace.cli import client
    from headrace.client.offsets import COMMITTED, EARLIEST, LATEST, list_offsets
    from headrace.service.internal_topics import fetch
    from headrace.sql.catalog import Catalog
    from headrace.sql.exporting import export_script
    from headrace.types import TopicPartition

    topic = f"_headrace_sql_{service}"
    partition = TopicPartition(topic, 0)
    catalog = Catalog()
    with client.admin(client.connect(bootstrap, client_config)) as connected:
        if topic not in connected.topics([topic]):
            raise Failure(
                f"no SQL server responds, and there is no topic {topic}",
                hint="Name a server with --server, or a service with --service.",
            )
        at = list_offsets(connected, {partition: EARLIEST})[partition]
        end = list_offsets(connected, {partition: LATEST}, COMMITTED)[partition]
        while at < end:
            leader = connected.leader(partition)
            for _, records, following in fetch(connected, leader, {partition: at}, 500):
                for record in records:
                    catalog.replay(record)
                at = following
    return export_script(catalog, f"All statements of topic {topic}.")
