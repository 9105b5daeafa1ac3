"""What clients and other brokers write to and read from the topics of this broker.

The counters of a topic are shared by its partitions, so that they stay monotonic when partitions
come and go. Their number is bounded: topics beyond the limit share one set of counters.
"""

from dataclasses import dataclass, fields


@dataclass(slots=True, eq=False)
class TopicTraffic:
    """The counters of one topic. Records are counted by their offsets."""

    records_in: int = 0
    """Records that clients and coordinators appended here."""
    bytes_in: int = 0
    records_out: int = 0
    """Records that were sent to consumers."""
    bytes_out: int = 0
    replication_bytes_in: int = 0
    """Bytes that were fetched from leaders."""
    replication_bytes_out: int = 0
    """Bytes that were sent to followers."""

    def add(self, other: "TopicTraffic") -> None:
        """Count all that `other` has counted."""
        for field in fields(self):
            total = getattr(self, field.name) + getattr(other, field.name)
            setattr(self, field.name, total)


class Traffic:
    """The counters of all topics."""

    def __init__(self, most_topics: int) -> None:
        self.topics: dict[str, TopicTraffic] = {}
        self.others = TopicTraffic()
        """The topics beyond the limit."""
        self._deleted = TopicTraffic()
        self._most_topics = most_topics

    def of(self, topic: str) -> TopicTraffic:
        """The counters of a topic."""
        found = self.topics.get(topic)
        if found is not None:
            return found
        if len(self.topics) >= self._most_topics:
            return self.others
        found = self.topics[topic] = TopicTraffic()
        return found

    def forget(self, topic: str) -> None:
        """The topic was deleted."""
        deleted = self.topics.pop(topic, None)
        if deleted is not None:
            self._deleted.add(deleted)

    def total(self) -> TopicTraffic:
        """All topics together, with those that were deleted."""
        total = TopicTraffic()
        for one in (self._deleted, self.others, *self.topics.values()):
            total.add(one)
        return total
