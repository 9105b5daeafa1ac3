"""`headrace log`: shows and checks the files of partitions."""

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.failures import Failure, bad_usage
from headrace.cli.options import AsJson, examples

app = typer.Typer(
    no_args_is_help=True,
    epilog=examples(
        "headrace log dump headrace-data/clicks-0/00000000000000000000.log",
        "headrace log verify headrace-data",
    ),
)

HIDDEN = {
    "kind",
    "problem",
    "magic",
    "crc",
    "timestamp_type",
    "base_timestamp",
    "headers",
    "coordinator_epoch",
    "last_batch_offset",
}
"""Fields that tables leave out; JSON has all of them."""
TEXTS = {"name", "value", "topic"}


@app.callback()
def _group() -> None:
    """Read a partition's files from disk."""


@app.command(
    epilog=examples(
        "headrace log dump clicks-0/00000000000000000000.log",
        "headrace log dump clicks-0/00000000000000000000.log --records",
        "headrace log dump clicks-0/00000000000000000000.index",
        "headrace log dump clicks-0/*.snapshot clicks-0/leader-epoch-checkpoint --json",
    )
)
def dump(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="A .log, .index, .timeindex, .txnindex, .snapshot or checkpoint file.",
        ),
    ],
    records: Annotated[
        bool, typer.Option("--records", "-r", help="Also show the records of each batch.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=1, metavar="N", help="Show only the first N entries."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show and check the content of a log file; Kafka's own files work too.

    The checksums of batches and snapshots, the order of offsets, and the entries of an index are
    verified. If there is a problem, the exit code is 1. With --json there is one object per line.
    """
    from headrace.cli.broker import segment_files

    problems: list[str] = []
    for path in files:
        entries = segment_files.read(path, records=records)
        if limit is not None:
            entries = islice(entries, limit)
        watched = _collect(path, entries, problems)
        if as_json:
            for entry in watched:
                print(json.dumps({"file": str(path), **entry}, ensure_ascii=False))
        else:
            _show(path, list(watched))
    sys.stdout.flush()
    if problems:
        raise Failure(
            f"{len(problems)} problem{'s' * (len(problems) > 1)} found; the first: {problems[0]}",
            code="CORRUPT",
        )


@app.command(
    epilog=examples(
        "headrace log verify headrace-data",
        "headrace log verify headrace-data/clicks-0",
        "headrace log verify /disk1/data /disk2/data --json | jq '.findings[]'",
    )
)
def verify(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR", help="A broker's data folder, or one partition's folder."),
    ],
    as_json: AsJson = False,
) -> None:
    """Check every batch and every index in the data of a stopped broker, without changes.

    It verifies checksums, the order of offsets, indexes, transactions, snapshots and checkpoints.
    Each finding has a file and a byte position; with any finding the exit code is 1. At its
    start a broker rebuilds indexes and truncates a torn tail. It never serves a batch with a wrong
    checksum; in a cluster it fetches the batch again from another replica at the first read.
    """
    from headrace.cli.broker.folder_lock import hold
    from headrace.cli.broker.verification import Verification, log_bytes
    from headrace.disk import RealDisk

    disk = RealDisk()
    try:
        with hold(folders), output.progress() as bar:
            total = sum(log_bytes(disk, str(folder)) for folder in folders)
            task = bar.add_task("verify", total=total, state="")
            verification = Verification(disk, lambda count: bar.advance(task, count))
            for folder in folders:
                verification.folder(str(folder))
                bar.update(task, state=str(folder))
    except OSError as error:
        raise bad_usage(f"cannot read {error.filename}: {error.strerror}") from None
    counts, findings = verification.counts, verification.findings
    if as_json:
        output.print_json(
            {
                "partitions": counts.partitions,
                "segments": counts.segments,
                "batches": counts.batches,
                "bytes": counts.bytes,
                "findings": [finding._asdict() for finding in findings],
            }
        )
    else:
        out = output.console()
        for finding in findings:
            out.print(f"{finding.file}:{finding.position}: ", end="", markup=False, soft_wrap=True)
            out.print(finding.problem, style="red", markup=False, soft_wrap=True)
        out.print(
            f"[dim]{counts.batches:,} batches in {counts.segments:,} segments of "
            f"{counts.partitions:,} partitions, {output.size(counts.bytes)}: "
            f"{len(findings) or 'no'} finding{'s' * (len(findings) != 1)}[/]",
            soft_wrap=True,
        )
    sys.stdout.flush()
    if findings:
        raise Failure(
            f"{len(findings)} finding{'s' * (len(findings) > 1)}; the first: "
            f"{findings[0].file} at byte {findings[0].position}: {findings[0].problem}",
            code="CORRUPT",
        )


def _collect(
    path: Path, entries: Iterator[dict[str, object]], problems: list[str]
) -> Iterator[dict[str, object]]:
    for number, entry in enumerate(entries, 1):
        if problem := entry.get("problem"):
            place = next(
                (f"{name} {entry[name]}" for name in ("position", "offset") if name in entry),
                f"entry {number}",
            )
            problems.append(f"{path.name}, {place}: {problem}")
        yield entry


def _show(path: Path, entries: list[dict[str, object]]) -> None:
    out = output.console()
    out.print(f"[bold]{path}[/]", soft_wrap=True)
    if not entries:
        out.print("[dim]empty[/]\n")
        return
    if entries[0]["kind"] == "batch":
        _show_batches(entries)
    else:
        names = [n for n in max(entries, key=len) if n not in HIDDEN]
        broken = any("problem" in entry for entry in entries)
        rows = [
            [
                *(_cell(name, entry.get(name)) for name in names),
                *([f"[red]{entry.get('problem', '')}[/]"] if broken else []),
            ]
            for entry in entries
        ]
        titles = [n.replace("_", " ").capitalize() for n in names]
        numbers = [t for n, t in zip(names, titles, strict=True) if n not in TEXTS]
        output.print_table([*titles, *(["Problem"] if broken else [])], rows, numbers=numbers)
    count = sum(entry["kind"] != "record" for entry in entries)
    one, many = ("batch", "batches") if entries[0]["kind"] == "batch" else ("entry", "entries")
    out.print(f"[dim]{count:,} {one if count == 1 else many}[/]\n")


def _show_batches(entries: list[dict[str, object]]) -> None:
    from rich.markup import escape

    out = output.console()
    out.print(
        f"[bold cyan]{'POSITION':>10}  {'OFFSETS':<21} {'COUNT':>6} {'BYTES':>8}  {'CRC':<4} "
        f"{'CODEC':<7} {'EPOCH':>5}  {'LATEST (UTC)':<23}  PRODUCER[/]",
        soft_wrap=True,
    )
    for entry in entries:
        if entry["kind"] == "record":
            out.print(_record_line(entry), soft_wrap=True)
            continue
        if "base_offset" in entry:
            line = (
                f"{entry['position']:>10}  {_span(entry):<21} {entry['count']:>6} "
                f"{entry['size']:>8}  {'ok' if entry['crc_ok'] else 'BAD':<4} "
                f"{entry['codec']:<7} {entry['leader_epoch']:>5}  "
                f"{_cell('timestamp', entry['max_timestamp']):<23}  {_producer(entry)}"
            )
            out.print(escape(line), soft_wrap=True)
        if problem := entry.get("problem"):
            out.print(f"[red]{entry['position']:>10}  {problem}[/]", soft_wrap=True)


def _span(entry: dict[str, object]) -> str:
    return f"{entry['base_offset']}..{entry['last_offset']}"


def _producer(entry: dict[str, object]) -> str:
    words = []
    if entry["producer_id"] != -1:
        words.append(
            f"{entry['producer_id']}/{entry['producer_epoch']} seq {entry['base_sequence']}"
        )
    words += [name for name in ("transactional", "control") if entry[name]]
    return " ".join(words) or "-"


def _record_line(entry: dict[str, object]) -> str:
    from rich.markup import escape

    if problem := entry.get("problem"):
        return f"[red]{'':>12}{problem}[/]"
    if "control" in entry:
        said = f"{entry['control']} marker"
    else:
        said = f"{_side(entry, 'key')} = {_side(entry, 'value')}"
    headers = entry["headers"]
    if isinstance(headers, list) and headers:
        said += "  {" + ", ".join(f"{h['key']}={_side(h, 'value')}" for h in headers) + "}"
    when = _cell("timestamp", entry["timestamp"])
    return f"[dim]{entry['offset']:>14}  {when}[/]  {escape(said)}"


def _side(entry: dict[str, object], name: str) -> str:
    from headrace.admin.record_text import printable

    value = entry[name]
    if value is None:
        return "null"
    if entry.get(f"{name}_encoding") == "base64":
        return f"base64:{value}"
    return printable(str(value).encode())


def _cell(name: str, value: object) -> str:
    if value is None:
        return "-"
    if name.endswith("timestamp") and isinstance(value, int):
        return output.time_text(value)
    return str(value)
