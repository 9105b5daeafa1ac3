"""The partitions that each instance of an application has, for interactive queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.coordination.groups.streams.streams_member import StreamsMember
from headrace.coordination.groups.streams.tasks import TaskId, by_subtopology
from headrace.coordination.groups.streams.topic_setup import ConfiguredTopology, Existing
from headrace.coordination.streams_records import UserEndpoint


class EndpointPartitions(NamedTuple):
    """The partitions of source topics whose state an instance has."""

    endpoint: UserEndpoint
    active: Mapping[str, tuple[int, ...]]
    standby: Mapping[str, tuple[int, ...]]


def partitions_by_endpoint(
    members: Iterable[StreamsMember], topology: ConfiguredTopology, existing: Existing
) -> tuple[EndpointPartitions, ...]:
    """The partitions of all members with an endpoint."""
    return tuple(
        EndpointPartitions(
            member.metadata.endpoint,
            _partitions(member.current.assigned.active, topology, existing),
            _partitions(member.current.assigned.standby, topology, existing),
        )
        for member in members
        if member.metadata.endpoint is not None
    )


def _partitions(
    tasks: Iterable[TaskId], topology: ConfiguredTopology, existing: Existing
) -> Mapping[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for name, numbers in by_subtopology(tasks).items():
        subtopology = topology.subtopologies.get(name)
        if subtopology is None:
            continue
        for topic in subtopology.spec.sources():
            count = existing(topic) or 0
            found[topic] = tuple(number for number in numbers if number < count)
    return found
