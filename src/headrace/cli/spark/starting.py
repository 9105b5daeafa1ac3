"""Starts Spark in place of the process of a command."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import output
from headrace.cli.failures import Failure, bad_usage

if TYPE_CHECKING:
    from headrace.pipelines.replay_bounds import ProgramVersion

Master = Annotated[
    str,
    typer.Option(
        "--master",
        "-m",
        envvar="HEADRACE_SPARK_MASTER",
        metavar="URL",
        help="Spark's master: local[*], local[4], spark://HOST:PORT, k8s://..., yarn.",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", "-c", metavar="NAME=VALUE", help="A setting of Spark; repeatable, overrides ours."
    ),
]


def start(
    words: list[str],
    *,
    name: str,
    bootstrap: str,
    client_config: str | None,
    master: str,
    checkpoints: str,
    chosen: dict[str, str],
    dry_run: bool,
    folders: tuple[Path, ...] = (),
    restarts: int = 0,
    version: "ProgramVersion | None" = None,
) -> None:
    """Replace this process by Python with the driver."""
    from headrace.pipelines.running import requirements, session, spark_home

    if client_config and not Path(client_config).is_file():
        raise bad_usage(f"--client-config {client_config}: the file does not exist")
    if client_config:
        from headrace.cli import client

        bootstrap = client.take_bootstrap(client.read_properties_file(client_config), bootstrap)
    launch = session.Launch(
        name,
        bootstrap,
        master,
        checkpoints,
        chosen,
        client_config,
        folders,
        restarts,
        version,
    )
    environment = session.environment(launch, os.environ)
    if dry_run:
        set_here = {k: v for k, v in environment.items() if os.environ.get(k) != v}
        output.print_json(
            {
                "command": [sys.executable, *words],
                "settings": session.settings(launch, os.environ),
                "environment": set_here,
            }
        )
        return
    try:
        requirements.check_spark(os.environ)
    except requirements.NotReady as error:
        raise Failure(error.message, code="NOT_READY", hint=error.hint) from None
    if home := spark_home.without_zips(os.environ):
        environment["SPARK_HOME"] = str(home)
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *words], environment)
