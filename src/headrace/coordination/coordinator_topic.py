"""The topic of a coordinator: which partition holds a group or a transactional id.

The broker that leads that partition is the coordinator of the id. The topic is created when it is
first needed.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from headrace.cluster.controller import Defaults, NewTopic
from headrace.cluster.image import NO_LEADER
from headrace.cluster.metadata import Metadata
from headrace.errors import ErrorCode, KafkaError
from headrace.replication.partition import Partition
from headrace.replication.replicas import Replicas
from headrace.types import BrokerId

logger = logging.getLogger(__name__)


class CoordinatorTopic:
    """`__consumer_offsets` or `__transaction_state`."""

    def __init__(
        self, name: str, new: Callable[[], NewTopic], metadata: Metadata, replicas: Replicas
    ) -> None:
        """`new` returns the topic with its settings for creation."""
        self.name = name
        self._new = new
        self._metadata = metadata
        self._replicas = replicas

    def partition_count(self) -> int:
        """How many partitions the topic has; 0 if it does not exist yet."""
        topic = self._metadata.image.topics.get(self.name)
        return 0 if topic is None else len(topic.partitions)

    def partition(self, index: int) -> Partition:
        """This broker's replica; NOT_COORDINATOR if it has none."""
        try:
            return self._replicas.partition(self.name, index)
        except KafkaError as error:
            raise KafkaError(ErrorCode.NOT_COORDINATOR) from error

    def partition_of(self, name: str) -> int:
        """The partition that holds a group or transactional id; creates the topic if needed."""
        return java_hash(name) % (self.partition_count() or self._create())

    def leader_of(self, name: str) -> BrokerId:
        """The coordinator of a group or transactional id; -1 while it is unknown."""
        index = self.partition_of(name)
        leader = self._metadata.image.topics[self.name].partitions[index].leader
        if leader == self._replicas.node_id and not self._replicas.topic(self.name)[index].leads:
            return NO_LEADER  # this broker has stepped down, and the new leader is not known yet
        return leader

    def _create(self) -> int:
        new = self._new()
        # In a smaller cluster the topic gets fewer replicas than configured.
        factor = min(new.replication_factor, len(self._metadata.image.brokers))
        new = replace(new, replication_factor=factor)
        try:
            self._metadata.create_topic(new, Defaults(1, 1))
        except KafkaError as error:
            if not self.partition_count():  # else another broker was faster
                logger.error("cannot create the topic %s: %s", self.name, error)
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
        return self.partition_count()


@lru_cache(4096)
def java_hash(text: str) -> int:
    """A string's hash as Java computes it, without the sign: it chooses a group's partition."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (31 * value + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return value & 0x7FFFFFFF
