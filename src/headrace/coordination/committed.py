"""Committed offsets of all groups by topic, for retention.

This broker reads the groups that it coordinates, which on a single broker are all. In a cluster it
asks the other brokers for theirs, with ListGroups and OffsetFetch.
"""

import asyncio
from collections.abc import Collection

from headrace.coordination.group_runtime import GroupCoordinator
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


async def committed_at(
    peers: Peers, broker: BrokerId, topics: Collection[str]
) -> dict[str, dict[str, dict[int, int]]]:
    """As `committed_here`, of the groups that another broker coordinates."""
    from kio.schema.list_groups.v4.request import ListGroupsRequest
    from kio.schema.list_groups.v4.response import ListGroupsResponse
    from kio.schema.offset_fetch.v8.request import OffsetFetchRequest, OffsetFetchRequestGroup
    from kio.schema.offset_fetch.v8.response import OffsetFetchResponse

    listed = await peers.ask(broker, ListGroupsRequest(states_filter=()), ListGroupsResponse)
    _check(int(listed.error_code), broker)
    found: dict[str, dict[str, dict[int, int]]] = {}
    names = [str(group.group_id) for group in listed.groups]
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
    return found


def _check(code: int, broker: BrokerId) -> None:
    if code:
        raise KafkaError(ErrorCode(code), f"broker {broker} cannot return its groups' offsets")
