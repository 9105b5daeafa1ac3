"""Heartbeat (12), versions 0-4.

Keeps the session of a member of a classic group; error 27 tells the member to join again. While
the group is being loaded every heartbeat succeeds, so that a restart does not expire members.

v3 static members; v4 flexible.
"""

from collections.abc import Coroutine
from functools import partial

from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse

from headrace.apis.context import RequestContext, Services
from headrace.coordination.groups.group import Heartbeat
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.primitives import error, respond


def heartbeat(
    services: Services, request: HeartbeatRequest, _context: RequestContext
) -> HeartbeatResponse | Coroutine[None, None, HeartbeatResponse]:
    """Renew the session of the member."""
    beat = Heartbeat(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
    )
    try:
        return services.groups.run(
            beat.group_id,
            lambda groups, token, now_ms: groups.heartbeat(beat, token, now_ms),
            _answer,
        )
    except KafkaError as refusal:
        if refusal.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            raise
        return _answer(ErrorCode.NONE)


def _answer(code: ErrorCode) -> HeartbeatResponse:
    return respond(partial(HeartbeatResponse, error_code=error(code)))
