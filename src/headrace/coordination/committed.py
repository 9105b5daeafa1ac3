"""Committed offsets of all groups by topic, for retention; of share groups their start offsets.

This broker reads the groups that it coordinates, which on a single broker are all. In a cluster it
asks the other brokers for theirs, with ListGroups and OffsetFetch.
"""

import asyncio
from collections.abc import Collection

from headrace.coordination.group_runtime import GroupCoordinator
from headrace.coordination.groups.group import SHARE
from headrace.coordination.groups.share import ShareGroup
from headrace.coordination.shares.persister import SharePersister
from headrace.coordination.shares.share_records import SharePartitionKey
from headrace.errors import ErrorCode, KafkaError
from headrace.replication.peers import Peers
from headrace.types import BrokerId
from headrace.wire.primitives import GroupId

_GROUPS_AT_ONCE = 100
"""Groups read between two yields to other requests."""


async def committed_here(
    coordinator: GroupCoordinator, topics: Collection[str]
) -> dict[str, dict[str, dict[int, int]]]:
    """By topic, group and partition: the offset that the group reads next.

    KafkaError while the groups are being read from the log.
    """
    found: dict[str, dict[str, dict[int, int]]] = {}
    seen = 0
    for state in list(coordinator.shards.states()):
        for group in state.offsets.group_ids():
            for topic, partitions in state.offsets.of(group).items():
                if topic in topics:
                    found.setdefault(topic, {})[group] = {
                        index: commit.offset for index, commit in partitions.items()
                    }
            seen += 1
            if seen % _GROUPS_AT_ONCE == 0:
                await asyncio.sleep(0)
    return found


async def delivered_here(
    coordinator: GroupCoordinator, persister: SharePersister, topics: Collection[str]
) -> dict[str, dict[str, dict[int, int]]]:
    """As `committed_here`, the start offsets of share groups."""
    found: dict[str, dict[str, dict[int, int]]] = {}
    groups = [one for state in coordinator.shards.states() for one in state.groups.values()]
    for group in groups:
        if not isinstance(group, ShareGroup):
            continue
        for topic_id, topic in group.ready.topics.items():
            if topic.name not in topics:
                continue
            starts = found.setdefault(topic.name, {}).setdefault(group.group_id, {})
            for index in sorted(topic.partitions):
                key = SharePartitionKey(group.group_id, topic_id, index)
                start = await _start(persister, key)
                if start >= 0:
                    starts[index] = start
    return found


async def _start(persister: SharePersister, key: SharePartitionKey) -> int:
    """The start offset of a share group in a partition; -1 if it has none yet."""
    try:
        return (await persister.summary(key)).start
    except KafkaError as error:
        if error.code is ErrorCode.INVALID_REQUEST:  # its state was deleted a moment ago
            return -1
        raise


async def committed_at(
    peers: Peers, broker: BrokerId, topics: Collection[str]
) -> dict[str, dict[str, dict[int, int]]]:
    """As both of these, of the groups that another broker coordinates."""
    from kio.schema.list_groups.v5.request import ListGroupsRequest
    from kio.schema.list_groups.v5.response import ListGroupsResponse
    from kio.schema.offset_fetch.v8.request import OffsetFetchRequest, OffsetFetchRequestGroup
    from kio.schema.offset_fetch.v8.response import OffsetFetchResponse

    listed = await peers.ask(
        broker, ListGroupsRequest(states_filter=(), types_filter=()), ListGroupsResponse
    )
    _check(int(listed.error_code), broker)
    found: dict[str, dict[str, dict[int, int]]] = {}
    shares = [str(group.group_id) for group in listed.groups if group.group_type == SHARE]
    names = [str(group.group_id) for group in listed.groups if group.group_type != SHARE]
    for start in range(0, len(names), _GROUPS_AT_ONCE):
        request = OffsetFetchRequest(
            groups=tuple(
                OffsetFetchRequestGroup(group_id=GroupId(name), topics=None)
                for name in names[start : start + _GROUPS_AT_ONCE]
            ),
            require_stable=False,
        )
        for group in (await peers.ask(broker, request, OffsetFetchResponse)).groups:
            _check(int(group.error_code), broker)
            for topic in group.topics:
                if topic.name in topics:
                    found.setdefault(str(topic.name), {})[str(group.group_id)] = {
                        int(row.partition_index): int(row.committed_offset)
                        for row in topic.partitions
                        if row.committed_offset >= 0
                    }
    if shares:
        await _add_delivered(peers, broker, topics, shares, found)
    return found


async def _add_delivered(
    peers: Peers,
    broker: BrokerId,
    topics: Collection[str],
    shares: list[str],
    found: dict[str, dict[str, dict[int, int]]],
) -> None:
    """Add the start offsets of share groups that another broker coordinates."""
    from kio.schema.describe_share_group_offsets.v0 import request as asked
    from kio.schema.describe_share_group_offsets.v0.response import (
        DescribeShareGroupOffsetsResponse,
    )

    rows = tuple(
        asked.DescribeShareGroupOffsetsRequestGroup(group_id=GroupId(name), topics=None)
        for name in shares
    )
    request = asked.DescribeShareGroupOffsetsRequest(groups=rows)
    for group in (await peers.ask(broker, request, DescribeShareGroupOffsetsResponse)).groups:
        _check(int(group.error_code), broker)
        for topic in group.topics:
            if topic.topic_name in topics:
                for row in topic.partitions:
                    _check(int(row.error_code), broker)
                found.setdefault(str(topic.topic_name), {})[str(group.group_id)] = {
                    int(row.partition_index): int(row.start_offset)
                    for row in topic.partitions
                    if row.start_offset >= 0
                }


def _check(code: int, broker: BrokerId) -> None:
    if code:
        raise KafkaError(ErrorCode(code), f"broker {broker} cannot return its groups' offsets")
