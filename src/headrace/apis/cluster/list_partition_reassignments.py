"""ListPartitionReassignments (46), version 0.

Lists reassignments in progress, of all topics or of those named. A partition that is not being
reassigned, or does not exist, is left out.
"""

from collections.abc import Iterable
from functools import partial

from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.list_partition_reassignments.v0.response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

from headrace.apis.context import RequestContext, Services
from headrace.cluster.image import Topic
from headrace.cluster.moves import is_moving
from headrace.wire.primitives import NO_ERROR, BrokerId, TopicName, i32, respond
from headrace.wire.steps import Steps


def list_partition_reassignments(
    services: Services, request: ListPartitionReassignmentsRequest, _context: RequestContext
) -> Steps[ListPartitionReassignmentsResponse]:
    """The reassignments in this broker's image."""
    topics = services.metadata.image.topics
    found = []
    if request.topics is None:
        for topic in topics.values():
            found.append(_moving(topic, range(len(topic.partitions))))
            yield
    else:
        for one in request.topics:
            if one.name in topics:
                found.append(_moving(topics[one.name], one.partition_indexes))
            yield
    return respond(
        partial(
            ListPartitionReassignmentsResponse,
            error_code=NO_ERROR,
            error_message=None,
            topics=tuple(one for one in found if one.partitions),
        )
    )


def _moving(topic: Topic, indexes: Iterable[int]) -> OngoingTopicReassignment:
    states = topic.partitions
    return OngoingTopicReassignment(
        name=TopicName(topic.name),
        partitions=tuple(
            OngoingPartitionReassignment(
                partition_index=i32(index),
                replicas=tuple(map(BrokerId, states[index].replicas)),
                adding_replicas=tuple(map(BrokerId, states[index].adding)),
                removing_replicas=tuple(map(BrokerId, states[index].removing)),
            )
            for index in indexes
            if 0 <= index < len(states) and is_moving(states[index])
        ),
    )
