"""DescribeGroups (15), versions 0-6.

State, protocol and members of classic groups; the metadata and assignments of members are shown
while the group is stable. A group that does not exist, or is of another type, has the state Dead,
and from v6 on an error (69) with a message.

v3 authorised operations; v4 static members; v5 flexible; v6 error messages.
"""

from collections.abc import Coroutine
from functools import partial

from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.describe_groups.v6.response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)

from headrace.apis import operations
from headrace.apis.context import Caller, RequestContext, Services
from headrace.apis.rights import denied
from headrace.coordination.groups.classic import ClassicGroupDescription
from headrace.coordination.groups.registry import Groups
from headrace.coordination.outcome import Outcome, Result, Token, answer
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation, ResourceType
from headrace.wire.primitives import NO_ERROR, GroupId, error, i32, respond

DEAD = "Dead"
NOT_FOUND_FROM = 6


def describe_groups(
    services: Services, request: DescribeGroupsRequest, context: RequestContext
) -> DescribeGroupsResponse | Coroutine[None, None, DescribeGroupsResponse]:
    """Describe each group, or return its error."""
    caller = context.caller

    def allowed(group_id: str) -> int:
        asked = request.include_authorized_operations
        return operations.on_group(caller, group_id) if asked else operations.NOT_ASKED

    def answer_all(results: list[Result[ClassicGroupDescription]]) -> DescribeGroupsResponse:
        groups = tuple(
            _refuse(group_id, result, context.version)
            if isinstance(result, KafkaError)
            else _answer(group_id, result, allowed(group_id))
            for group_id, result in zip(request.groups, results, strict=True)
        )
        return respond(partial(DescribeGroupsResponse, groups=groups))

    return services.groups.run_each(
        [(group_id, partial(_describe, caller, group_id)) for group_id in request.groups],
        answer_all,
    )


def _describe(
    caller: Caller,
    group_id: str,
    groups: Groups,
    token: Token[ClassicGroupDescription],
    _now_ms: int,
) -> Outcome:
    if not caller.may(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        return answer(token, denied(ResourceType.GROUP))
    return answer(token, groups.classic(group_id).describe())


def _answer(group_id: str, result: ClassicGroupDescription, allowed: int) -> DescribedGroup:
    return DescribedGroup(
        error_code=NO_ERROR,
        group_id=GroupId(group_id),
        group_state=result.state,
        protocol_type=result.protocol_type,
        protocol_data=result.protocol,
        members=tuple(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.subscription,
                member_assignment=member.assignment,
            )
            for member in result.members
        ),
        authorized_operations=i32(allowed),
    )


def _refuse(group_id: str, refusal: KafkaError, version: int) -> DescribedGroup:
    missing = refusal.code is ErrorCode.GROUP_ID_NOT_FOUND
    return DescribedGroup(
        error_code=NO_ERROR if missing and version < NOT_FOUND_FROM else error(refusal.code),
        error_message=refusal.message,
        group_id=GroupId(group_id),
        group_state=DEAD if missing else "",
        protocol_type="",
        protocol_data="",
        members=(),
        authorized_operations=i32(operations.NOT_ASKED),
    )
