"""ConsumerGroupDescribe (69), versions 0-1.

Describes consumer groups with their epochs and members: the assignment and the target assignment of
each. A group that is of another type, or does not exist, gets GROUP_ID_NOT_FOUND.

v1 whether a member uses the consumer or the classic protocol.
"""

from collections.abc import Coroutine
from functools import partial

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v1.response import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from kio.schema.types import GroupId

from headrace.apis import operations
from headrace.apis.context import Caller, RequestContext, Services
from headrace.apis.rights import denied, may_with_topic
from headrace.cluster.image import Image
from headrace.coordination import consumer_records
from headrace.coordination.groups.consumer import ConsumerGroup
from headrace.coordination.groups.consumer_member import ConsumerMember
from headrace.coordination.groups.registry import Groups
from headrace.coordination.outcome import Outcome, Result, Token, answer
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation, ResourceType
from headrace.wire.primitives import NO_ERROR, TopicName, error, i8, i32, respond

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def consumer_group_describe(
    services: Services, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse | Coroutine[None, None, ConsumerGroupDescribeResponse]:
    """Describe each group, or return its error."""
    caller = context.caller
    asked = request.include_authorized_operations

    def finish(results: list[Result[ConsumerGroup]]) -> ConsumerGroupDescribeResponse:
        return respond(
            partial(
                ConsumerGroupDescribeResponse,
                groups=tuple(
                    _describe(one, services.metadata.image, caller, asked)
                    if isinstance(one, ConsumerGroup)
                    else _refused(group_id, one)
                    for group_id, one in zip(request.group_ids, results, strict=True)
                ),
            )
        )

    return services.groups.run_each(
        [(group_id, partial(_find, caller, group_id)) for group_id in request.group_ids], finish
    )


def _find(
    caller: Caller, group_id: str, groups: Groups, token: Token[ConsumerGroup], _now_ms: int
) -> Outcome:
    if not caller.may(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        return answer(token, denied(ResourceType.GROUP))
    if not group_id:
        return answer(token, KafkaError(ErrorCode.INVALID_GROUP_ID))
    found = groups.groups.get(group_id)
    if isinstance(found, ConsumerGroup):
        return answer(token, found)
    why = "not found" if found is None else "is not a consumer group"
    return answer(token, KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {why}."))


def _refused(group_id: GroupId, why: KafkaError) -> DescribedGroup:
    return DescribedGroup(
        error_code=error(why.code),
        error_message=why.message,
        group_id=group_id,
        group_state="",
        group_epoch=i32(0),
        assignment_epoch=i32(0),
        assignor_name="",
        members=(),
    )


def _describe(group: ConsumerGroup, image: Image, caller: Caller, asked: bool) -> DescribedGroup:
    if not _may_see_topics(group, image, caller):
        why = "the group uses topics that this client may not describe"
        refused = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, why)
        return _refused(GroupId(group.group_id), refused)
    state = group.persistent
    allowed = operations.on_group(caller, group.group_id) if asked else operations.NOT_ASKED
    return DescribedGroup(
        error_code=NO_ERROR,
        error_message=None,
        group_id=GroupId(group.group_id),
        group_state=group.state,
        group_epoch=i32(state.epoch),
        assignment_epoch=i32(state.target_epoch),
        assignor_name=group.assignor,
        members=tuple(
            _member(member, state.target_of(member.id), image) for member in state.members.values()
        ),
        authorized_operations=i32(allowed),
    )


def _may_see_topics(group: ConsumerGroup, image: Image, caller: Caller) -> bool:
    """Whether the client may describe all topics that members subscribe to or are assigned."""
    if caller.permissions is None:
        return True
    state = group.persistent
    names = {name for member in state.members.values() for name in member.metadata.topics}
    for member in state.members.values():
        assigned = (*member.current.assigned, *state.target_of(member.id))
        names |= {image.names[topic_id] for topic_id in assigned if topic_id in image.names}
    return all(may_with_topic(caller, AclOperation.DESCRIBE, name) for name in names)


def _member(member: ConsumerMember, target: consumer_records.Assignment, image: Image) -> Member:
    metadata = member.metadata
    return Member(
        member_id=member.id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=i32(member.epoch),
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=tuple(map(TopicName, metadata.topics)),
        subscribed_topic_regex=metadata.expression,
        assignment=_assignment(member.current.assigned, image),
        target_assignment=_assignment(target, image),
        member_type=i8(CLASSIC_MEMBER if member.uses_classic else CONSUMER_MEMBER),
    )


def _assignment(assigned: consumer_records.Assignment, image: Image) -> Assignment:
    """The assignment with topic names; deleted topics have no name and are left out."""
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(
                topic_id=topic_id,
                topic_name=TopicName(image.names[topic_id]),
                partitions=tuple(map(i32, sorted(partitions))),
            )
            for topic_id, partitions in assigned.items()
            if topic_id in image.names
        )
    )
