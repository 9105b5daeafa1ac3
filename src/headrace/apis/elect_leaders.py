"""ElectLeaders (43), versions 0-2.

Asks for the preferred leader of partitions (0), or for any leader at all (1, unclean). No topics
named means all partitions, and the answer then leaves out those that need no election.

v1 unclean elections and an error for the whole request; v2 flexible. Not done: elections. Every
partition has its one replica as leader; one that has none cannot be helped.
"""

from collections.abc import Iterable

from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
from kio.schema.elect_leaders.v2.response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

from headrace.apis.context import Caller, Services
from headrace.cluster.image import NO_LEADER, Image, Topic
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.primitives import NO_ERROR, NO_THROTTLE, TopicName, error, i32

PREFERRED = 0
UNCLEAN = 1


def elect_leaders(
    services: Services, request: ElectLeadersRequest, _caller: Caller
) -> ElectLeadersResponse:
    """Say for each partition why there is no election."""
    image = services.metadata.image
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"there is no election type {request.election_type}"
        )
    kind = request.election_type
    results: list[tuple[str, list[tuple[int, KafkaError]]]]
    if request.topic_partitions is None:
        results = []
        for name, topic in image.topics.items():
            judged = _judge(image, name, range(len(topic.partitions)), kind)
            needed = [row for row in judged if row[1].code is not ErrorCode.ELECTION_NOT_NEEDED]
            results.append((name, needed))
    else:
        results = [
            (one.topic, _judge(image, one.topic, one.partitions, kind))
            for one in request.topic_partitions
        ]
    return ElectLeadersResponse(
        throttle_time=NO_THROTTLE,
        error_code=NO_ERROR,
        replica_election_results=tuple(
            ReplicaElectionResult(
                topic=TopicName(name),
                partition_result=tuple(
                    PartitionResult(
                        partition_id=i32(index),
                        error_code=error(refusal.code),
                        error_message=refusal.message,
                    )
                    for index, refusal in refusals
                ),
            )
            for name, refusals in results
        ),
    )


def _judge(
    image: Image, name: str, indexes: Iterable[int], kind: int
) -> list[tuple[int, KafkaError]]:
    return [(index, _reason(image.topics.get(name), name, index, kind)) for index in indexes]


def _reason(topic: Topic | None, name: str, index: int, kind: int) -> KafkaError:
    if topic is None or not 0 <= index < len(topic.partitions):
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {name}-{index}")
    state = topic.partitions[index]
    if kind == PREFERRED and state.leader != state.replicas[0]:
        return KafkaError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"broker {state.replicas[0]} cannot lead {name}-{index} now",
        )
    if state.leader == NO_LEADER:
        return KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no broker can lead {name}-{index} now"
        )
    return KafkaError(
        ErrorCode.ELECTION_NOT_NEEDED, f"{name}-{index} is led by broker {state.leader} already"
    )
