"""New offsets for a group: the target, the plan, and its execution.

`plan_reset` writes nothing; `apply_reset` commits what it planned.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from headrace.admin import positions
from headrace.admin.errors import AdminError
from headrace.admin.group_view import (
    DescribedGroup,
    Place,
    committed_offsets,
    describe,
    missing_group,
)
from headrace.admin.share_groups import SHARE, alter_share_offsets, share_offsets
from headrace.admin.topics import existing_topics
from headrace.client.cluster import Cluster
from headrace.client.groups import Committed, commit_offsets
from headrace.client.topics import describe_topics
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition

RESET_NEEDS_NO_MEMBERS = "only offsets of a group without members can be reset"


@dataclass(frozen=True, slots=True)
class Shift:
    """Shift by N records; a negative N moves back."""

    count: int


Target: TypeAlias = positions.Start | Shift


@dataclass(frozen=True, slots=True)
class ResetScope:
    """A topic and some of its partitions; None for all."""

    topic: str
    partitions: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """One partition's offset before and after; `limited` if the partition ends earlier."""

    topic: str
    partition: int
    before: int | None
    after: int
    limited: bool = False

    @property
    def difference(self) -> int | None:
        return None if self.before is None else self.after - self.before

    def as_json(self) -> dict[str, object]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "from": self.before,
            "to": self.after,
            "difference": self.difference,
            "limited": self.limited,
        }


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """The changes of a reset. The group need not exist: committing an offset creates it."""

    group: DescribedGroup
    changes: tuple[OffsetChange, ...]

    @property
    def different(self) -> tuple[OffsetChange, ...]:
        """The partitions whose offset changes."""
        return tuple(each for each in self.changes if each.difference != 0)


def plan_reset(
    cluster: Cluster, name: str, target: Target, scopes: Sequence[ResetScope] | None
) -> ResetPlan:
    """New offsets for partitions of these topics; None for all that the group has an offset of."""
    group = describe(cluster, [name])[name]
    if not group.exists and (scopes is None or isinstance(target, Shift)):
        raise missing_group(cluster, name)
    if group.exists and group.type == SHARE:
        starts = share_offsets(cluster, name)
        committed = {
            (at.topic, at.partition): one.start
            for at, one in starts.items()
            if one.start is not None
        }
    else:
        committed = committed_offsets(cluster, name)
    chosen = (
        partitions_read(cluster, committed) if scopes is None else partitions_in(cluster, scopes)
    )
    return ResetPlan(group, tuple(plan_changes(cluster, chosen, target, committed)))


def check_unused(group: DescribedGroup, consequence: str) -> None:
    """AdminError GROUP_IN_USE if the group has active members, which prevent a change."""
    if not group.members:
        return
    count = len(group.members)
    clients = ", ".join(sorted({f"{each.client_id} on {each.host}" for each in group.members})[:3])
    more = ", ..." if count > 3 else ""
    raise AdminError(
        f"group {group.name!r} has {count} active member{'' if count == 1 else 's'} "
        f"({clients}{more}); {consequence}",
        code="GROUP_IN_USE",
        hint="Stop its consumers first; a consumer that died leaves after its session timeout. "
        f"`headrace groups describe {group.name}` shows its members.",
    )


def apply_reset(cluster: Cluster, plan: ResetPlan) -> None:
    """Commit the offsets that differ; AdminError GROUP_IN_USE if the group has members."""
    check_unused(plan.group, RESET_NEEDS_NO_MEMBERS)
    name = plan.group.name
    if plan.group.type == SHARE:
        different = {TopicPartition(one.topic, one.partition): one.after for one in plan.different}
        alter_share_offsets(cluster, name, different)
        return
    rows = {
        TopicPartition(each.topic, each.partition): Committed(each.after) for each in plan.different
    }
    try:
        commit_offsets(cluster, name, rows)
    except KafkaError as error:
        if error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS):
            raise AdminError(
                f"group {name!r} got a member meanwhile; its offsets were not reset",
                code="GROUP_IN_USE",
                hint="Stop its consumers first.",
            ) from None
        raise


def partitions_in(cluster: Cluster, scopes: Sequence[ResetScope]) -> dict[str, list[int]]:
    """The partitions that the scopes name, by topic; NotFound if one does not exist."""
    names = list(dict.fromkeys(scope.topic for scope in scopes))
    counts = {topic.name: len(topic.partitions) for topic in existing_topics(cluster, names)}
    found: dict[str, list[int]] = {}
    for scope in scopes:
        wanted = None if scope.partitions is None else list(scope.partitions)
        chosen = positions.chosen_partitions(scope.topic, counts[scope.topic], wanted)
        found[scope.topic] = sorted({*found.get(scope.topic, ()), *chosen})
    return found


def partitions_read(cluster: Cluster, committed: Iterable[Place]) -> dict[str, list[int]]:
    """The partitions that the group has an offset of, by topic, without those deleted since."""
    places = sorted(committed)
    topics = describe_topics(cluster, {topic for topic, _ in places})
    found: dict[str, list[int]] = {}
    for topic, index in places:
        if topic in topics and index in topics[topic].partitions:
            found.setdefault(topic, []).append(index)
    return found


def plan_changes(
    cluster: Cluster,
    chosen: Mapping[str, Sequence[int]],
    target: Target,
    committed: Mapping[Place, int],
) -> list[OffsetChange]:
    """Every chosen partition's offset, before and after."""
    partitions = [TopicPartition(topic, i) for topic, indexes in chosen.items() for i in indexes]
    limits = positions.bounds(cluster, partitions)
    if isinstance(target, Shift):
        return [shifted(at, committed.get(at), target, limits[at]) for at in partitions]
    starts = positions.starts(cluster, target, limits)
    exact = target.offset if isinstance(target, positions.At) else None
    return [
        OffsetChange(*at, committed.get(at), starts[at], exact not in (None, starts[at]))
        for at in partitions
    ]


def shifted(
    at: TopicPartition, before: int | None, by: Shift, limits: positions.PartitionBounds
) -> OffsetChange:
    """The offset shifted by a number of records, within the bounds of the partition."""
    if before is None:
        raise AdminError(
            f"the group has no offset of {at.topic} partition {at.partition} to shift from",
            code="NO_OFFSET",
            hint="Leave that partition out, or set its offset to a position first.",
        )
    wanted = before + by.count
    after = limits.nearest(wanted)
    return OffsetChange(*at, before, after, after != wanted)
