"""LeaveGroup (13), versions 0-5.

Removes members; the group rebalances without waiting for their session timeouts. An
administrator may remove static members by their instance ids.

v0-2 one member, and its error is at the top of the response; v3 several; v4 flexible; v5 the
reason.
"""

from collections.abc import Coroutine
from functools import partial

from kio.schema.leave_group.v5.request import LeaveGroupRequest
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse

from headrace.apis.context import RequestContext, Services
from headrace.coordination.groups.group import Leaver, Left
from headrace.wire.primitives import NO_ERROR, error, respond


def leave_group(
    services: Services, request: LeaveGroupRequest, _context: RequestContext
) -> LeaveGroupResponse | Coroutine[None, None, LeaveGroupResponse]:
    """Remove the members from the group."""
    leaving = [
        Leaver(member.member_id, member.group_instance_id, member.reason or "")
        for member in request.members
    ]
    group_id = request.group_id
    return services.groups.run(
        group_id,
        lambda groups, token, now_ms: groups.leave(group_id, leaving, token, now_ms),
        _answer,
    )


def _answer(left: tuple[Left, ...]) -> LeaveGroupResponse:
    return respond(
        partial(
            LeaveGroupResponse,
            error_code=NO_ERROR,
            members=tuple(
                MemberResponse(
                    member_id=one.member_id,
                    group_instance_id=one.instance_id,
                    error_code=error(one.error),
                )
                for one in left
            ),
        )
    )
