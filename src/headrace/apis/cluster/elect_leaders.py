"""ElectLeaders (43), versions 0-2.

Elects the preferred leader of partitions (election type 0), or any live replica (type 1, unclean).
Without topics in the request all partitions are meant, and the response leaves out those that need
no election. Any broker accepts the request. The response is sent when the metadata is written; the
new leader takes over after that.

v1 unclean elections and an error for the whole request; v2 flexible. `timeout` is not used.
"""

from functools import partial

from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
from kio.schema.elect_leaders.v2.response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

from headrace.apis.context import RequestContext, Services
from headrace.cluster.image import Image
from headrace.cluster.partition_requests import elect_preferred, elect_unclean
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition
from headrace.wire.primitives import NO_ERROR, TopicName, error, i32, respond

_ELECTIONS = {0: elect_preferred, 1: elect_unclean}


def elect_leaders(
    services: Services, request: ElectLeadersRequest, _context: RequestContext
) -> ElectLeadersResponse:
    """Elect leaders where needed and possible; the response has a result for each partition."""
    elect = _ELECTIONS.get(request.election_type)
    if elect is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"unknown election type {request.election_type}"
        )
    everything = request.topic_partitions is None
    partitions = _all(services.metadata.image) if everything else _named(request)
    results = services.metadata.ask_partitions(partial(elect, partitions=partitions))
    by_topic: dict[str, list[PartitionResult]] = {}
    for (topic, index), refused in zip(partitions, results, strict=True):
        rows = by_topic.setdefault(topic, [])
        if everything and refused and refused.code is ErrorCode.ELECTION_NOT_NEEDED:
            continue
        rows.append(
            PartitionResult(
                partition_id=i32(index),
                error_code=NO_ERROR if refused is None else error(refused.code),
                error_message=None if refused is None else refused.message,
            )
        )
    return respond(
        partial(
            ElectLeadersResponse,
            error_code=NO_ERROR,
            replica_election_results=tuple(
                ReplicaElectionResult(topic=TopicName(name), partition_result=tuple(rows))
                for name, rows in by_topic.items()
            ),
        )
    )


def _all(image: Image) -> list[TopicPartition]:
    return [
        TopicPartition(name, index)
        for name, topic in image.topics.items()
        for index in range(len(topic.partitions))
    ]


def _named(request: ElectLeadersRequest) -> list[TopicPartition]:
    return [
        TopicPartition(one.topic, index)
        for one in request.topic_partitions or ()
        for index in one.partitions
    ]
