"""Topics by name: describe them with a suggestion if one is missing, create, wait for changes."""

import difflib
import time
from collections.abc import Iterable, Sequence

from headrace.admin.errors import NotFound
from headrace.client.cluster import Cluster
from headrace.client.topics import TopicDescription, create_topics, describe_topics

SETTLE_TIMEOUT_S = 5.0
SETTLE_PAUSE_S = 0.05


def existing_topics(cluster: Cluster, names: Sequence[str]) -> list[TopicDescription]:
    """The named topics, in this order; NotFound with a suggestion if one does not exist."""
    found = describe_topics(cluster, names)
    for name in names:
        if name not in found:
            hint = _suggestion(name, describe_topics(cluster))
            raise NotFound(f"topic {name!r} does not exist", hint)
    return [found[name] for name in names]


def _suggestion(name: str, existing: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(existing), 3)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"`headrace topics list` shows all topics; `headrace topics create {name}` creates it."


def replica_brokers(topics: Iterable[TopicDescription]) -> list[int]:
    """The brokers that hold replicas of these topics."""
    rows = (held for topic in topics for held in topic.partitions.values())
    return sorted({broker for held in rows for broker in held.replicas})


def settle_topics(cluster: Cluster, names: Sequence[str], *, present: bool) -> None:
    """Wait until brokers have seen a change of these topics.

    Apache Kafka responds when the controller has made the change; without this, the next request
    may not find a topic that was just created.
    """
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    waiting = list(names)
    while waiting and time.monotonic() < deadline:
        found = describe_topics(cluster, waiting)
        ready = {name for name, topic in found.items() if len(topic.led) == len(topic.partitions)}
        waiting = [name for name in waiting if (name in ready) != present]
        if waiting:
            time.sleep(SETTLE_PAUSE_S)


def create_topic(
    cluster: Cluster, name: str, *, partitions: int = -1, replication_factor: int = -1
) -> None:
    """Create one topic and wait until it can be used; -1 is the broker's default."""
    refused = create_topics(
        cluster, [name], partitions=partitions, replication_factor=replication_factor
    )
    for error in refused.values():
        raise error
    settle_topics(cluster, [name], present=True)
