"""AlterPartitionReassignments (45), versions 0-1.

Asks that partitions be held by other brokers, or (no brokers named) that a move under way stop.
Brokers that hold the partition already are granted at once.

v1 a caller may refuse that the number of replicas changes. Not done: moving replicas, so anything
that would need a move is refused, and there is never a move to stop.
"""

from collections.abc import Sequence

from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
)
from kio.schema.alter_partition_reassignments.v1.response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

from headrace.apis.context import Caller, Services
from headrace.cluster.image import Image
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.primitives import NO_ERROR, NO_THROTTLE, error


def alter_partition_reassignments(
    services: Services, request: AlterPartitionReassignmentsRequest, _caller: Caller
) -> AlterPartitionReassignmentsResponse:
    """Grant what changes nothing; say for the rest what is wrong with it."""
    image = services.metadata.image
    topics = []
    for topic in request.topics:
        partitions = []
        for wanted in topic.partitions:
            refused = _refusal(image, topic.name, wanted.partition_index, wanted.replicas)
            partitions.append(
                ReassignablePartitionResponse(
                    partition_index=wanted.partition_index,
                    error_code=NO_ERROR if refused is None else error(refused.code),
                    error_message=None if refused is None else refused.message,
                )
            )
        topics.append(ReassignableTopicResponse(name=topic.name, partitions=tuple(partitions)))
    return AlterPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=NO_ERROR,
        error_message=None,
        responses=tuple(topics),
    )


def _refusal(
    image: Image, name: str, index: int, wanted: Sequence[int] | None
) -> KafkaError | None:
    topic = image.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {name}-{index}")
    if wanted is None:
        return KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{name}-{index} is not moving")
    if not wanted or len(set(wanted)) != len(wanted):
        reason = "name at least one broker, and each only once"
    elif unknown := [node for node in wanted if node not in image.brokers]:
        reason = f"there is no broker {unknown[0]}"
    elif tuple(wanted) == topic.partitions[index].replicas:
        return None
    else:
        reason = "replicas cannot be moved yet"
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{name}-{index}: {reason}")
