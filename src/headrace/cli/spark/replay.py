"""`headrace spark replay`: a new version of a PySpark program beside the running one."""

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import output
from headrace.cli.failures import Failure, bad_usage, not_found
from headrace.cli.options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    ClientConfig,
    examples,
    pairs,
)
from headrace.cli.spark.starting import Conf, Master, start

if TYPE_CHECKING:
    from headrace.pipelines.running.checkpoints import InputOffsets
    from headrace.pipelines.running.holds import HeldProgram

app = typer.Typer(
    no_args_is_help=True,
    epilog=examples(
        "headrace spark replay run totals_new.py --of totals --as v2 --from earliest",
        "headrace spark replay status totals v2",
        "headrace spark replay compare totals v2",
        "headrace spark replay switch totals v2                  readers go to TOPIC.v2",
        "headrace spark replay rollback totals v2",
    ),
)

Program = Annotated[
    str, typer.Argument(metavar="PROGRAM", help="Name of the running program, without .py.")
]
Version = Annotated[str, typer.Argument(metavar="VERSION", help="Name of the new version.")]
Folder = Annotated[
    Path,
    typer.Option(
        "--checkpoints",
        metavar="FOLDER",
        help="Folder with the roots of the checkpoints: PROGRAM and PROGRAM.VERSION.",
    ),
]
Within = Annotated[
    float,
    typer.Option(
        "--within", metavar="SECONDS", help="How long to wait until both versions are equally far."
    ),
]


@app.callback()
def _group() -> None:
    """Run a new version of a program beside the old one, compare both, and switch.

    Both versions run under `headrace spark` on this machine, with checkpoints in local folders. The
    new one writes to topics of its own, TOPIC.VERSION.
    """


@app.command(
    "run",
    epilog=examples(
        "headrace spark replay run totals_new.py --of totals --as v2",
        "headrace spark replay run totals.py --as v2 --from 2026-01-31T12:00:00",
    ),
)
def run_version(
    program: Annotated[Path, typer.Argument(metavar="APP.PY", help="The new PySpark program.")],
    version: Annotated[
        str, typer.Option("--as", metavar="VERSION", help="Name of the version: letters, digits.")
    ],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Arguments of the program.")
    ] = None,
    of: Annotated[
        str | None,
        typer.Option(
            "--of",
            metavar="PROGRAM",
            help="Name of the running program, without .py.",
            show_default="that of APP.PY",
        ),
    ] = None,
    begin: Annotated[
        str,
        typer.Option("--from", metavar="START", help="earliest, latest, or a time (UTC)."),
    ] = "earliest",
    folder: Folder = Path("checkpoints"),
    master: Master = "local[*]",
    conf: Conf = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientConfig = None,
) -> None:
    """Run a new version of a program from a chosen start, into topics of its own.

    A version that has run before continues where it was.
    """
    from headrace.pipelines.replay_bounds import ProgramVersion

    if not program.is_file():
        raise not_found(f"program {program} does not exist")
    if not version.isalnum():
        raise bad_usage(f"--as {version}: expected letters and digits")
    root = _root(folder, of or program.stem, version).absolute()
    start(
        ["-m", "headrace.pipelines.running.driver", str(program), *(words or ())],
        name=root.name,
        bootstrap=bootstrap,
        client_config=client_config,
        master=master,
        checkpoints=str(root),
        chosen=pairs(conf or [], "--conf"),
        folders=(program.resolve().parent,),
        restarts=5,
        dry_run=False,
        version=ProgramVersion(version, _start_time(begin), str(root)),
    )


def _root(folder: Path, program: str, version: str) -> Path:
    return folder / f"{program}.{version}"


def _start_time(text: str) -> str:
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise bad_usage(
            f"--from {text}: expected earliest, latest, or a time such as 2026-01-31T12:00:00"
        ) from None
    return str(int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000))


def _programs(folder: Path, program: str, version: str) -> "tuple[HeldProgram, HeldProgram]":
    """The old version and the new one."""
    from headrace.pipelines.running.holds import HeldProgram

    roots = (folder / program, _root(folder, program, version))
    for root in roots:
        if not root.is_dir():
            raise not_found(
                f"{root} does not exist",
                "Start both versions from here, or add --checkpoints FOLDER.",
            )
    return HeldProgram(roots[0]), HeldProgram(roots[1])


def _align(programs: "Sequence[HeldProgram]", within_s: float) -> "InputOffsets":
    from headrace.pipelines.running.holds import NotAligned, align

    try:
        return align(programs, within_s)
    except NotAligned as error:
        raise Failure(str(error), code="NOT_ALIGNED") from None


def _restore(
    programs: "Sequence[HeldProgram]", were_held: Sequence[bool], end: "InputOffsets"
) -> None:
    """Hold the programs that were held before, and let the others go on."""
    for each, held in zip(programs, were_held, strict=True):
        if held:
            each.hold(end, None)
        else:
            each.release()


@app.command(epilog=examples("headrace spark replay status totals v2 --json"))
def status(
    program: Program,
    version: Version,
    folder: Folder = Path("checkpoints"),
    as_json: AsJson = False,
) -> None:
    """Show how far both versions are, and which one is held."""
    from headrace.pipelines.running.holds import NotAligned

    rows = []
    for name, found in zip(("old", "new"), _programs(folder, program, version), strict=True):
        try:
            positions = found.positions()
        except NotAligned:
            positions = []
        state = "held" if found.is_held else "runs"
        rows += [
            {"version": name, "state": state, "topic": topic, "partition": number, "position": at}
            for each in positions
            for topic, partitions in each.offsets.items()
            for number, at in partitions.items()
        ]
    if as_json:
        output.print_json(rows)
        return
    names = ("version", "state", "topic", "partition", "position")
    cells = [[str(row[name]) for name in names] for row in rows]
    output.console().print(output.table(names, cells, numbers=set(names[3:])))


@app.command(
    epilog=examples(
        "headrace spark replay compare totals v2",
        "headrace spark replay compare totals v2 --columns 'customer STRING PRIMARY KEY, total "
        "DOUBLE' --format json --tolerance total=0.01",
    )
)
def compare(
    program: Program,
    version: Version,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="COLUMNS",
            help="Columns of the topic as in CREATE TABLE or STREAM; otherwise key and value are "
            "compared as text.",
        ),
    ] = None,
    value_format: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="Format of values with --columns.")
    ] = "json",
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="COLUMN", help="Repeatable.")
    ] = None,
    tolerance: Annotated[
        list[str] | None, typer.Option("--tolerance", metavar="COLUMN=NUMBER", help="Repeatable.")
    ] = None,
    folder: Folder = Path("checkpoints"),
    within: Within = 300.0,
    master: Master = "local[*]",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientConfig = None,
    as_json: AsJson = False,
) -> None:
    """Compare the results of both versions at equal input offsets; exit code 1 if they differ.

    Both programs are held for moments, and run on while Spark compares. Rows of compacted topics
    are compared by key, rows of others are counted.
    """
    from headrace.cli import client
    from headrace.cli.spark.replay_comparison import compared_pairs
    from headrace.pipelines.replay_bounds import ProgramVersion

    old, new = _programs(folder, program, version)
    topics = ProgramVersion(version, "", str(new.root)).topics()
    if not topics:
        raise not_found(f"version {version} of {program} has written to no topic yet")
    cluster = client.connect(bootstrap, client_config)
    was_held = old.is_held, new.is_held
    end = _align((old, new), within)
    try:
        with client.admin(cluster) as connected:
            found = compared_pairs(connected, topics, version, columns, value_format, within)
    finally:
        _restore((old, new), was_held, end)
    request = {
        "pairs": found,
        "inputOffsets": end,
        "ignore": ignore or [],
        "tolerance": {n: float(v) for n, v in pairs(tolerance or [], "--tolerance").items()},
        "asJson": as_json,
    }
    start(
        ["-m", "headrace.cli.spark.replay_comparison", json.dumps(request)],
        name="compare",
        bootstrap=bootstrap,
        client_config=client_config,
        master=master,
        checkpoints=str(new.root),
        # As in the driver of SQL queries, whose reading of topics it shares.
        chosen={"spark.sql.ansi.enabled": "false", "spark.sql.timeType.enabled": "true"},
        dry_run=False,
    )


@app.command(epilog=examples("headrace spark replay switch totals v2"))
def switch(
    program: Program,
    version: Version,
    folder: Folder = Path("checkpoints"),
    within: Within = 300.0,
) -> None:
    """Let the new version go on alone, from the offsets that the old one has reached.

    The old program is held, also if it is started again; it may be stopped. Readers go to the
    topics TOPIC.VERSION.
    """
    from headrace.pipelines.replay_bounds import ProgramVersion

    old, new = _programs(folder, program, version)
    if old.is_held and not new.is_held:
        output.note(f"{program} is {version} already.")
        return
    end = _align((old, new), within)
    old.hold(end, None)
    new.release()
    topics = ProgramVersion(version, "", str(new.root)).topics()
    for topic in topics:
        print(f"{topic} -> {topic}.{version}")
    output.note(f"Readers of these topics go to the new ones. {program} is held at equal input.")


@app.command(epilog=examples("headrace spark replay rollback totals v2"))
def rollback(
    program: Program,
    version: Version,
    folder: Folder = Path("checkpoints"),
    within: Within = 300.0,
) -> None:
    """Let the old version go on, after it has read what it has missed; the new one is held."""
    from headrace.pipelines.replay_bounds import ProgramVersion

    old, new = _programs(folder, program, version)
    if new.is_held and not old.is_held:
        output.note(f"{program} has been rolled back already.")
        return
    # It reads on beside the new one, which is not held meanwhile.
    old.release()
    _catch_up(old, new, within)
    end = _align((old, new), within)
    new.hold(end, None)
    old.release()
    for topic in ProgramVersion(version, "", str(new.root)).topics():
        print(f"{topic}.{version} -> {topic}")
    output.note(f"Readers of these topics go back. {version} is held; `replay switch` returns.")


def _catch_up(old: "HeldProgram", new: "HeldProgram", within_s: float) -> None:
    deadline = time.monotonic() + within_s
    goals = {(t, p): at for each in new.positions() for t, ps in each.offsets.items()
             for p, at in ps.items()}  # fmt: skip
    while any(
        at < goals.get((topic, number), 0)
        for each in old.positions()
        for topic, partitions in each.offsets.items()
        for number, at in partitions.items()
    ):
        if time.monotonic() > deadline:
            raise Failure(
                "the old version has not read yet what it has missed; it goes on. Is it running?",
                code="NOT_ALIGNED",
                hint="Start it with `headrace spark run`, and repeat rollback, or add --within.",
            )
        time.sleep(0.5)
