"""Who has read how far: committed offsets by topic, for whoever must not look at one group alone.

The answer comes from the groups that this broker coordinates, which on a single broker are all.
In a cluster the others have to be asked, with OffsetFetch.
"""

import asyncio
from collections.abc import Collection

from headrace.coordination.runtime import Coordinator

_GROUPS_AT_ONCE = 100
"""Groups looked at in one go, while everybody else waits."""


async def committed_here(
    coordinator: Coordinator, topics: Collection[str]
) -> dict[str, dict[str, dict[int, int]]]:
    """By topic, group and partition: the offset that the group reads next.

    KafkaError while the groups are being read from the log.
    """
    found: dict[str, dict[str, dict[int, int]]] = {}
    seen = 0
    for state in list(coordinator.all_groups()):
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
