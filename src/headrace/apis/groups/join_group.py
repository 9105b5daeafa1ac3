"""JoinGroup (11), versions 0-9.

A member of a classic group joins the next generation. The response is sent when all members have
joined; the leader's response lists all members, so that it can compute the assignment.

v0 has no rebalance timeout; the session timeout is used instead; v4 a member without an id gets one
with MEMBER_ID_REQUIRED and sends the request again; v5 static members; v6 flexible; v7 protocol
type; v8 the reason; v9 tells the leader whether to skip the assignment.
"""

import uuid
from collections.abc import Coroutine
from functools import partial

from kio.schema.join_group.v9.request import JoinGroupRequest
from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember

from headrace.apis.context import RequestContext, Services
from headrace.coordination.groups.group import Join, Joined
from headrace.wire.primitives import error, i32, respond, to_milliseconds

MEMBER_ID_REQUIRED_FROM = 4
SKIPPED_ASSIGNMENT_FROM = 9
ANY_REBALANCE_TIMEOUT_FROM = 1


def join_group(
    services: Services, request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse | Coroutine[None, None, JoinGroupResponse]:
    """Join the group, and wait for the other members."""
    session_ms = to_milliseconds(request.session_timeout)
    rebalance_ms = to_milliseconds(request.rebalance_timeout)
    join = Join(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=context.client_id,
        client_host=context.caller.host,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms
        if context.version >= ANY_REBALANCE_TIMEOUT_FROM
        else session_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((one.name, one.metadata) for one in request.protocols),
        reason=request.reason or "",
        requires_member_id=context.version >= MEMBER_ID_REQUIRED_FROM,
        can_skip_assignment=context.version >= SKIPPED_ASSIGNMENT_FROM,
    )
    prefix = join.instance_id if join.instance_id is not None else join.client_id
    new_member_id = f"{prefix}-{uuid.uuid4()}"
    return services.groups.run(
        join.group_id,
        lambda groups, token, now_ms: groups.join(join, token, new_member_id, now_ms),
        _answer,
    )


def _answer(joined: Joined) -> JoinGroupResponse:
    return respond(
        partial(
            JoinGroupResponse,
            error_code=error(joined.error),
            generation_id=i32(joined.generation),
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            leader=joined.leader,
            skip_assignment=joined.skip_assignment,
            member_id=joined.member_id,
            members=tuple(
                JoinGroupResponseMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    metadata=member.metadata,
                )
                for member in joined.members
            ),
        )
    )
