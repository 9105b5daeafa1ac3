"""The replica that is nearest to a consumer: one in its own rack (KIP-392)."""

from headrace.cluster.metadata import Metadata
from headrace.replication.partition import Partition
from headrace.types import BrokerId, Offset
from headrace.wire.results import NO_REPLICA


class Nearest:
    """Finds replicas by the racks of their brokers."""

    def __init__(self, metadata: Metadata, node_id: int) -> None:
        self._metadata = metadata
        self._node_id = node_id

    def __call__(self, partition: Partition, rack: str, offset: Offset) -> BrokerId:
        """An in-sync follower in that rack that has the offset; NO_REPLICA for this broker."""
        leadership, brokers = partition.leadership, self._metadata.image.brokers
        here = brokers.get(self._node_id)
        if leadership is None or here is None or here.rack == rack:
            return NO_REPLICA
        found = [
            (follower.end, number)
            for number, follower in leadership.followers.items()
            if number in leadership.isr
            and number in brokers
            and brokers[number].rack == rack
            and follower.end >= offset
        ]
        return max(found)[1] if found else NO_REPLICA
