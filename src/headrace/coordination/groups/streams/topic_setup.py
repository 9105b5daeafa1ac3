"""The topics of a topology: partition counts, internal topics to create, and problems.

`configure` is pure. Repartition topics without a fixed number of partitions get the largest number
of the subtopology that writes them; topics of a copartition group get equal numbers; changelog
topics get one partition for each task.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from headrace.coordination.groups.streams.tasks import TaskId
from headrace.coordination.groups.streams.topology import (
    CopartitionGroup,
    InternalTopicSpec,
    StreamsTopology,
    Subtopology,
)
from headrace.errors import ErrorCode, KafkaError

STALE_TOPOLOGY = 0
MISSING_SOURCE_TOPICS = 1
INCORRECTLY_PARTITIONED_TOPICS = 2
MISSING_INTERNAL_TOPICS = 3
SHUTDOWN_APPLICATION = 4
ASSIGNMENT_DELAYED = 5
"""Status codes of StreamsGroupHeartbeat."""

_SHOWN = 3
"""How many topics a status names."""

Existing: TypeAlias = Callable[[str], int | None]
"""The partition count of an existing topic, or None."""


class HeartbeatStatus(NamedTuple):
    """A status in the response to a heartbeat."""

    code: int
    detail: str


class _WrongPartitions(Exception):
    """Topics exist with partition counts that do not fit the topology."""


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    """A subtopology whose topics have partition counts."""

    spec: Subtopology
    """Internal topics in it have their partition counts."""
    task_count: int

    @property
    def is_stateful(self) -> bool:
        """Whether its tasks have state, so that they can have standby tasks."""
        return bool(self.spec.changelog_topics)


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """A topology with the partition counts of its topics; ready if there is no problem."""

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology]
    """Empty if the partition counts cannot be computed."""
    missing: tuple[InternalTopicSpec, ...] = ()
    """Internal topics to create."""
    problem: HeartbeatStatus | None = None

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be assigned."""
        return self.problem is None

    def check_tasks(self, tasks: Collection[TaskId]) -> None:
        """INVALID_REQUEST unless all these tasks exist."""
        for task in tasks:
            known = self.subtopologies.get(task.subtopology)
            if known is None:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Subtopology {task.subtopology} does not exist in the topology.",
                )
            if not 0 <= task.partition < known.task_count:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Task {task.partition} for subtopology {task.subtopology} is invalid. "
                    f"Number of tasks for this subtopology: {known.task_count}",
                )


def configure(topology: StreamsTopology, existing: Existing) -> ConfiguredTopology:
    """Compute the partition counts; STREAMS_INVALID_TOPOLOGY if the topology has none."""
    lost = sorted(
        {
            name
            for one in topology.subtopologies
            for name in one.source_topics
            if existing(name) is None
        }
    )
    if lost:
        detail = f"Source topics {_summary(lost)} are missing."
        return _failed(topology, HeartbeatStatus(MISSING_SOURCE_TOPICS, detail))
    try:
        counts = _Counts(topology, existing)
        found = {
            one.id: _configured(one, counts)
            for one in sorted(topology.subtopologies, key=lambda one: one.id)
        }
        missing = _missing(found.values(), existing)
    except _WrongPartitions as error:
        return _failed(topology, HeartbeatStatus(INCORRECTLY_PARTITIONED_TOPICS, str(error)))
    problem = None
    if missing:
        detail = f"Internal topics are missing: {_summary([one.name for one in missing])}"
        problem = HeartbeatStatus(MISSING_INTERNAL_TOPICS, detail)
    return ConfiguredTopology(topology.epoch, found, missing, problem)


def _failed(topology: StreamsTopology, problem: HeartbeatStatus) -> ConfiguredTopology:
    return ConfiguredTopology(topology.epoch, {}, problem=problem)


def _configured(spec: Subtopology, counts: _Counts) -> ConfiguredSubtopology:
    repartition = tuple(
        replace(one, partitions=one.partitions or counts.decided[one.name])
        for one in spec.repartition_source_topics
    )
    tasks = counts.largest_source(spec)
    changelogs = tuple(replace(one, partitions=tasks) for one in spec.changelog_topics)
    whole = replace(spec, repartition_source_topics=repartition, changelog_topics=changelogs)
    return ConfiguredSubtopology(whole, tasks)


def _missing(
    subtopologies: Collection[ConfiguredSubtopology], existing: Existing
) -> tuple[InternalTopicSpec, ...]:
    wanted = {topic.name: topic for one in subtopologies for topic in one.spec.internal_topics()}
    missing = []
    for name, topic in sorted(wanted.items()):
        count = existing(name)
        if count is None:
            missing.append(topic)
        elif count != topic.partitions:
            raise _WrongPartitions(
                f"Existing topic {name} has different number of partitions: expected "
                f"{topic.partitions}, found {count}"
            )
    return tuple(missing)


def _summary(names: list[str]) -> str:
    more = len(names) - _SHOWN
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {more} additional topics" if more > 0 else shown


class _Counts:
    """The partition counts of all source topics of a topology."""

    def __init__(self, topology: StreamsTopology, existing: Existing) -> None:
        self._existing = existing
        self._topology = topology
        self._fixed = {
            topic.name: topic.partitions
            for one in topology.subtopologies
            for topic in one.repartition_source_topics
            if topic.partitions
        }
        self.decided = dict(self._fixed)
        """Partition counts of repartition topics."""
        self._derive()
        for one in topology.subtopologies:
            for group in one.copartition_groups:
                self._equalize(_names(one, group))

    def largest_source(self, spec: Subtopology) -> int:
        """The largest partition count of the topics that a subtopology reads."""
        counts = [self._count(name) for name in spec.sources()]
        if not counts:
            raise _invalid(f"No source topics found for subtopology {spec.id}")
        return max(counts)

    def _count(self, name: str) -> int:
        count = self._existing(name)
        return self.decided[name] if count is None else count

    def _derive(self) -> None:
        """Give each repartition topic the largest known count of the sources of its writer."""
        while True:
            unknown, progress = False, False
            for one in self._topology.subtopologies:
                for sink in one.repartition_sink_topics:
                    if sink in self.decided:
                        continue
                    count = self._largest_known(one)
                    if count is None:
                        unknown = True
                    else:
                        self.decided[sink], progress = count, True
            if unknown and not progress:
                raise _invalid(
                    "Failed to compute number of partitions for all repartition topics. There may "
                    "be loops in the topology that cannot be resolved."
                )
            if not unknown:
                break
        for one in self._topology.subtopologies:
            if any(topic.name not in self.decided for topic in one.repartition_source_topics):
                raise _invalid(
                    "Failed to compute number of partitions for all repartition topics, because a "
                    "repartition source topic is never used as a sink topic."
                )

    def _largest_known(self, spec: Subtopology) -> int | None:
        known = [self.decided.get(one.name) for one in spec.repartition_source_topics]
        known += [self._existing(name) for name in spec.source_topics]
        return max((count for count in known if count is not None), default=None)

    def _equalize(self, names: set[str]) -> None:
        """Give the topics of a copartition group the same count, or raise."""
        internal = {name: self._count(name) for name in names if name in self.decided}
        external = {name: self._count(name) for name in names if name not in internal}
        fixed = {name: self._fixed[name] for name in names if name in self._fixed}
        deciding = external or fixed
        if len(set(deciding.values())) > 1:
            listed = ", ".join(f"{name}={count}" for name, count in sorted(deciding.items()))
            raise _WrongPartitions(
                f"Following topics do not have the same number of partitions: [{{{listed}}}]"
            )
        if not internal:
            return
        count = next(iter(deciding.values())) if deciding else max(internal.values())
        for name in sorted(internal):
            if name in fixed and fixed[name] != count:
                raise _WrongPartitions(
                    f"Number of partitions [{fixed[name]}] of repartition topic [{name}] doesn't "
                    f"match number of partitions [{count}] of the source topic."
                )
            self.decided[name] = count


def _names(spec: Subtopology, group: CopartitionGroup) -> set[str]:
    sources, internal = spec.source_topics, spec.repartition_source_topics
    try:
        found = {sources[at] for at in group.source_topics if at >= 0}
        return found | {internal[at].name for at in group.repartition_source_topics if at >= 0}
    except IndexError:
        raise _invalid(f"A copartition group of subtopology {spec.id} is out of range") from None


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, why)
