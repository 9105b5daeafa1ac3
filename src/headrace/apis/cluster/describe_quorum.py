"""DescribeQuorum (55), versions 0-2.

Describes the quorum of the cluster's metadata. Kafka's controllers replicate a log, the topic
`__cluster_metadata`. Headrace has a metadata store instead; it is shown as a quorum whose only
voter is the controller, and the image's version is shown as the end of the log.

v1 the time of each voter's last fetch; v2 folder ids and the addresses of the voters. Not done:
other voters and observers.
"""

from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest
from kio.schema.describe_quorum.v2.response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from kio.static.primitive import u16

from headrace.apis.context import RequestContext, Services
from headrace.cluster.image import Image
from headrace.errors import ErrorCode
from headrace.wire.primitives import NO_ERROR, BrokerId, error, i32, i64

METADATA_TOPIC = "__cluster_metadata"
LEADER_EPOCH = 1


def describe_quorum(
    services: Services, request: DescribeQuorumRequest, context: RequestContext
) -> DescribeQuorumResponse:
    """The controller as the only voter; other partitions get an error."""
    image = services.metadata.image
    now_ms = services.clock.now_ms()
    return DescribeQuorumResponse(
        error_code=NO_ERROR,
        error_message=None,
        topics=tuple(
            TopicData(
                topic_name=topic.topic_name,
                partitions=tuple(
                    _quorum(image, now_ms, one.partition_index)
                    if (topic.topic_name, one.partition_index) == (METADATA_TOPIC, 0)
                    else _no_quorum(one.partition_index)
                    for one in topic.partitions
                ),
            )
            for topic in request.topics
        ),
        nodes=tuple(
            Node(
                node_id=BrokerId(broker.id),
                listeners=(Listener(name=at.listener, host=at.host, port=u16(at.port)),),
            )
            for broker in image.brokers.values()
            if broker.id == image.controller_id
            and (at := broker.endpoint(context.caller.listener)) is not None
        ),
    )


def _quorum(image: Image, now_ms: int, index: i32) -> PartitionData:
    voter = ReplicaState(
        replica_id=BrokerId(image.controller_id),
        replica_directory_id=None,
        log_end_offset=i64(image.version),
        last_fetch_timestamp=i64(now_ms),
        last_caught_up_timestamp=i64(now_ms),
    )
    return PartitionData(
        partition_index=index,
        error_code=NO_ERROR,
        error_message=None,
        leader_id=BrokerId(image.controller_id),
        leader_epoch=i32(LEADER_EPOCH),
        high_watermark=i64(image.version),
        current_voters=(voter,),
        observers=(),
    )


def _no_quorum(index: i32) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        error_message=f"only {METADATA_TOPIC}-0 has a quorum",
        leader_id=BrokerId(-1),
        leader_epoch=i32(-1),
        high_watermark=i64(-1),
        current_voters=(),
        observers=(),
    )
