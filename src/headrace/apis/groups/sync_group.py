"""SyncGroup (14), versions 0-5.

Members of a classic group fetch their assignments. They wait until the leader's own request has
delivered all assignments and the generation is written.

v3 static members; v4 flexible; v5 protocol type and name, checked against the group's.
"""

from collections.abc import Coroutine
from functools import partial

from kio.schema.sync_group.v5.request import SyncGroupRequest
from kio.schema.sync_group.v5.response import SyncGroupResponse

from headrace.apis.context import RequestContext, Services
from headrace.coordination.groups.group import Sync, Synced
from headrace.errors import ErrorCode
from headrace.wire.primitives import error, respond

PROTOCOL_REQUIRED_FROM = 5


def sync_group(
    services: Services, request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Coroutine[None, None, SyncGroupResponse]:
    """Return the member's assignment when the leader has sent it."""
    if context.version >= PROTOCOL_REQUIRED_FROM and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return _answer(Synced(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    sync = Sync(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=tuple((one.member_id, one.assignment) for one in request.assignments),
    )
    return services.groups.run(
        sync.group_id, lambda groups, token, now_ms: groups.sync(sync, token, now_ms), _answer
    )


def _answer(synced: Synced) -> SyncGroupResponse:
    return respond(
        partial(
            SyncGroupResponse,
            error_code=error(synced.error),
            protocol_type=synced.protocol_type,
            protocol_name=synced.protocol_name,
            assignment=synced.assignment,
        )
    )
