"""A group as the commands show it: its members, its committed offsets and its lag.

Gathered from four questions (group, offsets, topics, ends); nothing here changes anything.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from headrace.cli import output
from headrace.cli.failures import Failure, not_found

if TYPE_CHECKING:
    from headrace.client.cluster import Cluster as Connected
    from headrace.client.groups import GroupDescription, ListedGroup, MemberDescription
    from headrace.types import Address

Place: TypeAlias = tuple[str, int]

DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class Description:
    """What a group's coordinator says about it."""

    name: str
    state: str
    type: str
    protocol_type: str
    assignor: str
    coordinator: tuple[int, str, int]
    members: "tuple[MemberDescription, ...]"

    def as_json(self) -> dict[str, object]:
        number, host, port = self.coordinator
        return {
            "name": self.name,
            "state": self.state,
            "type": self.type,
            "protocol_type": self.protocol_type or None,
            "assignor": self.assignor or None,
            "coordinator": {"id": number, "host": host, "port": port},
        }


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition that the group has read or owns; unknown values are None."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    owner: "MemberDescription | None"

    @property
    def lag(self) -> int | None:
        """Records between the committed offset and the end."""
        if self.committed is None or self.end is None:
            return None
        return max(self.end - self.committed, 0)

    def as_json(self) -> dict[str, object]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "committed": self.committed,
            "end": self.end,
            "lag": self.lag,
            "member_id": self.owner and self.owner.id,
            "client_id": self.owner and self.owner.client_id,
            "host": self.owner and self.owner.host,
        }


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group with the lag of its partitions."""

    description: Description
    partitions: tuple[PartitionLag, ...]

    @property
    def lag(self) -> int:
        """Of all partitions that have one."""
        return sum(each.lag or 0 for each in self.partitions)

    def as_json(self) -> dict[str, object]:
        return {
            **self.description.as_json(),
            "lag": self.lag,
            "members": [_member_json(each) for each in self.description.members],
            "partitions": [each.as_json() for each in self.partitions],
        }


def _member_json(member: "MemberDescription") -> dict[str, object]:
    return {
        "id": member.id,
        "client_id": member.client_id,
        "host": member.host,
        "instance_id": member.instance_id,
        "assignment": None if member.assignment is None else _places_json(member.assignment),
        "target": None if member.target is None else _places_json(member.target),
    }


def _places_json(places: Iterable[Place]) -> list[dict[str, object]]:
    return [{"topic": topic, "partition": index} for topic, index in places]


# ------------------------------------------------------------------------------- questions


def listed(connected: "Connected") -> tuple[dict[str, "ListedGroup"], list[Failure]]:
    """The groups of every type, and what kept brokers from listing theirs."""
    from headrace.client.groups import list_groups

    found, errors = list_groups(connected)
    return {each.name: each for each in found}, [Failure(str(error)) for error in errors]


def described(
    connected: "Connected",
    names: Iterable[str],
    known: "Mapping[str, ListedGroup] | None" = None,
) -> dict[str, Description]:
    """The named groups; a group that does not exist has the state Dead, as brokers put it.

    `known` are the listed groups; they are listed here if they are needed and not given.
    """
    from headrace.client.groups import describe_groups

    found = describe_groups(connected, names)
    if known is None and any(each.state == DEAD for each in found.values()):
        known, _ = listed(connected)
    brokers = connected.patiently("listing brokers", connected.brokers)
    return {
        name: _description(_listed_only(each, (known or {}).get(name)), brokers)
        for name, each in found.items()
    }


def _listed_only(group: "GroupDescription", listed: "ListedGroup | None") -> "GroupDescription":
    """A group that its coordinator lists and cannot describe: of a type such as `share`."""
    if group.state != DEAD or listed is None:
        return group
    return replace(group, type=listed.type, protocol_type=listed.protocol_type, state=listed.state)


def _description(group: "GroupDescription", brokers: "Mapping[int, Address]") -> Description:
    address = brokers.get(group.coordinator)
    return Description(
        name=group.name,
        state=group.state,
        type=group.type,
        protocol_type=group.protocol_type,
        assignor=group.assignor,
        coordinator=(-1, "", -1)
        if address is None
        else (group.coordinator, address.host, address.port),
        members=group.members,
    )


def existing(connected: "Connected", names: Sequence[str]) -> list[Description]:
    """The named groups in this order; a missing one ends the command, with a suggestion."""
    found = described(connected, names)
    for name in names:
        if found[name].state == DEAD:
            raise missing(connected, name)
    return [found[name] for name in names]


def missing(connected: "Connected", name: str) -> Failure:
    """The group does not exist; what the user may have meant."""
    import difflib

    close = difflib.get_close_matches(name, list(listed(connected)[0]), 3)
    hint = f"Did you mean {' or '.join(close)}?" if close else ""
    return not_found(
        f"group {name!r} does not exist", hint or "`headrace groups list` shows what exists."
    )


def committed_offsets(connected: "Connected", name: str) -> dict[Place, int]:
    """The group's offset of each partition that has one."""
    from headrace.client.groups import committed_offsets as ask

    found = ask(connected, name, stable=False)
    return {(at.topic, at.partition): committed.offset for at, committed in found.items()}


def look(connected: "Connected", group: Description) -> GroupView:
    """The group with its lag as it is now."""
    from headrace.client.offsets import end_offsets
    from headrace.types import TopicPartition

    committed = committed_offsets(connected, group.name)
    owners = {
        (at.topic, at.partition): member
        for member in group.members
        for at in member.assignment or ()
    }
    partitions = [TopicPartition(*place) for place in sorted({*committed, *owners})]
    ends = connected.patiently("end offsets", lambda: end_offsets(connected, partitions))
    return GroupView(
        group,
        tuple(
            PartitionLag(*at, committed.get(at), ends.get(at), owners.get(at)) for at in partitions
        ),
    )


# ---------------------------------------------------------------------------- for a person


def show(view: GroupView) -> None:
    """The group, its partitions and its members."""
    group = view.description
    number, host, port = group.coordinator
    output.print_facts(
        {
            "Group": group.name,
            "State": group.state,
            "Type": group.type,
            "Protocol": group.protocol_type or "-",
            "Assignor": group.assignor or "-",
            "Coordinator": f"{number} ({host}:{port})",
            "Members": str(len(group.members)),
            "Lag": output.records(view.lag),
        }
    )
    print()
    if view.partitions:
        output.print_table(
            ("Topic", "Partition", "Committed", "End", "Lag", "Client", "Host"),
            [*map(_row, view.partitions), _total(view)],
            numbers=("Partition", "Committed", "End", "Lag"),
        )
    else:
        output.note("No offsets committed and no partitions assigned.")
    print()
    if group.members:
        output.print_table(
            ("Client", "Member", "Instance", "Host", "Assignment"),
            [_member_row(each) for each in group.members],
        )
        print()


def _row(each: PartitionLag) -> tuple[str, ...]:
    from rich.markup import escape

    return (
        escape(each.topic),
        str(each.partition),
        output.number(each.committed),
        output.number(each.end),
        lag_text(each.lag),
        escape(each.owner.client_id) if each.owner else "-",
        escape(each.owner.host) if each.owner else "-",
    )


def _total(view: GroupView) -> tuple[str, ...]:
    return ("[bold]total[/]", "", "", "", f"[bold]{view.lag:,}[/]", "", "")


def lag_text(lag: int | None) -> str:
    """Green for zero, yellow for some, a dash if unknown."""
    if lag is None:
        return "-"
    return f"[yellow]{lag:,}[/]" if lag else "[green]0[/]"


def _member_row(member: "MemberDescription") -> tuple[str, ...]:
    from rich.markup import escape

    if member.assignment is None:
        owned = "-"
    else:
        owned = places_text(member.assignment) or "nothing"
    if member.target is not None and member.target != member.assignment:
        owned += f" (moving to {places_text(member.target) or 'nothing'})"
    words = (member.client_id, member.id, member.instance_id or "-", member.host, owned)
    return tuple(escape(word) for word in words)


def places_text(places: Iterable[Place]) -> str:
    """`clicks:0-2,5 orders:1`."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(places):
        by_topic.setdefault(topic, []).append(index)
    return " ".join(f"{topic}:{_ranges(indexes)}" for topic, indexes in by_topic.items())


def _ranges(indexes: Sequence[int]) -> str:
    runs: list[tuple[int, int]] = []
    for index in indexes:
        if runs and index == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], index)
        else:
            runs.append((index, index))
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
