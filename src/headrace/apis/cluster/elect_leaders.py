"""ElectLeaders (43), versions 0-2.

Asks for the preferred leader of partitions (0), or for any leader at all (1, unclean). No topics
named means all partitions, and the answer then leaves out those that need no election. Any broker
may be asked. Answered once it is written down who leads; that one begins a moment later.

v1 unclean elections and an error for the whole request; v2 flexible. Not needed: `timeout`.
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
    """Elect where that is needed and possible; say for each partition what came of it."""
    elect = _ELECTIONS.get(request.election_type)
    if elect is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"there is no election type {request.election_type}"
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
