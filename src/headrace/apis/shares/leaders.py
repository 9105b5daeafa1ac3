"""The new leader of a partition in responses with NOT_LEADER_OR_FOLLOWER."""

from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

from headrace.apis.context import Caller, Services
from headrace.types import BrokerId


class LeaderAddress(NamedTuple):
    """The address of a leader on the client's listener."""

    node_id: BrokerId
    host: str
    port: int
    rack: str | None


def leader_of(services: Services, topic_id: UUID, index: int) -> tuple[BrokerId, int]:
    """The leader of a partition and its epoch; -1 if they are unknown."""
    return services.shares.partitions.leader(topic_id, index)


def addresses(
    services: Services, caller: Caller, leaders: Collection[BrokerId]
) -> list[LeaderAddress]:
    """The addresses of these brokers, without those that are unknown."""
    found = []
    for leader in sorted(set(leaders)):
        broker = services.metadata.image.brokers.get(leader)
        endpoint = broker.endpoint(caller.listener) if broker is not None else None
        if broker is not None and endpoint is not None:
            found.append(LeaderAddress(broker.id, endpoint.host, endpoint.port, broker.rack))
    return found
