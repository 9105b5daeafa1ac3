"""The topology of a Kafka Streams application, as its members send it and the log holds it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InternalTopicSpec:
    """A repartition or changelog topic, with its settings for creation."""

    name: str
    partitions: int = 0
    """0 if the broker computes it; always 0 for changelog topics."""
    replication_factor: int = 0
    """0: the broker's default."""
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CopartitionGroup:
    """Source topics with equal partition counts, as positions in the lists of the subtopology."""

    source_topics: tuple[int, ...] = ()
    source_expressions: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Subtopology:
    """A connected part of the topology: its tasks run independently of other subtopologies."""

    id: str
    source_topics: tuple[str, ...] = ()
    source_expressions: tuple[str, ...] = ()
    changelog_topics: tuple[InternalTopicSpec, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[InternalTopicSpec, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    def sources(self) -> Iterator[str]:
        """All topics that its tasks read."""
        yield from self.source_topics
        for topic in self.repartition_source_topics:
            yield topic.name

    def internal_topics(self) -> Iterator[InternalTopicSpec]:
        """The topics that the broker creates."""
        yield from self.repartition_source_topics
        yield from self.changelog_topics


@dataclass(frozen=True, slots=True)
class StreamsTopology:
    """A version of the topology, identified by its epoch."""

    epoch: int
    subtopologies: tuple[Subtopology, ...]

    def required_topics(self) -> frozenset[str]:
        """The topics that must exist before tasks are assigned."""
        return frozenset(
            name
            for one in self.subtopologies
            for name in (*one.sources(), *(topic.name for topic in one.changelog_topics))
        )

    def all_topics(self) -> frozenset[str]:
        """The topics that the application reads or writes and the broker knows of."""
        sinks = (name for one in self.subtopologies for name in one.repartition_sink_topics)
        return self.required_topics().union(sinks)

    def reader_of(self, topic: str) -> str | None:
        """The id of the subtopology that reads this topic."""
        return next((one.id for one in self.subtopologies if topic in one.sources()), None)
