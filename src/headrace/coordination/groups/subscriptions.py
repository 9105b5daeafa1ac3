"""The subscriptions of a consumer group: names, and expressions with their topics."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import TypeAlias
from uuid import UUID

from headrace.cluster.image import Image
from headrace.coordination.consumer_records import ConsumerGroupMemberMetadata

Subscription: TypeAlias = tuple[tuple[str, ...], str | None]
"""Topic names in order, and an expression."""


def subscription_of(metadata: ConsumerGroupMemberMetadata) -> Subscription:
    """The subscription of a member."""
    return metadata.topics, metadata.expression


class Subscriptions:
    """The subscriptions of all members; equal ones are counted, not repeated."""

    __slots__ = ("_counts", "resolved")

    def __init__(self) -> None:
        self._counts: Counter[Subscription] = Counter()
        self.resolved: dict[str, tuple[str, ...]] = {}
        """The topics that each expression matches, in order."""

    def copy(self) -> "Subscriptions":
        """A copy, for a change that is not written yet."""
        other = Subscriptions()
        other._counts.update(self._counts)
        other.resolved.update(self.resolved)
        return other

    def replace(
        self, old: ConsumerGroupMemberMetadata | None, new: ConsumerGroupMemberMetadata | None
    ) -> None:
        """Update a member: None for one that has joined or left."""
        if old is not None:
            gone = subscription_of(old)
            self._counts[gone] -= 1
            if not self._counts[gone]:
                del self._counts[gone]
        if new is not None:
            self._counts[subscription_of(new)] += 1

    def has(self, subscription: Subscription) -> bool:
        """Whether any member has exactly this one."""
        return subscription in self._counts

    def expressions(self) -> set[str]:
        """The expressions that members use, resolved or not."""
        return {expression for _, expression in self._counts if expression}

    def names(self) -> set[str]:
        """Every topic that a member subscribes to, whether it exists or not."""
        found: set[str] = set()
        for topics, expression in self._counts:
            found.update(topics)
            found.update(self.resolved.get(expression or "", ()))
        return found

    def topic_ids(self, subscription: Subscription, image: Image) -> frozenset[UUID]:
        """The existing topics of a subscription."""
        topics, expression = subscription
        names = {*topics, *self.resolved.get(expression or "", ())}
        return frozenset(image.topics[name].id for name in names if name in image.topics)

    def partition_counts(self, image: Image) -> Mapping[UUID, int]:
        """How many partitions each subscribed topic has, in the order of their names."""
        found = (image.topics[name] for name in sorted(self.names()) if name in image.topics)
        return {topic.id: len(topic.partitions) for topic in found}

    def metadata_hash(self, image: Image) -> int:
        """A hash of the subscribed topics and their partition counts; 0 without topics."""
        counts = self.partition_counts(image)
        if not counts:
            return 0
        digest = hashlib.blake2b(digest_size=8)
        for topic_id, count in counts.items():
            digest.update(topic_id.bytes)
            digest.update(count.to_bytes(4, "big"))
        return int.from_bytes(digest.digest(), "big", signed=True)
