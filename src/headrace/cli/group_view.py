"""A group as the commands show it: its members, its committed offsets and its lag.

Gathered from four questions (group, offsets, topics, ends); nothing here changes anything.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from headrace.cli import client, output, positions
from headrace.cli.client import Cluster
from headrace.cli.failures import Failure, not_found

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, MemberDescription

    from headrace.client.groups import ListedGroup

Place: TypeAlias = tuple[str, int]

DEAD = "Dead"
UNKNOWN = "Unknown"
# Kafka's own names; the client library has others, and none for the last two.
STATES = {
    "STABLE": "Stable",
    "EMPTY": "Empty",
    "DEAD": DEAD,
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
}
NO_PARTITION = {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"}


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a group. `target` is what it will own, where the broker tells.

    `assignment` is None in a group whose protocol type is not `consumer`: only its members can
    decode what they are assigned.
    """

    id: str
    client_id: str
    host: str
    instance_id: str | None
    assignment: tuple[Place, ...] | None
    target: tuple[Place, ...] | None

    def as_json(self) -> dict[str, object]:
        return {
            "id": self.id,
            "client_id": self.client_id,
            "host": self.host,
            "instance_id": self.instance_id,
            "assignment": None if self.assignment is None else _places_json(self.assignment),
            "target": None if self.target is None else _places_json(self.target),
        }


@dataclass(frozen=True, slots=True)
class Description:
    """What a group's coordinator says about it."""

    name: str
    state: str
    type: str
    protocol_type: str
    assignor: str
    coordinator: tuple[int, str, int]
    members: tuple[Member, ...]

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
    """One partition that the group has read or owns; what nobody knows is None."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    owner: Member | None

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
            "members": [each.as_json() for each in self.description.members],
            "partitions": [each.as_json() for each in self.partitions],
        }


def _places_json(places: Iterable[Place]) -> list[dict[str, object]]:
    return [{"topic": topic, "partition": index} for topic, index in places]


# ------------------------------------------------------------------------------- questions


def listed(cluster: Cluster) -> tuple[dict[str, "ListedGroup"], list[Failure]]:
    """The groups of every type, and what kept brokers from listing theirs.

    Not through librdkafka, which leaves out groups whose protocol type is not `consumer`.
    """
    from headrace.client.groups import list_groups

    with client.own(cluster) as connected:
        found, errors = list_groups(connected)
    failures = [Failure(str(error)) for error in errors]
    return {each.name: each for each in found}, failures


def described(
    cluster: Cluster, admin: "AdminClient", names: Iterable[str]
) -> dict[str, Description]:
    """The named groups; a group that does not exist has the state Dead, as brokers put it."""
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return {}
    known, _ = listed(cluster)
    # librdkafka describes groups of consumers only.
    others = [name for name in wanted if name in known and not _of_consumers(known[name])]
    consumers = [name for name in wanted if name not in others]
    found = {}
    if consumers:
        with client.translated(cluster, "group name"):
            futures = admin.describe_consumer_groups(
                consumers, request_timeout=client.ANSWER_TIMEOUT_S
            )
        for name in consumers:
            with client.translated(cluster, f"group {name!r}"):
                protocol_type = known[name].protocol_type if name in known else ""
                found[name] = _description(futures[name].result(), protocol_type)
        found = _with_unknown_states(cluster, found)
    found |= {name: _other_description(cluster, known[name]) for name in others}
    return {name: found[name] for name in wanted}


def _of_consumers(group: "ListedGroup") -> bool:
    from headrace.client.groups import CLASSIC, CONSUMER

    return group.type == CONSUMER or (
        group.type == CLASSIC and group.protocol_type in ("", CONSUMER)
    )


def _other_description(cluster: Cluster, group: "ListedGroup") -> Description:
    """A group whose members are not consumers, such as the workers of Kafka Connect."""
    from headrace.client.groups import CLASSIC, ClassicGroup, describe_classic

    with client.own(cluster) as connected:
        address = connected.brokers().get(group.coordinator)
        # Of other types only what the list says is known.
        known = ClassicGroup(group.state, "", ())
        if group.type == CLASSIC:
            known = describe_classic(connected, group.name)
    members = (
        Member(each.id, each.client_id, each.host.removeprefix("/"), each.instance_id, None, None)
        for each in known.members
    )
    return Description(
        name=group.name,
        state=known.state,
        type=group.type,
        protocol_type=group.protocol_type,
        assignor=known.protocol,
        coordinator=(-1, "", -1)
        if address is None
        else (group.coordinator, address.host, address.port),
        members=tuple(sorted(members, key=lambda member: (member.client_id, member.id))),
    )


def existing(cluster: Cluster, admin: "AdminClient", names: Sequence[str]) -> list[Description]:
    """The named groups in this order; a missing one ends the command, with a suggestion."""
    found = described(cluster, admin, names)
    for name in names:
        if found[name].state == DEAD:
            raise missing(cluster, name)
    return [found[name] for name in names]


def missing(cluster: Cluster, name: str) -> Failure:
    """The group is not there; what the user may have meant."""
    import difflib

    close = difflib.get_close_matches(name, list(listed(cluster)[0]), 3)
    hint = f"Did you mean {' or '.join(close)}?" if close else ""
    return not_found(
        f"group {name!r} does not exist", hint or "`headrace groups list` shows what exists."
    )


def committed_offsets(cluster: Cluster, name: str) -> dict[Place, int]:
    """The group's offset of each partition that has one.

    Not through librdkafka, whose admin client crashes when the coordinator has just moved.
    """
    from headrace.client.groups import committed_offsets as ask

    with client.own(cluster) as connected:
        found = ask(connected, name, stable=False)
    return {(at.topic, at.partition): committed.offset for at, committed in found.items()}


def end_offsets(
    cluster: Cluster, admin: "AdminClient", places: Iterable[Place]
) -> dict[Place, int]:
    """Where partitions end. Those that are gone or have no leader just now are left out."""
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    topics = client.metadata(cluster, admin).topics
    questions = {
        TopicPartition(topic, index): OffsetSpec.latest()
        for topic, index in places
        if topic in topics
        and index in topics[topic].partitions
        and topics[topic].partitions[index].leader >= 0
    }
    if not questions:
        return {}
    with client.translated(cluster, "end offsets"):
        futures = admin.list_offsets(questions, request_timeout=client.ANSWER_TIMEOUT_S)
    found = {}
    for asked, future in futures.items():
        try:
            found[(str(asked.topic), int(asked.partition))] = int(future.result().offset)
        except KafkaException as error:
            # Deleted or led by another broker since the question before: it has no end just now.
            if error.args[0].name() not in positions.LEADER_MOVED | NO_PARTITION:
                raise client.failure(cluster, error.args[0], "end offsets") from None
    return found


def look(cluster: Cluster, admin: "AdminClient", group: Description) -> GroupView:
    """The group with its lag as it is now."""
    committed = committed_offsets(cluster, group.name)
    owners = {place: member for member in group.members for place in member.assignment or ()}
    places = sorted({*committed, *owners})
    ends = end_offsets(cluster, admin, places)
    return GroupView(
        group,
        tuple(
            PartitionLag(*place, committed.get(place), ends.get(place), owners.get(place))
            for place in places
        ),
    )


def _description(found: "ConsumerGroupDescription", protocol_type: str) -> Description:
    node = found.coordinator
    return Description(
        name=str(found.group_id),
        state=STATES.get(found.state.name, UNKNOWN),
        type=_type(found.type),
        protocol_type=protocol_type,
        assignor=str(found.partition_assignor or ""),
        coordinator=(-1, "", -1)
        if node is None
        else (int(node.id), str(node.host), int(node.port)),
        members=tuple(
            sorted((_member(each) for each in found.members), key=lambda m: (m.client_id, m.id))
        ),
    )


def _type(found: object) -> str:
    return str(getattr(found, "name", UNKNOWN)).lower()


def _member(found: "MemberDescription") -> Member:
    target = found.target_assignment
    return Member(
        id=str(found.member_id),
        client_id=str(found.client_id),
        # Brokers write addresses the way Java prints them, with a slash before.
        host=str(found.host).removeprefix("/"),
        instance_id=found.group_instance_id or None,
        assignment=_places(found.assignment.topic_partitions),
        target=None if target is None else _places(target.topic_partitions),
    )


def _places(rows: Iterable["TopicPartition"]) -> tuple[Place, ...]:
    return tuple(sorted((str(row.topic), int(row.partition)) for row in rows))


def _with_unknown_states(
    cluster: Cluster, found: Mapping[str, Description]
) -> dict[str, Description]:
    """Ask the coordinators themselves where the library has no name for the state."""
    from dataclasses import replace

    from headrace.cli import direct

    unclear = {each.coordinator[1:] for each in found.values() if each.state == UNKNOWN}
    states = direct.group_states(cluster, sorted(unclear)) if unclear else {}
    return {
        name: replace(each, state=states[name])
        if each.state == UNKNOWN and name in states
        else each
        for name, each in found.items()
    }


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
    """Green for none, yellow for some, a dash where nobody knows."""
    if lag is None:
        return "-"
    return f"[yellow]{lag:,}[/]" if lag else "[green]0[/]"


def _member_row(member: Member) -> tuple[str, ...]:
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
