"""`headrace lake`: tables in the lake, and whether they hold what the topic holds."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import options
from headrace.cli.failures import ExitCode, not_found

if TYPE_CHECKING:
    from headrace.pipelines.lake.verify import PartitionReport
    from headrace.pipelines.lake.views import TableView

SHOWN_FINDINGS = 20

app = typer.Typer(
    help="Tables in the lake: [bold]verify[/bold] that one holds every record of a topic once.",
    no_args_is_help=True,
)


@app.callback()
def _lake() -> None:
    """Keeps `verify` a command of its own name."""


@app.command()
def verify(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            help="Folder or address of a Delta table; folder or *.metadata.json of an Iceberg "
            "table; or namespace.name of one, with --warehouse or --catalog.",
        ),
    ],
    topic: Annotated[
        str,
        typer.Option(
            "--topic",
            "-t",
            help="The topic it was filled from.",
            autocompletion=options.complete_topics,
        ),
    ],
    warehouse: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Iceberg: the folder with the sink's catalog.db."),
    ] = None,
    catalog: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Iceberg: a catalog of PyIceberg's configuration."),
    ] = None,
    from_table_start: Annotated[
        bool,
        typer.Option(help="Records before the table's first offset are none of its business."),
    ] = False,
    complete: Annotated[
        bool, typer.Option(help="Records after the table's last offset are missing, too.")
    ] = False,
    any_order: Annotated[
        bool, typer.Option(help="Do not look at the order of rows and epochs.")
    ] = False,
    full: Annotated[
        bool,
        typer.Option(help="Read the whole topic, and also find rows that it does not show."),
    ] = False,
    bootstrap: options.Bootstrap = options.DEFAULT_BOOTSTRAP,
    client_config: options.ClientConfig = None,
    as_json: options.AsJson = False,
) -> None:
    """Prove that a table holds every record of a topic, once and in order.

    The rows' columns topic, partition and offset are compared with the topic itself, as a
    read_committed consumer sees it: transaction markers, aborted and compacted records are no loss.

    Exit code 0: proven. 1: records are missing, doubled, out of order, not the topic's, or
    cannot be judged because the topic has deleted them.

    [bold]Examples[/bold]
      headrace lake verify /lake/orders --topic orders
      headrace lake verify sales.orders --warehouse /lake --topic orders --json
    """
    from headrace.cli.lake_topic import LibrdkafkaReader
    from headrace.pipelines.lake import verify as proof
    from headrace.pipelines.lake.views import TableUnreadable, open_view

    try:
        view = open_view(table, warehouse=warehouse, catalog=catalog)
    except TableUnreadable as error:
        raise not_found(str(error)) from error
    wanted = proof.Wanted(topic, from_table_start, complete, any_order, full)
    from headrace.cli import output

    with output.progress() as bar, LibrdkafkaReader(bootstrap, client_config) as log:
        task = bar.add_task("reading", total=None, state="")

        def progress(state: str, done: int, total: int) -> None:
            bar.update(task, description=state, completed=done, total=total)

        reports = proof.verify(view, wanted, log, progress)
    document = _document(view, topic, reports)
    if as_json:
        output.print_json(document)
    else:
        _print(view, topic, reports)
    if not document["proven"]:
        raise typer.Exit(ExitCode.FAILED)


def _document(view: "TableView", topic: str, reports: "list[PartitionReport]") -> dict[str, Any]:
    return {
        "table": view.name,
        "format": view.format,
        "version": view.version,
        "topic": topic,
        "proven": not any(report.findings for report in reports),
        "rows": sum(report.rows for report in reports),
        "behind": sum(report.behind for report in reports),
        "partitions": [
            {
                "partition": report.place.partition,
                "rows": report.rows,
                "first": report.first,
                "last": report.last,
                "log_start": report.log_start,
                "log_end": report.log_end,
                "behind": report.behind,
                "findings": [
                    {
                        "kind": each.kind,
                        "first": each.first,
                        "last": each.last,
                        "count": each.count,
                        "where": each.where,
                    }
                    for each in report.findings
                ],
            }
            for report in reports
        ],
    }


def _print(view: "TableView", topic: str, reports: "list[PartitionReport]") -> None:
    from headrace.cli import output

    kinds = ("missing", "duplicate", "reordered", "foreign", "unknown")
    names = ("partition", "rows", "offsets", *kinds, "behind")
    rows = []
    for report in reports:
        counts: Counter[str] = Counter()
        for each in report.findings:
            counts[each.kind] += each.count
        span = "-" if report.first is None else f"{report.first}..{report.last}"
        rows.append(
            (
                str(report.place.partition),
                output.number(report.rows),
                span,
                *(output.number(counts[kind]) for kind in kinds),
                output.number(report.behind),
            )
        )
    output.print_table(names, rows, numbers=names)
    findings = [each for report in reports for each in report.findings]
    for each in findings[:SHOWN_FINDINGS]:
        span = f"{each.first}" if each.count == 1 else f"{each.first}..{each.last}"
        where = f": {each.where}" if each.where else ""
        print(f"{each.kind} {each.place.topic}-{each.place.partition} {span}{where}")
    if len(findings) > SHOWN_FINDINGS:
        print(f"... and {len(findings) - SHOWN_FINDINGS} more; --json lists them all")
    total = output.records(sum(report.rows for report in reports))
    verdict = "NOT proven" if findings else "every record once and in order"
    print(f"{view.format} table {view.name}, version {view.version}: {total} of {topic}: {verdict}")
