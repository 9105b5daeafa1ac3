"""New offsets for a group: what was asked for, the plan that follows from it, and doing it.

The plan is always made first; nothing is written before the user confirms it or passes --yes.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from headrace.cli import client, output
from headrace.cli.failures import Failure, bad_usage
from headrace.cli.groups.group_view import Description, Place
from headrace.cli.records import positions

if TYPE_CHECKING:
    from headrace.client.cluster import Cluster as Connected


@dataclass(frozen=True, slots=True)
class Shift:
    """Shift by N records; a negative N moves back."""

    count: int


Target: TypeAlias = positions.Start | Shift


@dataclass(frozen=True, slots=True)
class Scope:
    """A topic, and which of its partitions; None is all."""

    topic: str
    partitions: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Change:
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


def parse_scope(text: str) -> Scope:
    """`clicks`, `clicks:0`, `clicks:0,2,4-6`."""
    topic, colon, listed = text.partition(":")
    if not colon and topic:
        return Scope(topic, None)
    chosen: set[int] = set()
    for word in listed.split(","):
        bounds = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", word.strip())
        if not topic or bounds is None:
            raise bad_usage(
                f"--topic {text!r} names no partitions", "Write clicks, clicks:0 or clicks:0,2,4-6."
            )
        first, last = int(bounds[1]), int(bounds[2] or bounds[1])
        chosen.update(range(first, min(last, first + 1_000_000) + 1))
    return Scope(topic, tuple(sorted(chosen)))


def parse_target(
    *,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_time: str | None,
    shift_by: int | None,
) -> Target:
    """Exactly one of the ways to say where to."""
    wanted: list[Target] = []
    if to_earliest:
        wanted.append(positions.Beginning())
    if to_latest:
        wanted.append(positions.End())
    if to_offset is not None:
        wanted.append(positions.At(to_offset))
    if to_time is not None:
        wanted.append(positions.Since(positions.parse_moment(to_time)))
    if shift_by is not None:
        wanted.append(Shift(shift_by))
    if len(wanted) != 1:
        raise bad_usage(
            "no new position given" if not wanted else "more than one new position given",
            "Use exactly one of --to-earliest, --to-latest, --to-offset, --to-time, --shift-by.",
        )
    return wanted[0]


def places(connected: "Connected", scopes: Sequence[Scope]) -> dict[str, list[int]]:
    """The partitions named, by topic."""
    names = list(dict.fromkeys(scope.topic for scope in scopes))
    topics = client.describe_topics(connected, names)
    counts = {topic.name: len(topic.partitions) for topic in topics}
    found: dict[str, list[int]] = {}
    for scope in scopes:
        wanted = None if scope.partitions is None else list(scope.partitions)
        chosen = positions.chosen_partitions(scope.topic, counts[scope.topic], wanted)
        found[scope.topic] = sorted({*found.get(scope.topic, ()), *chosen})
    return found


def places_read(connected: "Connected", committed: Iterable[Place]) -> dict[str, list[int]]:
    """The partitions that the group has an offset of, by topic, without those deleted since."""
    from headrace.client.topics import describe_topics

    topics = describe_topics(connected, {topic for topic, _ in committed})
    found: dict[str, list[int]] = {}
    for topic, index in sorted(committed):
        if topic in topics and index in topics[topic].partitions:
            found.setdefault(topic, []).append(index)
    return found


def plan(
    connected: "Connected",
    chosen: Mapping[str, Sequence[int]],
    target: Target,
    committed: Mapping[Place, int],
) -> list[Change]:
    """Every chosen partition's offset, before and after."""
    changes: list[Change] = []
    for topic, indexes in chosen.items():
        limits = positions.bounds(connected, topic, list(indexes))
        if isinstance(target, Shift):
            changes += [
                shifted(topic, i, committed.get((topic, i)), target, limits[i]) for i in limits
            ]
            continue
        starts = positions.starts(connected, topic, target, limits)
        exact = target.offset if isinstance(target, positions.At) else None
        changes += [
            Change(topic, i, committed.get((topic, i)), at, exact not in (None, at))
            for i, at in sorted(starts.items())
        ]
    return changes


def shifted(
    topic: str, index: int, before: int | None, by: Shift, limits: tuple[int, int]
) -> Change:
    """The offset so many records away, within what the partition holds."""
    if before is None:
        raise Failure(
            f"the group has no offset of {topic} partition {index} to shift from",
            code="NO_OFFSET",
            hint="Leave that partition out, or give it an offset with --to-earliest or another.",
        )
    begin, end = limits
    wanted = before + by.count
    after = min(max(begin, wanted), end)
    return Change(topic, index, before, after, after != wanted)


def show(changes: Sequence[Change], *, error: bool = False) -> None:
    """The plan as a table."""
    output.print_table(
        ("Topic", "Partition", "From", "To", "Difference", ""),
        [
            (
                each.topic,
                str(each.partition),
                output.number(each.before),
                output.number(each.after),
                _difference(each.difference),
                "[dim]as far as the partition goes[/]" if each.limited else "",
            )
            for each in changes
        ],
        numbers=("Partition", "From", "To", "Difference"),
        error=error,
    )


def _difference(count: int | None) -> str:
    if count is None:
        return "[green]new[/]"
    if not count:
        return "[dim]same[/]"
    return f"[{'yellow' if count < 0 else 'cyan'}]{count:+,}[/]"


def in_use(group: Description, deed: str) -> Failure:
    """The error for a group with active members, which prevent `deed`."""
    count = len(group.members)
    who = ", ".join(sorted({f"{each.client_id} on {each.host}" for each in group.members})[:3])
    more = ", ..." if count > 3 else ""
    return Failure(
        f"group {group.name!r} has {count} active member{'' if count == 1 else 's'} "
        f"({who}{more}); {deed}",
        code="GROUP_IN_USE",
        hint="Stop its consumers first; a consumer that died leaves after its session timeout. "
        f"`headrace groups describe {group.name}` shows who is there.",
    )


def apply(connected: "Connected", name: str, changes: Sequence[Change]) -> None:
    """Write the new offsets."""
    from headrace.client.groups import Committed, commit_offsets
    from headrace.errors import ErrorCode, KafkaError
    from headrace.types import TopicPartition

    rows = {TopicPartition(each.topic, each.partition): Committed(each.after) for each in changes}
    try:
        commit_offsets(connected, name, rows)
    except KafkaError as error:
        if error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS):
            raise Failure(
                f"group {name!r} got a member meanwhile; its offsets were not reset",
                code="GROUP_IN_USE",
                hint="Stop its consumers first.",
            ) from None
        raise
