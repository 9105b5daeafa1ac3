"""AlterPartitionReassignments (45), versions 0-1.

Begins reassignments, or cancels them (replicas null). The response is sent when the metadata is
written; the replicas are copied after that, and the controller completes the reassignment when all
new replicas are in sync (`cluster/moves.py`). Any broker accepts the request.

v1 the client can refuse changes of the replication factor. `timeout` is not used, because nothing
waits.
"""

from functools import partial

from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
)
from kio.schema.alter_partition_reassignments.v1.response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

from headrace.apis.context import RequestContext, Services
from headrace.cluster.partition_requests import ReassignmentRequest, reassign
from headrace.types import TopicPartition
from headrace.wire.primitives import NO_ERROR, error, respond


def alter_partition_reassignments(
    services: Services, request: AlterPartitionReassignmentsRequest, _context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Begin and cancel reassignments; an error of one does not affect the others."""
    requested = [
        ReassignmentRequest(TopicPartition(topic.name, one.partition_index), one.replicas)
        for topic in request.topics
        for one in topic.partitions
    ]
    results = services.metadata.ask_partitions(
        partial(
            reassign,
            registered=services.metadata.registered(),
            requested=requested,
            may_resize=request.allow_replication_factor_change,
        )
    )
    refusals = iter(results)
    topics = []
    for topic in request.topics:
        partitions = []
        for one in topic.partitions:
            refused = next(refusals)
            partitions.append(
                ReassignablePartitionResponse(
                    partition_index=one.partition_index,
                    error_code=NO_ERROR if refused is None else error(refused.code),
                    error_message=None if refused is None else refused.message,
                )
            )
        topics.append(ReassignableTopicResponse(name=topic.name, partitions=tuple(partitions)))
    return respond(
        partial(
            AlterPartitionReassignmentsResponse,
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_code=NO_ERROR,
            error_message=None,
            responses=tuple(topics),
        )
    )
