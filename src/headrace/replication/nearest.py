"""The replica that is nearest to a consumer: one in its own rack (KIP-392)."""

from headrace.cluster.metadata import Metadata
from headrace.replication.partition import Partition
from headrace.types import Offset
from headrace.wire.fast import Nearer


class Nearest:
    """Finds replicas by the racks of their brokers."""

    def __init__(self, metadata: Metadata, node_id: int) -> None:
        self._metadata = metadata
        self._node_id = node_id

    def __call__(self, partition: Partition, rack: str, offset: Offset) -> Nearer | None:
        """A follower in that rack, in sync and with records from there on; None: this broker."""
        leadership, brokers = partition.leadership, self._metadata.image.brokers
        here = brokers.get(self._node_id)
        if leadership is None or here is None or here.rack == rack:
            return None
        found = [
            (follower.end, number)
            for number, follower in leadership.followers.items()
            if number in leadership.isr
            and number in brokers
            and brokers[number].rack == rack
            and follower.end >= offset
        ]
        return Nearer(max(found)[1]) if found else None
