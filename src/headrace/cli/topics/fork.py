"""`headrace topics fork`: a new topic with the records of another one."""

from collections.abc import Mapping

from headrace.admin.topic_fork import TopicFork, fork_topic
from headrace.cli import client, output
from headrace.cli.client import ClusterOptions


def run(
    cluster: ClusterOptions,
    parent: str,
    name: str,
    at: str,
    configs: Mapping[str, str],
    *,
    copy: bool,
) -> TopicFork:
    """Make the fork, with a progress bar for copies."""
    with (
        client.admin(cluster) as connected,
        client.admin(cluster) as writing,
        output.progress() as bar,
    ):
        task = bar.add_task(f"fork {name}", total=None, state="")
        return fork_topic(
            connected, parent, name, at, configs=configs, copy_with=writing, copy=copy,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )  # fmt: skip


def show(fork: TopicFork) -> None:
    """Print the result for people."""
    how = "copied" if fork.copied else "shared"
    print(f"created {fork.name}: {output.records(fork.records)} of {fork.parent} {how}")
    if fork.copied:
        output.note(
            f"The records of {fork.name} have new offsets. Offsets of groups and programs that "
            f"read {fork.parent} do not apply to it."
        )
