"""Reassignments: plans by the rules of `balance.py`, and their execution, on any Kafka cluster."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from headrace.admin import balance
from headrace.admin.balance import Plan, Replicas
from headrace.admin.errors import AdminError, NotFound
from headrace.client import layout
from headrace.client.cluster import Cluster
from headrace.client.layout import Layout
from headrace.errors import KafkaError
from headrace.types import TopicPartition

POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """The progress of a plan: partitions that are done or were refused, and those that move."""

    done: int
    total: int
    under_way: int
    refused: Mapping[TopicPartition, KafkaError]


def settled_layout(cluster: Cluster) -> Layout:
    """The replicas of all partitions; AdminError MOVES_UNDER_WAY while partitions are moving."""
    moving = cluster.retry("listing moves", lambda: layout.moves_under_way(cluster))
    if moving:
        raise AdminError(
            f"{len(moving)} partition(s) are moving already, such as {next(iter(moving))}",
            code="MOVES_UNDER_WAY",
            hint="Wait until `headrace cluster describe` shows no moves, then plan again.",
        )
    return cluster.retry("reading the replicas of all topics", lambda: layout.read_layout(cluster))


def plan_balance(found: Layout) -> Plan:
    """Balance replicas and leaders over all live brokers."""
    return _planned(lambda held: balance.even_out(found.racks, held), found)


def plan_drain(found: Layout, broker: int) -> Plan:
    """Move all replicas off a broker, dead or alive; NotFound if it does not exist."""
    holders = {one for held in found.partitions.values() for one in held.replicas}
    known = sorted(holders | found.racks.keys())
    if broker not in known:
        listed = ", ".join(map(str, known))
        raise NotFound(f"broker {broker} does not exist", f"There are {listed}.")
    return _planned(lambda held: balance.drain(found.racks, held, broker), found)


def plan_replication_factor(found: Layout, topic: str, factor: int) -> Plan:
    """Give every partition of a topic this many replicas."""
    return _planned(lambda held: balance.resize(found.racks, held, topic, factor), found)


def _planned(planner: Callable[[Mapping[TopicPartition, Replicas]], Plan], found: Layout) -> Plan:
    """The plan; AdminError TOO_FEW_BROKERS if it is not possible."""
    try:
        return planner({at: held.replicas for at, held in found.partitions.items()})
    except balance.TooFewBrokers as error:
        raise AdminError(
            str(error),
            code="TOO_FEW_BROKERS",
            hint="Start another broker, or `headrace topics alter TOPIC --replication-factor N`.",
        ) from None


def not_led_by_preferred(found: Layout) -> list[TopicPartition]:
    """Partitions whose preferred (first) replica is in sync and does not lead."""
    return [
        partition
        for partition, held in found.partitions.items()
        if held.leader != held.replicas[0] and held.replicas[0] in held.isr
    ]


def move_all(cluster: Cluster, plan: Plan, at_once: int) -> Iterator[MoveProgress]:
    """Move at most `at_once` partitions at a time until all are done; yields the progress.

    If the caller stops early, the moves that have begun continue.
    """
    waiting = {move.partition: move.after for move in reversed(plan.moves)}
    moving: set[TopicPartition] = set()
    refused: dict[TopicPartition, KafkaError] = {}
    while waiting or moving:
        room = min(at_once - len(moving), len(waiting))
        batch = dict(waiting.popitem() for _ in range(room))
        if batch:
            errors = cluster.retry("moving partitions", partial(layout.move, cluster, batch))
            refused |= errors
            moving |= batch.keys() - errors.keys()
        under_way = cluster.retry("listing moves", lambda: layout.moves_under_way(cluster))
        moving &= under_way.keys()
        left = len(waiting) + len(moving)
        yield MoveProgress(len(plan.moves) - left, len(plan.moves), len(moving), dict(refused))
        if moving:
            time.sleep(POLL_S)


def elect_preferred_leaders(cluster: Cluster) -> dict[TopicPartition, KafkaError]:
    """Elect the preferred leaders where others lead; returns the errors."""
    now = cluster.retry("asking who leads", lambda: layout.read_layout(cluster))
    wanted = not_led_by_preferred(now)
    if not wanted:
        return {}
    return cluster.retry("electing leaders", lambda: layout.elect_preferred(cluster, wanted))
