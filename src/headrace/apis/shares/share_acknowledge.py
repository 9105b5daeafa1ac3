"""ShareAcknowledge (79), versions 1-2.

Accepts, releases or rejects records that a member has acquired, or renews their locks (v2). The
response is sent when the changes are stored. The session epoch is checked as in ShareFetch; with
the final epoch the session ends, and all other records of the member are released.
"""

from collections import defaultdict
from functools import partial
from uuid import UUID

from kio.schema.share_acknowledge.v2.request import ShareAcknowledgeRequest
from kio.schema.share_acknowledge.v2.response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

from headrace.apis.context import RequestContext, Services
from headrace.apis.shares.acknowledgements import acknowledge
from headrace.apis.shares.leaders import addresses, leader_of
from headrace.coordination.shares.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    ShareSessionKey,
)
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.primitives import NO_ERROR, BrokerId, error, i32, milliseconds, respond


async def share_acknowledge(
    services: Services, request: ShareAcknowledgeRequest, context: RequestContext
) -> ShareAcknowledgeResponse:
    """Process the acknowledgements of each partition."""
    shares, caller = services.shares, context.caller
    if not request.group_id or not request.member_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId and MemberId must be set.")
    member = ShareSessionKey(request.group_id, request.member_id)
    epoch = request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        raise KafkaError(
            ErrorCode.INVALID_SHARE_SESSION_EPOCH, "An acknowledgement needs a share session."
        )
    if epoch == FINAL_EPOCH:
        shares.sessions.check(member)
    else:
        shares.sessions.next(member, epoch)
    rows = {
        (topic.topic_id, int(row.partition_index)): row.acknowledgement_batches
        for topic in request.topics
        if topic.topic_id is not None
        for row in topic.partitions
    }
    results = await acknowledge(services, caller, member, rows)
    if epoch == FINAL_EPOCH:
        shares.sessions.close(member)
        shares.partitions.release(*member)
    topics: dict[UUID, list[PartitionData]] = defaultdict(list)
    moved: list[int] = []
    for (topic_id, index), failed in results.items():
        leader, leader_epoch = -1, -1
        if failed is not None and failed.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            leader, leader_epoch = leader_of(services, topic_id, index)
            moved.append(leader)
        topics[topic_id].append(
            PartitionData(
                partition_index=i32(index),
                error_code=NO_ERROR if failed is None else error(failed.code),
                error_message=None if failed is None else failed.message,
                current_leader=LeaderIdAndEpoch(
                    leader_id=i32(leader), leader_epoch=i32(leader_epoch)
                ),
            )
        )
    return respond(
        partial(
            ShareAcknowledgeResponse,
            error_code=NO_ERROR,
            error_message=None,
            acquisition_lock_timeout=milliseconds(
                shares.partitions.settings_of(member.group_id).lock_ms
            ),
            responses=tuple(
                ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=tuple(partitions))
                for topic_id, partitions in topics.items()
            ),
            node_endpoints=tuple(
                NodeEndpoint(
                    node_id=BrokerId(one.node_id), host=one.host, port=i32(one.port), rack=one.rack
                )
                for one in addresses(services, caller, moved)
            ),
        )
    )
