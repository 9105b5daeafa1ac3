"""`headrace topics`: list, create, describe, sizes, fork, alter, delete, add-partitions."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import output
from headrace.cli.failures import Failure, bad_usage, raise_all
from headrace.cli.options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    ClientConfig,
    TopicArgument,
    TopicArguments,
    complete_topics,
    examples,
    pairs,
)

if TYPE_CHECKING:
    from headrace.admin.balance import Plan
    from headrace.cli.client import ClusterOptions
    from headrace.client.layout import Layout
    from headrace.client.topics import TopicDescription

CLUSTER_S = "the cluster's default"

app = typer.Typer(
    no_args_is_help=True,
    epilog=examples(
        "headrace topics list",
        "headrace topics create clicks --partitions 6 --config retention.ms=86400000",
        "headrace topics describe clicks",
        "headrace topics sizes",
        "headrace topics fork clicks clicks.test",
        "headrace topics alter clicks --set cleanup.policy=compact --unset retention.ms",
        "headrace topics alter clicks --replication-factor 3",
        "headrace topics add-partitions clicks 12",
        "headrace topics delete clicks --yes",
    ),
)


@app.callback()
def _group() -> None:
    """List, create, describe, alter and delete topics."""


@app.command(
    "list",
    epilog=examples("headrace topics list", "headrace topics list --json | jq -r '.[].name'"),
)
def list_topics(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    internal: Annotated[
        bool, typer.Option("--internal", help="Also the cluster's own topics (__...).")
    ] = False,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """List the topics with their partitions and replicas."""
    from headrace.cli import client
    from headrace.client.topics import describe_topics

    cluster = client.connect(bootstrap, client_config)
    with client.admin(cluster) as connected:
        found = describe_topics(connected)
    rows = [
        _line(topic)
        for name, topic in sorted(found.items())
        if internal or not name.startswith("__")
    ]
    if as_json:
        output.print_json(rows)
    elif not rows:
        output.note(f"No topics at {bootstrap}. Make one: headrace topics create NAME")
    else:
        output.print_table(
            ("Topic", "Partitions", "Replicas", "State"),
            [
                (str(r["name"]), str(r["partitions"]), str(r["replication_factor"]), _state(r))
                for r in rows
            ],
            numbers=("Partitions", "Replicas"),
        )


def _line(topic: "TopicDescription") -> dict[str, object]:
    partitions = topic.partitions.values()
    return {
        "name": topic.name,
        "partitions": len(partitions),
        "replication_factor": max((len(each.replicas) for each in partitions), default=0),
        "under_replicated": sum(len(each.isr) < len(each.replicas) for each in partitions),
        "offline": sum(each.leader < 0 for each in partitions),
    }


def _state(row: Mapping[str, object]) -> str:
    if row["offline"]:
        return f"[red]{row['offline']} offline[/]"
    if row["under_replicated"]:
        return f"[yellow]{row['under_replicated']} under-replicated[/]"
    return "[green]ok[/]"


@app.command(
    epilog=examples(
        "headrace topics create clicks",
        "headrace topics create clicks --partitions 6 --replication-factor 3",
        "headrace topics create state --config cleanup.policy=compact --if-not-exists",
    )
)
def create(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Names of new topics.")],
    partitions: Annotated[
        int,
        typer.Option("--partitions", "-p", metavar="N", help="How many.", show_default=CLUSTER_S),
    ] = -1,
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor",
            "-r",
            metavar="N",
            help="Number of replicas.",
            show_default=CLUSTER_S,
        ),
    ] = -1,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="NAME=VALUE", help="A setting; may be repeated."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="An existing topic is no error.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Create topics."""
    from headrace.admin.topics import settle_topics
    from headrace.cli import client
    from headrace.client.topics import create_topics
    from headrace.errors import ErrorCode

    configs = pairs(config or [], "--config")
    cluster = client.connect(bootstrap, client_config)
    wanted = list(dict.fromkeys(names))
    with client.admin(cluster) as connected:
        refused = create_topics(
            connected,
            wanted,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=configs,
        )
        new = [name for name in wanted if name not in refused]
        settle_topics(connected, new, present=True)
    exist = ErrorCode.TOPIC_ALREADY_EXISTS if if_not_exists else None
    made: list[dict[str, object]] = [
        {"name": name, "created": name in new}
        for name in wanted
        if name in new or refused[name].code is exist
    ]
    failures = [client.refusal(error) for error in refused.values() if error.code is not exist]
    if as_json:
        output.print_json(made)
    else:
        for each in made:
            print(f"{'created' if each['created'] else 'exists already:'} {each['name']}")
    raise_all(failures)


@app.command(
    epilog=examples(
        "headrace topics describe clicks",
        "headrace topics describe clicks --json | jq '.partitions[].end'",
    )
)
def describe(
    names: TopicArguments,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Show partitions, leaders, in-sync replicas, offsets, sizes and changed settings.

    With --json: an object for one topic, a list for several.
    """
    from headrace.admin.topic_view import view_topics
    from headrace.cli import client
    from headrace.cli.topics import topic_table

    cluster = client.connect(bootstrap, client_config)
    with client.admin(cluster) as connected:
        found = view_topics(connected, names)
    if as_json:
        plain = [each.as_json() for each in found]
        output.print_json(plain[0] if len(plain) == 1 else plain)
        return
    for each in found:
        topic_table.show(each)


@app.command(
    epilog=examples(
        "headrace topics sizes",
        "headrace topics sizes clicks",
        "headrace topics sizes --data-dir /var/lib/headrace",
        "headrace topics sizes --json | jq 'sort_by(-.bytes) | .[0].topic'",
    )
)
def sizes(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC",
            help="Names of topics, to see each partition.",
            show_default="all topics",
            autocompletion=complete_topics,
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir", metavar="DIR", help="A broker's data folder, to count segments."
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Show bytes, segments, records, the oldest record, and the next deletion by retention.

    Segments are counted only in a --data-dir on this machine, of
    Headrace or of Apache Kafka. Without it "deleted next" is the earliest possible time.
    """
    from headrace.cli import client
    from headrace.cli.topics import size_table

    cluster = client.connect(bootstrap, client_config)
    found = size_table.look(cluster, names or [], data_dir)
    if as_json:
        output.print_json([each.as_json() for each in found])
    elif not found:
        output.note(f"No topics at {bootstrap}. Make one: headrace topics create NAME")
    else:
        size_table.show(found, partitions=bool(names))


@app.command(
    epilog=examples(
        "headrace topics fork orders orders.test",
        "headrace topics fork orders orders.test --at 120,98,104",
        "headrace topics fork orders orders.monday --at 2026-01-05T00:00 --config retention.ms=-1",
    )
)
def fork(
    parent: TopicArgument,
    name: Annotated[str, typer.Argument(metavar="FORK", help="The name of the new topic.")],
    at: Annotated[
        str,
        typer.Option(
            "--at",
            metavar="POSITION",
            help="The fork has the records before: now, a time, or offsets like 120,98.",
        ),
    ] = "now",
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config", "-c", metavar="NAME=VALUE", help="Replaces one of the topic's settings."
        ),
    ] = None,
    copy: Annotated[
        bool, typer.Option("--copy", help="Copy the records even if files can be shared.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Create a topic that begins with the records of another one.

    Headrace brokers share the files of these records, so it takes no space, and offsets are those
    of the topic. Other clusters get a copy with new offsets. Both topics then change on their own.
    """
    from headrace.cli import client
    from headrace.cli.topics import fork as forks

    cluster = client.connect(bootstrap, client_config)
    configs = pairs(config or [], "--config")
    made = forks.run(cluster, parent, name, at, configs, copy=copy)
    if as_json:
        output.print_json(made.as_json())
    else:
        forks.show(made)


@app.command(
    epilog=examples(
        "headrace topics alter clicks --set retention.ms=3600000",
        "headrace topics alter clicks --set cleanup.policy=compact --unset retention.ms",
        "headrace topics alter clicks --replication-factor 3",
    )
)
def alter(
    name: TopicArgument,
    to_set: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting; may be repeated."),
    ] = None,
    to_unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="NAME", help="Back to the default; may be repeated."),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            metavar="N",
            min=1,
            help="Number of replicas; waits until they are in sync.",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Set and unset configs of a topic; other configs are not changed.

    It can also change the replication factor. New replicas are placed on the least-loaded brokers,
    and leaders do not change.
    """
    from headrace.admin.topics import existing_topics
    from headrace.cli import client
    from headrace.cli.topics import config_changes
    from headrace.client.configs import alter_configs
    from headrace.types import ConfigResourceType

    if replication_factor is not None:
        if to_set or to_unset:
            raise bad_usage(
                "--replication-factor cannot be combined with configs", "Change them separately."
            )
        _resize(client.connect(bootstrap, client_config), name, replication_factor, as_json)
        return
    if not to_set and not to_unset:
        raise bad_usage("nothing to change", "Specify --set, --unset or --replication-factor.")
    changes = config_changes.Changes(pairs(to_set or [], "--set"), tuple(to_unset or ()))
    cluster = client.connect(bootstrap, client_config)
    with client.admin(cluster) as connected:
        existing_topics(connected, [name])
        alter_configs(connected, ConfigResourceType.TOPIC, name, changes.to_set, changes.to_unset)
    config_changes.report(f"topic {name}", changes, as_json=as_json)


def _resize(cluster: "ClusterOptions", name: str, factor: int, as_json: bool) -> None:
    from headrace.admin.reassignment import plan_replication_factor
    from headrace.admin.topics import existing_topics
    from headrace.cli import client
    from headrace.cli.cluster import moving

    def plan(layout: "Layout") -> "Plan":
        return plan_replication_factor(layout, name, factor)

    with client.admin(cluster) as connected:
        existing_topics(connected, [name])
    moving.run(cluster, plan, yes=True, dry_run=False, at_once=10, as_json=as_json)


@app.command(epilog=examples("headrace topics delete clicks", "headrace topics delete a b --yes"))
def delete(
    names: TopicArguments,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Delete topics with all their records, after a confirmation."""
    from headrace.admin.topics import existing_topics, settle_topics
    from headrace.cli import client
    from headrace.client.topics import delete_topics

    cluster = client.connect(bootstrap, client_config)
    wanted = list(dict.fromkeys(names))
    with client.admin(cluster) as connected:
        existing_topics(connected, wanted)
        if not yes:
            _confirm(names)
        refused = delete_topics(connected, wanted)
        deleted = [name for name in wanted if name not in refused]
        settle_topics(connected, deleted, present=False)
    failures = [client.refusal(error) for error in refused.values()]
    if as_json:
        output.print_json([{"name": name, "deleted": True} for name in deleted])
    else:
        for name in deleted:
            print(f"deleted {name}")
    raise_all(failures)


def _confirm(names: list[str]) -> None:
    listed = ", ".join(names)
    if not sys.stdin.isatty():
        raise bad_usage(f"deleting {listed} needs a confirmation", "Add --yes to confirm.")
    if not typer.confirm(f"Delete {listed} and all records in it?", err=True):
        raise Failure("nothing was deleted", code="ABORTED")


@app.command("add-partitions", epilog=examples("headrace topics add-partitions clicks 12"))
def add_partitions(
    name: TopicArgument,
    total: Annotated[int, typer.Argument(metavar="TOTAL", min=1, help="How many in the end.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Add partitions to a topic. Keys may map to other partitions after that."""
    from headrace.admin.topics import existing_topics
    from headrace.cli import client
    from headrace.client.topics import add_partitions as add

    cluster = client.connect(bootstrap, client_config)
    with client.admin(cluster) as connected:
        before = len(existing_topics(connected, [name])[0].partitions)
        add(connected, name, total)
    if as_json:
        output.print_json({"name": name, "partitions": total, "before": before})
    else:
        print(f"{name} has {total} partitions now (before: {before})")
