"""`headrace transactions`: list, describe, abort."""

import re
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import output
from headrace.cli.failures import Failure, bad_usage
from headrace.cli.options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    ClientConfig,
    complete_topics,
    examples,
)

if TYPE_CHECKING:
    from headrace.cli.client import Cluster


class State(StrEnum):
    """Kafka's names for where a transactional id stands."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


app = typer.Typer(
    no_args_is_help=True,
    epilog=examples(
        "headrace transactions list",
        "headrace transactions list --state ongoing --longer-than 10m",
        "headrace transactions describe copier-1",
        "headrace transactions abort copier-1 --yes",
    ),
)

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@app.callback()
def _group() -> None:
    """Transactional ids: which transactions are open, for how long, and where they write."""


@app.command(
    "list",
    epilog=examples(
        "headrace transactions list",
        "headrace transactions list --state ongoing --longer-than 10m",
        "headrace transactions list --json | jq -r '.[].name'",
    ),
)
def list_transactions(
    state: Annotated[
        list[State] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            case_sensitive=False,
            help=f"Only ids in this state; repeatable: {', '.join(State)}.",
        ),
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option(
            "--longer-than",
            metavar="TIME",
            help="Only transactions that are open for longer: 500ms, 30s, 10m, 2h, 1d.",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """List the transactional ids with their producer ids and states."""
    from headrace.cli import client, transaction_view

    longer_ms = -1 if longer_than is None else _duration_ms(longer_than)
    cluster = client.connect(bootstrap, client_config)
    brokers = client.metadata(cluster, client.admin(cluster)).brokers.values()
    found = transaction_view.listed(
        cluster,
        [(str(broker.host), int(broker.port)) for broker in brokers],
        [str(one) for one in state or ()],
        longer_ms,
    )
    if as_json:
        output.print_json([each.as_json() for each in found])
    elif not found:
        output.note(f"No such transactional ids at {bootstrap}.")
    else:
        from rich.markup import escape

        output.print_table(
            ("Transactional id", "Producer id", "State"),
            [(escape(each.name), str(each.producer_id), each.state) for each in found],
            numbers=("Producer id",),
        )


def _duration_ms(text: str) -> int:
    found = re.fullmatch(r"(\d+)(ms|s|m|h|d)", text)
    if found is None:
        raise bad_usage(
            f"--longer-than {text!r} is not a time", "Give a number and a unit: 500ms, 30s, 10m."
        )
    return int(found[1]) * _UNITS_MS[found[2]]


IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The transactional id.")]


@app.command(
    epilog=examples(
        "headrace transactions describe copier-1",
        "headrace transactions describe copier-1 --json | jq .partitions",
    )
)
def describe(
    name: IdArgument,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Show a transactional id's producer, and the partitions of the transaction that is open."""
    from headrace.cli import client, group_view, transaction_view

    cluster = client.connect(bootstrap, client_config)
    found = transaction_view.described(cluster, name)
    if as_json:
        output.print_json(found.as_json())
        return
    output.print_facts(
        {
            "Transactional id": found.name,
            "State": found.state,
            "Producer id": str(found.producer_id),
            "Epoch": str(found.epoch),
            "Timeout": f"{found.timeout_ms:,} ms",
            "Started": output.time_text(found.start_ms),
            "Partitions": group_view.places_text(found.partitions) if found.partitions else "-",
        }
    )


@app.command(
    epilog=examples(
        "headrace transactions abort copier-1",
        "headrace transactions abort --topic clicks --partition 0 --start-offset 4711 --yes",
    )
)
def abort(
    name: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The transactional id.")
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic", "-t", metavar="TOPIC", help="Of a hanging transaction.",
            autocompletion=complete_topics,
        ),
    ] = None,
    partition: Annotated[
        int, typer.Option("--partition", "-p", metavar="N", min=0, help="Of that topic.")
    ] = 0,
    start_offset: Annotated[
        int | None,
        typer.Option(
            "--start-offset", metavar="OFFSET", min=0, help="Where the hanging transaction began."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:  # fmt: skip
    """Abort the transaction of an id, or one that its coordinator has forgotten, after asking.

    The producer that has it open is fenced. A forgotten ("hanging") transaction is named by its
    partition and the offset at which it began.
    """
    from headrace.cli import client, transaction_view

    if (name is None) == (topic is None) or (topic is None) != (start_offset is None):
        raise bad_usage(
            "which transaction is not said",
            "Give either a transactional id, or --topic, --partition and --start-offset.",
        )
    cluster = client.connect(bootstrap, client_config)
    if name is not None:
        found = transaction_view.described(cluster, name)
        _confirm(f"the transaction of {name} ({found.state})", yes)
        transaction_view.abort(cluster, found)
        done: dict[str, object] = {"name": name, "aborted": found.state == State.ONGOING}
    else:
        assert topic is not None
        assert start_offset is not None
        _confirm(f"the transaction of {topic}-{partition} at offset {start_offset}", yes)
        leader = _leader(cluster, topic, partition)
        producer_id = transaction_view.abort_hanging(
            cluster, leader, topic, partition, start_offset
        )
        done = {"topic": topic, "partition": partition, "producer_id": producer_id, "aborted": True}
    if as_json:
        output.print_json(done)
    elif done["aborted"]:
        print(f"aborted {name or f'{topic}-{partition}'}")
    else:
        output.note(f"{name} had no transaction open; its producer is fenced.")


def _leader(cluster: "Cluster", topic: str, partition: int) -> tuple[str, int]:
    from headrace.cli import client
    from headrace.cli.failures import not_found

    (found,) = client.describe_topics(cluster, client.admin(cluster), [topic])
    for each in found.partitions:
        if each.id == partition and each.leader is not None:
            return str(each.leader.host), int(each.leader.port)
    raise not_found(f"topic {topic!r} has no partition {partition} with a leader")


def _confirm(what: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise bad_usage(f"will not abort {what} without being sure", "Add --yes to confirm.")
    if not typer.confirm(f"Abort {what}?", err=True):
        raise Failure("nothing was aborted", code="ABORTED")
