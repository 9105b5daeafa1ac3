"""`headrace offsets`: first and last offsets, or offsets by time."""

from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    ClientConfig,
    TopicArgument,
    examples,
)

app = typer.Typer()


@app.command(
    epilog=examples(
        "headrace offsets clicks",
        "headrace offsets clicks --at 2026-01-31T12:00:00Z",
        "headrace offsets clicks --at -15m --json",
    )
)
def offsets(
    topic: TopicArgument,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            "-t",
            metavar="TIME",
            help="Also show the first offset at or after an ISO time, milliseconds, or -15m.",
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="N", help="Only this partition; repeatable."),
    ] = None,
    committed: Annotated[
        bool, typer.Option("--committed", help="Show the last stable offset as the end.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Show the first and last offset of each partition, and the offset of a time."""
    from headrace.admin import positions
    from headrace.admin.topics import existing_topics
    from headrace.cli import client
    from headrace.client.offsets import FoundOffset, find_offsets
    from headrace.types import TopicPartition

    moment = None if at is None else positions.parse_moment(at)
    cluster = client.connect(bootstrap, client_config)
    found: dict[TopicPartition, FoundOffset] = {}
    with client.admin(cluster) as connected:
        existing = len(existing_topics(connected, [topic])[0].partitions)
        indexes = positions.chosen_partitions(topic, existing, partition)
        chosen = [TopicPartition(topic, index) for index in indexes]
        limits = positions.bounds(connected, chosen, committed=committed)
        if moment is not None:
            found = find_offsets(connected, dict.fromkeys(chosen, moment))
    rows: list[dict[str, int | None]] = []
    for place in chosen:
        begin, end = limits[place].begin, limits[place].end
        row: dict[str, int | None] = {
            "partition": place.partition, "begin": begin, "end": end, "records": end - begin,
        }  # fmt: skip
        if moment is not None:
            there = found[place].offset >= 0
            row["at_offset"] = found[place].offset if there else None
            row["at_timestamp"] = found[place].timestamp_ms if there else None
        rows.append(row)
    total = sum(row["records"] or 0 for row in rows)
    if as_json:
        output.print_json({"topic": topic, "at": moment, "records": total, "partitions": rows})
    else:
        _show(rows, total, moment)


def _show(rows: list[dict[str, int | None]], total: int, moment: int | None) -> None:
    columns = ["Partition", "Begin", "End", "Records"]
    if moment is not None:
        columns += ["Offset", "Timestamp (UTC)"]
        output.note(f"first record at or after {output.time_text(moment)} UTC; - means none")
    body = []
    for row in rows:
        cells = [output.number(row[name]) for name in ("partition", "begin", "end", "records")]
        if moment is not None:
            cells += [output.number(row["at_offset"]), output.time_text(row["at_timestamp"])]
        body.append(cells)
    if len(rows) > 1:
        spare = [""] * (len(columns) - 4)
        body.append(["[bold]total[/]", "", "", f"[bold]{total:,}[/]", *spare])
    output.print_table(columns, body, numbers=("Partition", "Begin", "End", "Records", "Offset"))
