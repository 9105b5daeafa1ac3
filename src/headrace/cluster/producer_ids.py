"""Producer ids, which brokers allocate from the store in blocks."""

import uuid

from headrace.cluster.metadata_nodes import MetadataNodes
from headrace.cluster.store import Conflict
from headrace.errors import ErrorCode, KafkaError

BLOCK = 1000
_ATTEMPTS = 10
_PATH = "/producer_ids"


class ProducerIds:
    """Allocates the producer ids of this broker."""

    def __init__(self, nodes: MetadataNodes) -> None:
        self._nodes = nodes
        self._block = iter(range(0))

    def next(self) -> int:
        """A producer id that was never allocated before, not even before a crash."""
        for producer_id in self._block:
            return producer_id
        for _ in range(_ATTEMPTS):
            content = self._nodes.get(_PATH)
            first: int = content["next"] if content else _first_producer_id()
            try:
                self._nodes.commit([self._nodes.put(_PATH, {"next": first + BLOCK})])
            except Conflict:
                continue
            self._block = iter(range(first, first + BLOCK))
            return next(self._block)
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"other brokers allocated producer ids {_ATTEMPTS} times in a row",
        )


def _first_producer_id() -> int:
    """The first producer id of a cluster, at random.

    Logs copied from another cluster contain that cluster's producers, whose ids must not be
    allocated again here.
    """
    return uuid.uuid4().int >> 88 << 16
