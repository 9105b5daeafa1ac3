"""`headrace spark`: runs Spark programs, and shows their streaming queries.

A command that starts Spark replaces this process (`exec`), so that signals and the exit code are
those of the program. PySpark itself is not imported here.
"""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.failures import Failure, not_found
from headrace.cli.options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    ClientConfig,
    examples,
    pairs,
)
from headrace.cli.spark import replay
from headrace.cli.spark.starting import Conf, Master, start

app = typer.Typer(
    no_args_is_help=True,
    epilog=examples(
        "headrace spark run app.py",
        "headrace spark run app.py --master spark://host:7077 -- --day 2026-01-31",
        "headrace spark shell",
        "headrace spark queries --watch",
        "headrace spark pipelines init shop --topic orders",
    ),
)
pipelines = typer.Typer(
    no_args_is_help=True,
    epilog=examples(
        "headrace spark pipelines init shop --topic orders",
        "cd shop && headrace spark pipelines dry-run",
        "headrace spark pipelines run --full-refresh events",
    ),
)

Checkpoints = Annotated[
    str | None,
    typer.Option(
        "--checkpoints",
        metavar="FOLDER",
        help="Root of the queries' checkpoints: a folder, or on a cluster an address that all "
        "machines reach, such as s3a://.... Each query has a folder with its queryName.",
        show_default="checkpoints/PROGRAM",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only show the configuration as JSON; do not start Spark.")
]


@app.callback()
def _group() -> None:
    """Run PySpark programs with source, sink, Python, addresses, checkpoints and metrics set up."""


@app.command(
    epilog=examples(
        "headrace spark run app.py",
        "headrace spark run app.py --bootstrap broker:9092 --conf spark.sql.shuffle.partitions=8",
        "headrace spark run app.py --master spark://host:7077 --checkpoints s3a://lake/checkpoints",
        "headrace spark run app.py -- --day 2026-01-31      arguments after -- are the program's",
    )
)
def run(
    program: Annotated[Path, typer.Argument(metavar="APP.PY", help="A PySpark program.")],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Arguments of the program.")
    ] = None,
    master: Master = "local[*]",
    checkpoints: Checkpoints = None,
    conf: Conf = None,
    restarts: Annotated[
        int,
        typer.Option(
            "--restarts",
            min=0,
            metavar="N",
            help="How often in a row to restart a program that failed because the machine was too "
            "busy to start Spark's Python processes; 0 for never.",
        ),
    ] = 5,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientConfig = None,
) -> None:
    """Run a PySpark program.

    The program is plain PySpark: it gets its session from SparkSession.builder.getOrCreate() and
    also runs elsewhere. The environment variable HEADRACE_BOOTSTRAP has the address of the cluster.
    `headrace spark queries` shows its streaming queries, and its Spark UI has them for Prometheus
    under /metrics/prometheus. Its streaming queries are started one after the other. If one fails
    because Spark's Python processes did not start in time, the program is started again, and its
    queries continue from their checkpoints.
    """
    if not program.is_file():
        raise not_found(f"program {program} does not exist")
    root = checkpoints or str(Path("checkpoints", program.stem).absolute())
    start(
        ["-m", "headrace.pipelines.running.driver", str(program), *(words or ())],
        name=program.stem,
        bootstrap=bootstrap,
        client_config=client_config,
        master=master,
        checkpoints=root,
        chosen=pairs(conf or [], "--conf"),
        folders=(program.resolve().parent,),
        restarts=restarts,
        dry_run=dry_run,
    )


@app.command(
    epilog=examples(
        "headrace spark shell",
        "headrace spark shell --master local[2] --conf spark.driver.memory=4g",
    )
)
def shell(
    master: Master = "local[*]",
    checkpoints: Checkpoints = None,
    conf: Conf = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientConfig = None,
) -> None:
    """Open PySpark's interactive shell, with the variables `spark` and `bootstrap`."""
    from headrace.pipelines.running import session

    start(
        ["-i", str(Path(session.__file__).with_name("shell.py"))],
        name="shell",
        bootstrap=bootstrap,
        client_config=client_config,
        master=master,
        checkpoints=checkpoints or str(Path("checkpoints", "shell").absolute()),
        chosen=pairs(conf or [], "--conf"),
        dry_run=dry_run,
    )


@app.command(
    epilog=examples(
        "headrace spark queries",
        "headrace spark queries --watch",
        "headrace spark queries --json | jq '.[] | [.name, .state, .lag_records]'",
        "headrace spark queries --watch --json          one object per line, as updates arrive",
    )
)
def queries(
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show updates until Ctrl-C.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Include queries that have ended.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Show the streaming queries that run on this cluster: rates, lag, batch times, state.

    They are read from the topic __headrace_queries, where the programs that `headrace spark`
    starts publish each batch's progress.
    """
    from headrace.cli import client
    from headrace.cli.spark import query_view

    cluster = client.connect(bootstrap, client_config)
    try:
        query_view.show(cluster, watch=watch, everything=everything, as_json=as_json)
    except KeyboardInterrupt:
        # With --watch this is the normal end.
        if not watch:
            raise


@pipelines.callback()
def _pipelines() -> None:
    """Spark Declarative Pipelines: declared tables and flows, run in order."""


@pipelines.command(
    epilog=examples("headrace spark pipelines init shop --topic orders"),
)
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new folder.")],
    topic: Annotated[
        str, typer.Option("--topic", metavar="TOPIC", help="The topic that the project reads.")
    ] = "events",
) -> None:
    """Write a project that reads a topic, counts by key and writes to a topic."""
    from headrace.pipelines.running import project

    try:
        files = project.create(Path(name), topic)
    except project.ProjectExists:
        raise Failure(f"{name} exists already", hint="Choose another name.") from None
    for path in files:
        print(path)
    output.note(f"Run it with: cd {name} && headrace spark pipelines run")


Spec = Annotated[
    Path | None,
    typer.Option(
        "--spec",
        metavar="FILE",
        help="The project's file.",
        show_default="spark-pipeline.yml here or in a folder above",
    ),
]


@pipelines.command(
    "dry-run", epilog=examples("headrace spark pipelines dry-run --spec shop/spark-pipeline.yml")
)
def dry_run_project(
    spec: Spec = None,
    master: Master = "local[*]",
    conf: Conf = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientConfig = None,
) -> None:
    """Check a project: whether it loads, and whether tables, flows and sinks match."""
    _start_project("dry-run", [], spec, master, conf, bootstrap, client_config)


@pipelines.command(
    "run",
    epilog=examples(
        "headrace spark pipelines run",
        "headrace spark pipelines run --full-refresh events,events_by_key",
        "headrace spark pipelines run --conf spark.driver.memory=4g",
    ),
)
def run_project(
    spec: Spec = None,
    refresh: Annotated[
        list[str] | None,
        typer.Option(
            "--refresh",
            metavar="TABLES",
            help="Only these tables, separated by commas; repeatable.",
        ),
    ] = None,
    full_refresh: Annotated[
        list[str] | None,
        typer.Option("--full-refresh", metavar="TABLES", help="Empty and recompute these tables."),
    ] = None,
    full_refresh_all: Annotated[
        bool, typer.Option("--full-refresh-all", help="Empty and recompute all tables.")
    ] = False,
    master: Master = "local[*]",
    conf: Conf = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientConfig = None,
) -> None:
    """Update every table and sink of a project from its topics, once."""
    words = [f"--refresh={each}" for each in refresh or ()]
    words += [f"--full-refresh={each}" for each in full_refresh or ()]
    words += ["--full-refresh-all"] if full_refresh_all else []
    _start_project("run", words, spec, master, conf, bootstrap, client_config)


app.add_typer(pipelines, name="pipelines")
app.add_typer(replay.app, name="replay")


def _start_project(
    command: str,
    words: list[str],
    spec: Path | None,
    master: str,
    conf: list[str] | None,
    bootstrap: str,
    client_config: str | None,
) -> None:
    from headrace.pipelines.running import project

    found = project.find_spec(spec, Path.cwd())
    if found is None:
        raise not_found(
            f"{spec or project.SPEC_NAMES[0]} does not exist",
            "Create a project with `headrace spark pipelines init NAME`, or add --spec.",
        )
    folder = found.resolve().parent
    start(
        ["-m", "headrace.pipelines.running.declarative", command, f"--spec={found}", *words],
        name=folder.name,
        bootstrap=bootstrap,
        client_config=client_config,
        master=master,
        checkpoints=str(folder / "checkpoints"),
        chosen={**project.catalog_settings(folder), **pairs(conf or [], "--conf")},
        folders=(folder,),
        dry_run=False,
    )
