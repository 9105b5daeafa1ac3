"""ShareGroupDescribe (77), version 1.

Describes share groups with their epochs and members. A group that is of another type, or does not
exist, gets GROUP_ID_NOT_FOUND.
"""

from collections.abc import Coroutine
from functools import partial

from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_describe.v1.response import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from kio.schema.types import GroupId

from headrace.apis import operations
from headrace.apis.context import Caller, RequestContext, Services
from headrace.apis.rights import denied, may_with_topic
from headrace.cluster.image import Image
from headrace.coordination import consumer_records
from headrace.coordination.groups import share
from headrace.coordination.groups.registry import Groups
from headrace.coordination.groups.share import ASSIGNOR, ShareGroup
from headrace.coordination.outcome import Outcome, Result, Token, answer
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation, ResourceType
from headrace.wire.primitives import NO_ERROR, TopicName, error, i32, respond


def share_group_describe(
    services: Services, request: ShareGroupDescribeRequest, context: RequestContext
) -> ShareGroupDescribeResponse | Coroutine[None, None, ShareGroupDescribeResponse]:
    """Describe each group, or return its error."""
    caller = context.caller
    asked = request.include_authorized_operations

    def finish(results: list[Result[ShareGroup]]) -> ShareGroupDescribeResponse:
        return respond(
            partial(
                ShareGroupDescribeResponse,
                groups=tuple(
                    _describe(one, services.metadata.image, caller, asked)
                    if isinstance(one, ShareGroup)
                    else _refused(group_id, one)
                    for group_id, one in zip(request.group_ids, results, strict=True)
                ),
            )
        )

    return services.groups.run_each(
        [(group_id, partial(_find, caller, group_id)) for group_id in request.group_ids], finish
    )


def _find(
    caller: Caller, group_id: str, groups: Groups, token: Token[ShareGroup], _now_ms: int
) -> Outcome:
    if not caller.may(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        return answer(token, denied(ResourceType.GROUP))
    if not group_id:
        return answer(token, KafkaError(ErrorCode.INVALID_GROUP_ID))
    return answer(token, share.find(groups, group_id))


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


def _describe(group: ShareGroup, image: Image, caller: Caller, asked: bool) -> DescribedGroup:
    names = {name for metadata in group.members.values() for name in metadata.topics}
    if not all(may_with_topic(caller, AclOperation.DESCRIBE, name) for name in names):
        why = "the group uses topics that this client may not describe"
        refused = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, why)
        return _refused(GroupId(group.group_id), refused)
    allowed = operations.on_group(caller, group.group_id) if asked else operations.NOT_ASKED
    return DescribedGroup(
        error_code=NO_ERROR,
        error_message=None,
        group_id=GroupId(group.group_id),
        group_state=group.state,
        group_epoch=i32(group.epoch),
        assignment_epoch=i32(group.target_epoch),
        assignor_name=ASSIGNOR,
        members=tuple(_member(group, member_id, image) for member_id in group.members),
        authorized_operations=i32(allowed),
    )


def _member(group: ShareGroup, member_id: str, image: Image) -> Member:
    metadata, current = group.members[member_id], group.current(member_id)
    return Member(
        member_id=member_id,
        rack_id=metadata.rack_id,
        member_epoch=i32(current.epoch),
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=tuple(map(TopicName, metadata.topics)),
        assignment=_assignment(current.assigned, image),
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
