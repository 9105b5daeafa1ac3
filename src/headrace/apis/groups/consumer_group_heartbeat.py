"""ConsumerGroupHeartbeat (68), versions 0-1.

The only request of a member of a consumer group (KIP-848): it joins (epoch 0), stays, leaves
(epoch -1) or leaves temporarily (epoch -2, static members). The response has the member's epoch,
and its partitions if they changed or if the member sent all fields.

v1 subscriptions by regular expression; the member chooses its own id.
"""

import uuid
from collections.abc import Coroutine, Iterable
from functools import partial

from kio.schema.consumer_group_heartbeat.v1.request import (
    ConsumerGroupHeartbeatRequest,
)
from kio.schema.consumer_group_heartbeat.v1.request import TopicPartitions as OwnedPartitions
from kio.schema.consumer_group_heartbeat.v1.response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

from headrace.apis.context import Caller, RequestContext, Services
from headrace.apis.rights import need_topic
from headrace.coordination import consumer_records
from headrace.coordination.groups import consumer
from headrace.coordination.groups.consumer import ConsumerHeartbeat, ConsumerHeartbeatReply
from headrace.coordination.groups.consumer_limits import ConsumerLimits
from headrace.coordination.groups.consumer_member import JOINING, LEAVING, LEAVING_FOR_NOW
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation, ResourceType
from headrace.wire.primitives import NO_ERROR, i32, milliseconds, respond, to_milliseconds

FIRST_WITH_OWN_ID = 1


def consumer_group_heartbeat(
    services: Services, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse | Coroutine[None, None, ConsumerGroupHeartbeatResponse]:
    """Process the heartbeat of a member; respond with its epoch and assignment."""
    _check(request, context.version)
    for name in request.subscribed_topic_names or ():
        need_topic(context.caller, AclOperation.DESCRIBE, name)
    if request.server_assignor is not None:
        ConsumerLimits.of(services.settings).check_assignor(request.server_assignor)
    beat = ConsumerHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id or str(uuid.uuid4()),
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=to_milliseconds(request.rebalance_timeout),
        topics=request.subscribed_topic_names,
        expression=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None if request.topic_partitions is None else _owned(request.topic_partitions),
        client_id=context.client_id,
        client_host=context.caller.host,
        may_describe=partial(_may_describe, context.caller) if context.caller.permissions else None,
    )
    return services.groups.run(
        beat.group_id,
        lambda groups, token, now_ms: consumer.heartbeat(groups, beat, token, now_ms),
        _respond,
    )


def _may_describe(caller: Caller, topic: str) -> bool:
    return caller.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic, silent=True)


def _check(request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    """INVALID_REQUEST unless all fields are set that are required at this epoch."""
    if not request.group_id:
        raise _invalid("GroupId can't be empty.")
    if request.instance_id == "":
        raise _invalid("InstanceId can't be empty.")
    if request.rack_id == "":
        raise _invalid("RackId can't be empty.")
    epoch = request.member_epoch
    if not request.member_id and (epoch != JOINING or version >= FIRST_WITH_OWN_ID):
        raise _invalid("MemberId can't be empty.")
    if epoch == JOINING:
        if to_milliseconds(request.rebalance_timeout) == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            )
    elif epoch == LEAVING_FOR_NOW:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVING:
        raise _invalid(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)


def _owned(topics: Iterable[OwnedPartitions]) -> consumer_records.Assignment:
    return {
        topic.topic_id: frozenset(topic.partitions)
        for topic in topics
        if topic.topic_id is not None and topic.partitions
    }


def _respond(result: ConsumerHeartbeatReply) -> ConsumerGroupHeartbeatResponse:
    return respond(
        partial(
            ConsumerGroupHeartbeatResponse,
            error_code=NO_ERROR,
            error_message=None,
            member_id=result.member_id,
            member_epoch=i32(result.epoch),
            heartbeat_interval=milliseconds(result.heartbeat_interval_ms),
            assignment=None if result.assigned is None else _assignment(result.assigned),
        )
    )


def _assignment(assigned: consumer_records.Assignment) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(map(i32, sorted(partitions))))
            for topic_id, partitions in assigned.items()
        )
    )
