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
    from headrace.admin.transactions_view import TransactionAbort
    from headrace.client.transactions import TransactionDescription


class TransactionStateName(StrEnum):
    """Kafka's names for the states of a transactional id."""

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
        list[TransactionStateName] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            case_sensitive=False,
            help=f"Only ids in this state; repeatable: {', '.join(TransactionStateName)}.",
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
    from headrace.cli import client
    from headrace.client.transactions import list_transactions as ask

    longer_ms = -1 if longer_than is None else _duration_ms(longer_than)
    cluster = client.connect(bootstrap, client_config)
    with client.admin(cluster) as connected:
        found = ask(connected, [str(one) for one in state or ()], longer_ms)
    if as_json:
        output.print_json(
            [
                {
                    "name": each.transactional_id,
                    "producer_id": each.producer_id,
                    "state": each.state,
                }
                for each in found
            ]
        )
    elif not found:
        output.note(f"No such transactional ids at {bootstrap}.")
    else:
        from rich.markup import escape

        output.print_table(
            ("Transactional id", "Producer id", "State"),
            [(escape(each.transactional_id), str(each.producer_id), each.state) for each in found],
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
    """Show the producer of a transactional id, and the partitions of its open transaction."""
    from headrace.admin.transactions_view import existing_transaction
    from headrace.cli import client
    from headrace.cli.groups.group_tables import places_text

    cluster = client.connect(bootstrap, client_config)
    with client.admin(cluster) as connected:
        found = existing_transaction(connected, name)
    if as_json:
        output.print_json(_as_json(found))
        return
    output.print_facts(
        {
            "Transactional id": found.transactional_id,
            "State": found.state,
            "Producer id": str(found.producer_id),
            "Epoch": str(found.epoch),
            "Timeout": f"{found.timeout_ms:,} ms",
            "Started": output.time_text(found.start_ms),
            "Partitions": places_text(found.partitions) if found.partitions else "-",
        }
    )


def _as_json(found: "TransactionDescription") -> dict[str, object]:
    return {
        "name": found.transactional_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "epoch": found.epoch,
        "timeout_ms": found.timeout_ms,
        "start_ms": found.start_ms,
        "partitions": [{"topic": topic, "partition": at} for topic, at in found.partitions],
    }


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
            "--topic", "-t", metavar="TOPIC", help="Topic of a hanging transaction.",
            autocompletion=complete_topics,
        ),
    ] = None,
    partition: Annotated[
        int, typer.Option("--partition", "-p", metavar="N", min=0, help="Partition of --topic.")
    ] = 0,
    start_offset: Annotated[
        int | None,
        typer.Option(
            "--start-offset", metavar="OFFSET", min=0, help="Its first offset."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:  # fmt: skip
    """Abort the transaction of an id, or a hanging transaction, after a confirmation.

    The producer of the transaction is fenced. A hanging transaction, which its coordinator no
    longer has, is specified by its partition and its first offset.
    """
    from headrace.admin import transactions_view
    from headrace.cli import client
    from headrace.types import TopicPartition

    if (name is None) == (topic is None) or (topic is None) != (start_offset is None):
        raise bad_usage(
            "specify exactly one transaction",
            "Specify a transactional id, or --topic, --partition and --start-offset.",
        )
    cluster = client.connect(bootstrap, client_config)
    with client.admin(cluster) as connected:
        if name is not None:
            found = transactions_view.existing_transaction(connected, name)
            _confirm(f"the transaction of {name} ({found.state})", yes)
            done = transactions_view.abort_transaction(connected, found)
        else:
            assert topic is not None
            assert start_offset is not None
            _confirm(f"the transaction of {topic}-{partition} at offset {start_offset}", yes)
            place = TopicPartition(topic, partition)
            done = transactions_view.abort_hanging(connected, place, start_offset)
    if as_json:
        output.print_json(_aborted_json(done))
    elif done.aborted:
        print(f"aborted {name or f'{topic}-{partition}'}")
    else:
        output.note(f"{name} had no transaction open; its producer is fenced.")


def _aborted_json(done: "TransactionAbort") -> dict[str, object]:
    if done.partition is None:
        return {"name": done.transactional_id, "aborted": done.aborted}
    return {
        "topic": done.partition.topic,
        "partition": done.partition.partition,
        "producer_id": done.producer_id,
        "aborted": done.aborted,
    }


def _confirm(what: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise bad_usage(f"aborting {what} needs a confirmation", "Add --yes to confirm.")
    if not typer.confirm(f"Abort {what}?", err=True):
        raise Failure("nothing was aborted", code="ABORTED")
