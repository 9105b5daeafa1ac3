"""`headrace connect dlq`: the dead letters of a connector."""

import time
from typing import Annotated, Any

import typer

from headrace.cli import output
from headrace.cli.connect.rest_client import DEFAULT_CONNECT, ConnectClient, ConnectOption
from headrace.cli.failures import Failure
from headrace.cli.options import AsJson, examples

LOOK_S = 0.3

app = typer.Typer(
    no_args_is_help=True,
    epilog=examples(
        "headrace connect dlq list orders",
        "headrace connect dlq show orders --where \"stage = 'VALUE_CONVERTER'\"",
        "headrace connect dlq replay orders --dry-run",
        "headrace connect dlq replay orders --where 'attempt < 3'",
        "headrace connect dlq discard orders --where \"message like '%duplicate key%'\"",
    ),
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The connector's name.")]
Where = Annotated[
    str,
    typer.Option(
        "--where",
        metavar="SQL",
        help="Only letters for which this condition of Spark SQL holds. Columns: topic, partition, "
        "offset, stage, exception, message, attempt, timestamp.",
    ),
]
ShownLimit = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, help="Show at most N.", show_default=True)
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", min=1, help="At most N letters, the oldest first."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only tell how many letters there are; change nothing.")
]


@app.callback()
def dlq() -> None:
    """Dead letters of a connector: records that it could not process.

    Letters wait until they are replayed through their connector, or discarded. The offsets of the
    consumer group connect-NAME-dlq are the progress.
    """


@app.command(
    "list", epilog=examples("headrace connect dlq list orders --where \"topic = 'orders'\"")
)
def list_groups(
    name: Name,
    where: Where = "",
    limit: ShownLimit = 100,
    url: ConnectOption = DEFAULT_CONNECT,
    as_json: AsJson = False,
) -> None:
    """List the letters that wait, by error, stage and topic; `show` has their messages."""
    found = _get(url, name, where, limit)
    if as_json:
        output.print_json(found)
        return
    rows = [
        (
            output.number(each["count"]),
            each["topic"] or "-",
            each["stage"] or "-",
            (each["exception"] or "-").rpartition(".")[2],
            _second(each["first"]),
            _second(each["last"]),
        )
        for each in found["groups"]
    ]
    columns = ("letters", "topic", "stage", "error", "first", "last")
    output.print_table(columns, rows, numbers={"letters"})
    output.note(f"{found['waiting']} letters wait in {found['topic']}")
    if any(each["stage"] is None for each in found["groups"]):
        output.note(
            "Letters without a stage have no headers: set "
            "errors.deadletterqueue.context.headers.enable=true for later ones."
        )


@app.command(epilog=examples("headrace connect dlq show orders --limit 3 --json"))
def show(
    name: Name,
    where: Where = "",
    limit: ShownLimit = 10,
    url: ConnectOption = DEFAULT_CONNECT,
    as_json: AsJson = False,
) -> None:
    """Show letters that wait: key, value, headers and error."""
    found = _get(url, name, where, limit, "records")
    if as_json:
        output.print_json(found)
        return
    for each in found["records"]:
        place = each["letter"]
        facts = {
            "letter": f"{found['topic']}-{place['partition']}, offset {place['offset']}",
            "record": f"{each['topic'] or '-'}-{_text(each['partition'])}, "
            f"offset {_text(each['offset'])}",
            "time": output.time_text(each["timestamp"]),
            "attempt": _text(each["attempt"]),
            "stage": _text(each["stage"]),
            "error": f"{_text(each['exception'])}: {_text(each['message'])}",
            "key": _text(each["key"]),
            "value": _text(each["value"]),
        }
        facts |= {f"header {header}": _text(text) for header, text in each["headers"]}
        output.print_facts(facts)
        output.print_facts({"": ""})
    output.note(f"{found['waiting']} letters wait in {found['topic']}")


@app.command(
    epilog=examples(
        "headrace connect dlq replay orders",
        "headrace connect dlq replay orders --where \"timestamp > '2026-01-31'\" --limit 1000",
        "headrace connect dlq replay orders --json          the result, for scripts",
    )
)
def replay(
    name: Name,
    where: Where = "",
    limit: Limit = None,
    dry_run: DryRun = False,
    url: ConnectOption = DEFAULT_CONNECT,
    as_json: AsJson = False,
) -> None:
    """Run letters through their connector again.

    The connector's present configuration is used: its converters, transforms and target. A letter
    that fails again waits again, with its attempt counted. Letters that do not match wait on at
    the end of the topic. The replay goes on in the worker if this command is interrupted. Exit code
    1 if the replay fails.
    """
    _run(url, name, "replay", where, limit, dry_run, as_json)


@app.command(
    epilog=examples("headrace connect dlq discard orders --where 'attempt >= 3' --dry-run")
)
def discard(
    name: Name,
    where: Where = "",
    limit: Limit = None,
    dry_run: DryRun = False,
    url: ConnectOption = DEFAULT_CONNECT,
    as_json: AsJson = False,
) -> None:
    """Let letters wait no longer. They stay in the topic until its retention deletes them."""
    _run(url, name, "discard", where, limit, dry_run, as_json)


@app.command(epilog=examples("headrace connect dlq stop orders"))
def stop(name: Name, url: ConnectOption = DEFAULT_CONNECT) -> None:
    """Stop a replay or discard that runs, or give up one that was interrupted."""
    ConnectClient(url).delete("connectors", name, "dead-letters", "run")
    output.note(f"no run over the dead letters of {name} is under way")


def _get(url: str, name: str, where: str, limit: int, *path: str) -> dict[str, Any]:
    query = {"limit": str(limit), **({"where": where} if where else {})}
    found = ConnectClient(url).get("connectors", name, "dead-letters", *path, **query)
    assert isinstance(found, dict), f"the worker sent {found!r}"
    return found


def _run(
    url: str, name: str, action: str, where: str, limit: int | None, dry_run: bool, as_json: bool
) -> None:
    client = ConnectClient(url)
    body = {"where": where, "limit": limit, "dry_run": dry_run}
    found = client.post("connectors", name, "dead-letters", action, body=body)
    assert isinstance(found, dict), f"the worker sent {found!r}"
    if not dry_run:
        found = _followed(client, name, action, found)
    if as_json:
        output.print_json(found)
    elif dry_run:
        verb = "replayed" if action == "replay" else "discarded"
        output.note(f"{found['total']} letters would be {verb}")
    else:
        output.note(_summary(found))
    if found["state"] == "failed":
        raise Failure(
            f"the {action} failed: {found['error']}",
            hint="Remove the cause and run the same command again: it continues where it was.",
        )


def _followed(
    client: ConnectClient, name: str, action: str, found: dict[str, Any]
) -> dict[str, Any]:
    """The report of a run when it has ended; a progress bar until then."""
    with output.progress() as bar:
        task = bar.add_task(action, total=found["total"] or 1, state="")
        while found["state"] == "running":
            state = f"waits: {found['error']}" if found["error"] else f"{found['done']} letters"
            bar.update(task, completed=found["done"], state=state)
            time.sleep(LOOK_S)
            report = client.get("connectors", name, "dead-letters", "run")
            assert isinstance(report, dict), f"the worker sent {report!r}"
            found = report
    return found


def _summary(found: dict[str, Any]) -> str:
    if found["action"] == "discard":
        parts = [f"{found['discarded']} letters discarded"]
    else:
        parts = [f"{found['written']} letters replayed", f"{found['failed_again']} failed again"]
    if found["kept"]:
        parts.append(f"{found['kept']} others wait on")
    stopped = " (stopped)" if found["state"] == "stopped" else ""
    return ", ".join(parts) + stopped


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"base64 {value['base64']}" if isinstance(value, dict) else str(value)


def _second(ms: int) -> str:
    """A time without its milliseconds, because the table is wide."""
    return output.time_text(ms).partition(".")[0]
