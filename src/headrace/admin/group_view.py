"""Groups: their description, members, committed offsets, and lag in records and seconds.

It only reads; `group_reset.py` changes groups.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from headrace.admin.errors import NotFound
from headrace.admin.record_times import Gap, RecordTime, RecordTimes
from headrace.admin.share_groups import (
    SHARE,
    StoredDeliveries,
    describe_share_groups,
    share_offsets,
    stored_deliveries,
)
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.groups import (
    DEAD,
    Committed,
    GroupDescription,
    ListedGroup,
    MemberDescription,
    committed_by_group,
    describe_groups,
)
from headrace.client.groups import committed_offsets as ask_committed_offsets
from headrace.client.groups import list_groups as ask_groups
from headrace.client.offsets import end_offsets
from headrace.errors import KafkaError
from headrace.types import Address, TopicPartition

Place: TypeAlias = tuple[str, int]
"""A topic and the index of a partition."""


@dataclass(frozen=True, slots=True)
class CoordinatorAddress:
    """The broker that coordinates a group; the id is -1 if it is not known."""

    id: int
    host: str
    port: int


UNKNOWN_COORDINATOR = CoordinatorAddress(-1, "", -1)


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A group as its coordinator describes it."""

    name: str
    state: str
    type: str
    protocol_type: str
    assignor: str
    coordinator: CoordinatorAddress
    members: tuple[MemberDescription, ...]

    @property
    def exists(self) -> bool:
        """Brokers describe a group that does not exist with the state Dead."""
        return self.state != DEAD

    def as_json(self) -> dict[str, object]:
        at = self.coordinator
        return {
            "name": self.name,
            "state": self.state,
            "type": self.type,
            "protocol_type": self.protocol_type or None,
            "assignor": self.assignor or None,
            "coordinator": {"id": at.id, "host": at.host, "port": at.port},
        }


@dataclass(frozen=True, slots=True)
class ShareProgress:
    """How far a share group is in one partition; unknown values are None."""

    lag: int | None
    deliveries: StoredDeliveries | None = None

    def as_json(self) -> dict[str, object]:
        stored = self.deliveries
        return {
            "released": stored and stored.released,
            "most_deliveries": stored and stored.most_deliveries,
        }


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition that the group has read or owns; unknown values are None."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    owner: MemberDescription | None
    next_record: RecordTime | None = None
    """The time of the first record that the group has not read, if it was looked up."""
    delay_s: float | None = None
    """The lag in seconds: the age of that record, or 0 if the group has read everything."""
    share: ShareProgress | None = None
    """The progress of a share group; `committed` is then its start offset."""

    @property
    def caught_up(self) -> bool:
        """Whether the group has read all records. Transaction markers may still count as lag."""
        return self.lag == 0 or (self.next_record is not None and self.next_record.nothing_follows)

    @property
    def delay_gap(self) -> Gap | None:
        """Why `delay_s` is unknown, or belongs to a record after the committed offset."""
        return None if self.next_record is None else self.next_record.gap

    @property
    def lag(self) -> int | None:
        """Records between the committed offset and the end; of a share group those to deliver."""
        if self.share is not None:
            return self.share.lag
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
            "lag_seconds": self.delay_s,
            "lag_seconds_note": self.delay_gap,
            "member_id": self.owner and self.owner.id,
            "client_id": self.owner and self.owner.client_id,
            "host": self.owner and self.owner.host,
            **({} if self.share is None else self.share.as_json()),
        }


@dataclass(frozen=True, slots=True)
class TotalLag:
    """The lag in several partitions, as far as it is known."""

    records: int | None
    """The sum over the partitions with a known lag; None if no lag is known."""
    gap: str = ""
    """Why `records` is unknown or too small; empty if it is exact."""


def total_lag(rows: Collection[PartitionLag], problem: str = "") -> TotalLag:
    """The sum of lags; `problem` is why further partitions of the group are unknown."""
    known = [row.lag for row in rows if row.lag is not None]
    without_offset = sum(row.committed is None for row in rows)
    without_end = len(rows) - len(known) - without_offset
    gaps = [problem] if problem else []
    if without_offset:
        gaps.append(f"no committed offset in {_of(without_offset, len(rows))}")
    if without_end:
        gaps.append(f"no end offset of {_of(without_end, len(rows))}")
    return TotalLag(sum(known) if known or not gaps else None, "; ".join(gaps))


def _of(count: int, total: int) -> str:
    return f"{count} of {total} partition{'' if total == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group with the lag of its partitions."""

    description: DescribedGroup
    partitions: tuple[PartitionLag, ...]
    problem: str = ""
    """Why the committed offsets could not be read; empty if they were."""

    @property
    def total(self) -> TotalLag:
        """The lag in all partitions."""
        return total_lag(self.partitions, self.problem)

    @property
    def lag(self) -> int | None:
        """The sum over all partitions with a known lag; None if no lag is known."""
        return self.total.records

    @property
    def delay_s(self) -> float | None:
        """The longest of all partitions with a known delay."""
        return max((p.delay_s for p in self.partitions if p.delay_s is not None), default=None)

    def member_lag(self, member_id: str) -> TotalLag:
        """The lag in the partitions that a member owns."""
        owned = [each for each in self.partitions if each.owner and each.owner.id == member_id]
        return total_lag(owned)

    def as_json(self) -> dict[str, object]:
        return {
            **self.description.as_json(),
            "lag": self.lag,
            "lag_note": self.total.gap or None,
            "lag_seconds": self.delay_s,
            "members": [_member_json(each) for each in self.description.members],
            "partitions": [each.as_json() for each in self.partitions],
        }


def _member_json(member: MemberDescription) -> dict[str, object]:
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


def list_groups(
    cluster: Cluster,
) -> tuple[dict[str, ListedGroup], list[KafkaError | ClientError]]:
    """The groups of every type by name, and the errors of brokers that did not list theirs."""
    found, errors = ask_groups(cluster)
    return {each.name: each for each in found}, errors


def describe(
    cluster: Cluster, names: Iterable[str], known: Mapping[str, ListedGroup] | None = None
) -> dict[str, DescribedGroup]:
    """The named groups; `exists` is false for a group that does not exist.

    `known` are the listed groups; they are listed here if they are needed and not given.
    """
    found = describe_groups(cluster, names)
    if known is None and any(each.state == DEAD for each in found.values()):
        known, _ = list_groups(cluster)
    found.update(_describe_shares(cluster, found, known or {}))
    brokers = cluster.retry("listing brokers", cluster.brokers)
    return {
        name: _described(_as_listed(each, (known or {}).get(name)), brokers)
        for name, each in found.items()
    }


def _describe_shares(
    cluster: Cluster, found: Mapping[str, GroupDescription], known: Mapping[str, ListedGroup]
) -> dict[str, GroupDescription]:
    """Those of the groups that are share groups."""
    by_broker: dict[int, list[str]] = {}
    for name in found:
        if name in known and known[name].type == SHARE:
            by_broker.setdefault(known[name].coordinator, []).append(name)
    return {
        group.name: group
        for broker, names in by_broker.items()
        for group in describe_share_groups(cluster, broker, names)
    }


def _as_listed(group: GroupDescription, listed: ListedGroup | None) -> GroupDescription:
    """A group that is listed but cannot be described, because of its type, such as `share`."""
    if group.state != DEAD or listed is None:
        return group
    return replace(group, type=listed.type, protocol_type=listed.protocol_type, state=listed.state)


def _described(group: GroupDescription, brokers: Mapping[int, Address]) -> DescribedGroup:
    address = brokers.get(group.coordinator)
    return DescribedGroup(
        name=group.name,
        state=group.state,
        type=group.type,
        protocol_type=group.protocol_type,
        assignor=group.assignor,
        coordinator=UNKNOWN_COORDINATOR
        if address is None
        else CoordinatorAddress(group.coordinator, address.host, address.port),
        members=group.members,
    )


def existing_groups(cluster: Cluster, names: Sequence[str]) -> list[DescribedGroup]:
    """The named groups in this order; NotFound with a suggestion if one does not exist."""
    found = describe(cluster, names)
    for name in names:
        if not found[name].exists:
            raise missing_group(cluster, name)
    return [found[name] for name in names]


def missing_group(cluster: Cluster, name: str) -> NotFound:
    """The error for a group that does not exist, with groups of similar names."""
    close = difflib.get_close_matches(name, list(list_groups(cluster)[0]), 3)
    hint = f"Did you mean {' or '.join(close)}?" if close else ""
    return NotFound(
        f"group {name!r} does not exist", hint or "`headrace groups list` shows all groups."
    )


def committed_offsets(cluster: Cluster, name: str) -> dict[Place, int]:
    """The group's offset of each partition that has one."""
    found = ask_committed_offsets(cluster, name, stable=False)
    return {(at.topic, at.partition): committed.offset for at, committed in found.items()}


def view_groups(
    cluster: Cluster, groups: Sequence[DescribedGroup], times: RecordTimes | None = None
) -> list[GroupView]:
    """The groups with their lag as it is now; in seconds too if `times` is given.

    A group whose offsets cannot be read has only the partitions that its members own.
    """
    shares, refusals = _share_progress(cluster, groups)
    others = (group.name for group in groups if group.type != SHARE)
    committed, refused = committed_by_group(cluster, others)
    refused = {**refused, **refusals}
    committed = {**committed, **{name: found.starts for name, found in shares.items()}}
    rows = {group.name: _rows(group, committed.get(group.name, {})) for group in groups}
    partitions = {TopicPartition(*at) for found in rows.values() for at in found}
    ends = cluster.retry("end offsets", lambda: end_offsets(cluster, partitions))
    views = [
        GroupView(
            group,
            tuple(
                PartitionLag(
                    *at,
                    row.committed,
                    ends.get(at),
                    row.owner,
                    share=shares[group.name].progress.get(at) if group.name in shares else None,
                )
                for at, row in rows[group.name].items()
            ),
            str(refused[group.name]) if group.name in refused else "",
        )
        for group in groups
    ]
    return views if times is None else with_delays(cluster, views, times, _now_ms())


@dataclass(frozen=True, slots=True)
class _ShareOffsets:
    starts: dict[TopicPartition, Committed]
    progress: dict[TopicPartition, ShareProgress]


def _share_progress(
    cluster: Cluster, groups: Sequence[DescribedGroup]
) -> tuple[dict[str, _ShareOffsets], dict[str, KafkaError]]:
    """The start offsets and lag of the share groups, and the errors of those without."""
    found: dict[str, _ShareOffsets] = {}
    refused: dict[str, KafkaError] = {}
    for group in groups:
        if group.type != SHARE:
            continue
        try:
            offsets = share_offsets(cluster, group.name)
        except KafkaError as error:
            refused[group.name] = error
            continue
        known = {at: one.start for at, one in offsets.items() if one.start is not None}
        found[group.name] = _ShareOffsets(
            {at: Committed(start) for at, start in known.items()},
            {at: ShareProgress(one.lag) for at, one in offsets.items()},
        )
    return found, refused


def with_deliveries(cluster: Cluster, view: GroupView) -> GroupView:
    """The view of a share group with the deliveries that the share coordinator has stored."""
    if view.description.type != SHARE:
        return view
    ids = {at: one.topic_id for at, one in share_offsets(cluster, view.description.name).items()}
    rows = []
    for row in view.partitions:
        topic_id = ids.get(TopicPartition(row.topic, row.partition))
        if row.share is not None and topic_id is not None:
            found = stored_deliveries(cluster, view.description.name, topic_id, row.partition)
            row = replace(row, share=replace(row.share, deliveries=found))
        rows.append(row)
    return replace(view, partitions=tuple(rows))


@dataclass(frozen=True, slots=True)
class _Row:
    committed: int | None
    owner: MemberDescription | None


def _rows(
    group: DescribedGroup, committed: Mapping[TopicPartition, Committed]
) -> dict[TopicPartition, _Row]:
    owners = {at: member for member in group.members for at in member.assignment or ()}
    offsets = {at: each.offset for at, each in committed.items()}
    return {at: _Row(offsets.get(at), owners.get(at)) for at in sorted({*offsets, *owners})}


def with_delays(
    cluster: Cluster, views: Sequence[GroupView], times: RecordTimes, now_ms: int
) -> list[GroupView]:
    """The views with the lag in seconds: how old the first record is that a group has not read."""
    # Groups may have different offsets of one partition; a request can have only one of them.
    rounds: list[dict[TopicPartition, int]] = []
    keys = {key for view in views for key in map(_unread, view.partitions) if key is not None}
    for at, offset in sorted(keys):
        place = next((each for each in rounds if at not in each), None)
        if place is None:
            rounds.append(place := {})
        place[at] = offset
    found: dict[tuple[TopicPartition, int], RecordTime] = {}
    for each in rounds:
        for at, time_found in times.look_up(cluster, each).items():
            found[at, each[at]] = time_found
    return [
        replace(view, partitions=tuple(_with_delay(row, found, now_ms) for row in view.partitions))
        for view in views
    ]


def _unread(row: PartitionLag) -> tuple[TopicPartition, int] | None:
    """The position of the first unread record; None if there is none, or if it is unknown."""
    if not row.lag or row.committed is None:
        return None
    return TopicPartition(row.topic, row.partition), row.committed


def _with_delay(
    row: PartitionLag, found: Mapping[tuple[TopicPartition, int], RecordTime], now_ms: int
) -> PartitionLag:
    if row.lag == 0:
        return replace(row, delay_s=0.0)
    key = _unread(row)
    if key is None:
        return row
    next_record = found[key]
    stamp = now_ms if next_record.nothing_follows else next_record.timestamp_ms
    delay_s = None if stamp is None else max(now_ms - stamp, 0) / 1000
    return replace(row, next_record=next_record, delay_s=delay_s)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
