"""`headrace lake`: verifies tables against topics, and compacts their small files."""

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import options, output
from headrace.cli.failures import ExitCode, Failure, not_found
from headrace.cli.options import examples

if TYPE_CHECKING:
    from headrace.pipelines.lake.compaction import Report
    from headrace.pipelines.lake.verify import PartitionReport, Wanted
    from headrace.pipelines.lake.views import TableView

SHOWN_FINDINGS = 20

app = typer.Typer(
    no_args_is_help=True,
    epilog=examples(
        "headrace lake verify /lake/orders --topic orders", "headrace lake compact /lake/orders"
    ),
)

Table = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="Folder or address of a Delta table; folder or *.metadata.json of an Iceberg table; "
        "or namespace.name of one, with --warehouse or --catalog.",
    ),
]
Topic = Annotated[
    str,
    typer.Option(
        "--topic",
        "-t",
        help="The topic from which the table was filled.",
        autocompletion=options.complete_topics,
    ),
]
Warehouse = Annotated[
    str | None, typer.Option(metavar="DIR", help="Iceberg: the folder with the sink's catalog.db.")
]
Catalog = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Iceberg: a catalog in PyIceberg's configuration."),
]
FromTableStart = Annotated[
    bool,
    typer.Option(
        "--from-table-start", help="Records before the table's first offset need not be in it."
    ),
]
Complete = Annotated[
    bool,
    typer.Option("--complete", help="Report records after the table's last offset as missing."),
]
AnyOrder = Annotated[
    bool, typer.Option("--any-order", help="Do not check the order of rows and epochs.")
]
Full = Annotated[
    bool,
    typer.Option("--full", help="Read the whole topic; also finds rows that are not in it."),
]


@app.callback()
def _group() -> None:
    """Verify and compact tables in the lake."""


@app.command(
    epilog=examples(
        "headrace lake verify /lake/orders --topic orders",
        "headrace lake verify sales.orders --warehouse /lake --topic orders --json",
        "headrace lake verify /lake/orders -t orders --complete --full",
    )
)
def verify(
    table: Table,
    topic: Topic,
    warehouse: Warehouse = None,
    catalog: Catalog = None,
    from_table_start: FromTableStart = False,
    complete: Complete = False,
    any_order: AnyOrder = False,
    full: Full = False,
    bootstrap: options.Bootstrap = options.DEFAULT_BOOTSTRAP,
    client_config: options.ClientConfig = None,
    as_json: options.AsJson = False,
) -> None:
    """Verify that a table has every record of a topic, once and in order.

    The columns topic, partition and offset are compared with the topic, as a read_committed
    consumer reads it: transaction markers, aborted and compacted records are not reported. The exit
    code is 1 if records are missing, duplicated, out of order or not in the topic, or if they
    cannot be verified because the topic has deleted them.
    """
    view = _open(table, warehouse, catalog)
    from headrace.pipelines.lake.verify import Wanted

    wanted = Wanted(topic, from_table_start, complete, any_order, full)
    reports = _reports(view, wanted, bootstrap, client_config)
    document = _document(view, topic, reports)
    if as_json:
        output.print_json(document)
    else:
        _print(view, topic, reports)
    if not document["proven"]:
        raise typer.Exit(ExitCode.FAILED)


@app.command(
    epilog=examples(
        "headrace lake compact /lake/orders",
        "headrace lake compact sales.orders --warehouse /lake --json",
        "headrace lake compact /lake/orders --target-mib 512 --dry-run",
    )
)
def compact(
    table: Table,
    warehouse: Warehouse = None,
    catalog: Catalog = None,
    target_mib: Annotated[
        int, typer.Option("--target-mib", min=1, metavar="MIB", help="Size of the new files.")
    ] = 128,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be rewritten.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Rewrite a table's small files into larger ones, partition by partition.

    Queries may write to the table meanwhile: a conflicting commit is retried, and files that
    another writer has replaced or deleted are skipped. Rows do not change. Older versions of the
    table stay readable until the table's own clean-up (VACUUM in Delta, expired snapshots in
    Iceberg) removes the old files. Run one compaction of a table at a time.
    """
    report = _compacted(table, warehouse, catalog, target_mib << 20, dry_run)
    if as_json:
        output.print_json({"table": table, "dry_run": dry_run, **asdict(report)})
    elif not report.files_removed:
        print(f"{table}: {report.files_before:,} file(s), none to compact")
    else:
        verb = "would become" if dry_run else "became"
        print(
            f"{table}: {report.files_removed:,} of {report.files_before:,} files "
            f"({output.size(report.bytes_removed)}) {verb} {report.files_added:,}"
        )
    if report.files_given_up and not as_json:
        print(f"{report.files_given_up:,} files were replaced or deleted by another writer")


def _compacted(
    table: str, warehouse: str | None, catalog: str | None, target_bytes: int, dry_run: bool
) -> "Report":
    try:
        from deltalake.exceptions import DeltaError, TableNotFoundError
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        from headrace.pipelines.lake import compaction
        from headrace.pipelines.lake.columns import ColumnsDiffer
        from headrace.pipelines.lake.views import TableUnreadable, open_table
    except ModuleNotFoundError as error:
        raise _not_installed(error) from error
    try:
        lake = open_table(table, warehouse=warehouse, catalog=catalog)
        if dry_run:
            return compaction.preview(lake, target_bytes)
        with output.progress() as bar:
            task = bar.add_task("planning", total=None, state="")

            def progress(state: str, done: int, total: int) -> None:
                bar.update(task, description=state, completed=done, total=total)

            return compaction.compact(lake, target_bytes, progress)
    except (TableUnreadable, TableNotFoundError, NoSuchTableError, NoSuchNamespaceError) as error:
        raise not_found(f"unknown table {table}: {error}") from error
    except (compaction.CompactionFailed, ColumnsDiffer, DeltaError) as error:
        raise Failure(f"the table {table} was not compacted: {error}") from error


def _not_installed(error: ModuleNotFoundError) -> Failure:
    return Failure(
        f"reading tables requires the package {error.name}",
        hint="Install it: pip install 'headrace[spark]'",
    )


def _open(table: str, warehouse: str | None, catalog: str | None) -> "TableView":
    try:
        from headrace.pipelines.lake.views import TableUnreadable, open_view
    except ModuleNotFoundError as error:
        raise _not_installed(error) from error
    try:
        return open_view(table, warehouse=warehouse, catalog=catalog)
    except TableUnreadable as error:
        raise not_found(str(error)) from error


def _reports(
    view: "TableView", wanted: "Wanted", bootstrap: str, client_config: str | None
) -> "list[PartitionReport]":
    from headrace.cli.spark.lake_topic import LibrdkafkaReader
    from headrace.pipelines.lake import verify as proof

    with output.progress() as bar, LibrdkafkaReader(bootstrap, client_config) as log:
        task = bar.add_task("reading", total=None, state="")

        def progress(state: str, done: int, total: int) -> None:
            bar.update(task, description=state, completed=done, total=total)

        return proof.verify(view, wanted, log, progress)


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
    result = "NOT verified" if findings else "every record once and in order"
    print(f"{view.format} table {view.name}, version {view.version}: {total} of {topic}: {result}")
