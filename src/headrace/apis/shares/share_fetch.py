"""ShareFetch (78), versions 1-2.

Acquires records of the partitions in the member's share session, and returns the batches that have
them with the ranges of acquired offsets. Waits until there are records, a partition has an error,
or `max_wait_ms` have passed. Acknowledgements in the request are stored first. With the final epoch
the session ends, and nothing is fetched.

v2 an exact limit of records (KIP-1206) and renewed locks (KIP-1222); a request that renews locks
fetches nothing.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from uuid import UUID

from kio.schema.share_fetch.v2.request import ShareFetchRequest
from kio.schema.share_fetch.v2.response import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)

from headrace.apis.context import RequestContext, Services
from headrace.apis.shares.acknowledgements import acknowledge, for_client, may_read
from headrace.apis.shares.leaders import addresses, leader_of
from headrace.coordination.shares.delivery import AcquireMode
from headrace.coordination.shares.share_partitions import (
    DeliveredRecords,
    LedSharePartition,
    ShareFetchLimits,
)
from headrace.coordination.shares.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    ShareSession,
    ShareSessionKey,
)
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.primitives import (
    NO_ERROR,
    BrokerId,
    error,
    i16,
    i32,
    i64,
    milliseconds,
    records,
    respond,
    to_milliseconds,
)

_Where = tuple[UUID, int]
_Fetched = dict[_Where, DeliveredRecords | KafkaError]


async def share_fetch(
    services: Services, request: ShareFetchRequest, context: RequestContext
) -> ShareFetchResponse:
    """Store the acknowledgements, then acquire records."""
    shares = services.shares
    if not request.group_id or not request.member_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId and MemberId must be set.")
    if int(request.share_acquire_mode) not in (*map(int, AcquireMode),):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unknown acquire mode {request.share_acquire_mode}."
        )
    member = ShareSessionKey(request.group_id, request.member_id)
    rows = {
        (topic.topic_id, int(row.partition_index)): row.acknowledgement_batches
        for topic in request.topics
        if topic.topic_id is not None
        for row in topic.partitions
        if row.acknowledgement_batches
    }
    session = _session(services, request, context, member, bool(rows))
    acknowledged = await acknowledge(services, context.caller, member, rows) if rows else {}
    fetched: _Fetched = {}
    if session is None:
        shares.sessions.close(member)
        shares.partitions.release(*member)
    elif request.max_records > 0 and not request.is_renew_ack:
        max_wait_ms = 0 if rows else to_milliseconds(request.max_wait)
        fetched = await _fetch(services, request, context, session, max_wait_ms)
    return _respond(services, context, member, acknowledged, fetched)


def _session(
    services: Services,
    request: ShareFetchRequest,
    context: RequestContext,
    member: ShareSessionKey,
    acknowledges: bool,
) -> ShareSession | None:
    """The session with the partitions of the request; None if it ends with this request."""
    sessions, epoch, caller = services.shares.sessions, request.share_session_epoch, context.caller
    if epoch == FINAL_EPOCH:
        sessions.check(member)
        return None
    if epoch == INITIAL_EPOCH:
        if acknowledges:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "A new share session has nothing to acknowledge."
            )
        session = sessions.open(member, caller)
        caller.on_close = sessions.disconnected
    else:
        session = sessions.next(member, epoch)
    unused = session.update(
        (
            (topic.topic_id, int(row.partition_index))
            for topic in request.topics
            if topic.topic_id is not None
            for row in topic.partitions
        ),
        (
            (topic.topic_id, int(index))
            for topic in request.forgotten_topics_data
            if topic.topic_id is not None
            for index in topic.partitions
        ),
    )
    for led in unused:
        services.shares.partitions.drop_if_unused(led)
    return session


# ------------------------------------------------------------------------------------- fetching


async def _fetch(
    services: Services,
    request: ShareFetchRequest,
    context: RequestContext,
    session: ShareSession,
    max_wait_ms: int,
) -> _Fetched:
    """Acquire records; wait for them if there are none."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + max_wait_ms / 1000
    idle: list[LedSharePartition] = []
    try:
        return await _fetch_until(services, request, context, session, deadline, idle)
    finally:
        for led in idle:
            led.read_again()  # there may be more, for the next member


async def _fetch_until(
    services: Services,
    request: ShareFetchRequest,
    context: RequestContext,
    session: ShareSession,
    deadline: float,
    idle: list[LedSharePartition],
) -> _Fetched:
    """The same until a deadline; `idle` becomes the share partitions that it waited for."""
    loop = asyncio.get_running_loop()
    while True:
        found, empty = _try(services, request, context, session)
        if found or not session.partitions or loop.time() >= deadline:
            return found
        idle[:] = empty
        await _wait(idle, deadline)
        failed = {
            (led.key.topic_id, led.key.partition): _unreadable(led.error)
            for led in idle
            if led.error is not None
        }
        if failed:
            return {**failed}


def _unreadable(error: KafkaError) -> KafkaError:
    """The error for a share partition whose state cannot be read: the client tries again."""
    if error.code is ErrorCode.FENCED_LEADER_EPOCH:
        return for_client(error)
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error.message)


def _try(
    services: Services, request: ShareFetchRequest, context: RequestContext, session: ShareSession
) -> tuple[_Fetched, list[LedSharePartition]]:
    """What can be acquired now, and the share partitions that have nothing now."""
    partitions = services.shares.partitions
    found: _Fetched = {}
    idle: list[LedSharePartition] = []
    left_records, left_bytes = int(request.max_records), int(request.max_bytes)
    for key in session.in_turn():
        where = (key.topic_id, key.partition)
        try:
            if not may_read(services, context.caller, key.topic_id):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            led = partitions.find(key)
            session.use(led)
            if left_records <= 0 or left_bytes <= 0:
                continue
            limits = ShareFetchLimits(
                left_records, left_bytes, max(int(request.batch_size), 1),
                AcquireMode(request.share_acquire_mode),
            )  # fmt: skip
            delivered = partitions.fetch(led, session.key.member_id, limits)
        except KafkaError as refused:
            found[where] = for_client(refused)
            continue
        if delivered is None:
            idle.append(led)
            continue
        found[where] = delivered
        left_records -= delivered.record_count
        left_bytes -= delivered.size_bytes
    return found, idle


async def _wait(idle: Iterable[LedSharePartition], deadline: float) -> None:
    """Wait until one of the share partitions changes, or until the deadline."""
    loop = asyncio.get_running_loop()
    changed: asyncio.Future[None] = loop.create_future()
    timer = loop.call_at(deadline, _finish, changed)
    waiting = list(idle)
    for led in waiting:
        led.wait(changed)
    try:
        await changed
    finally:
        timer.cancel()
        for led in waiting:
            led.stop_waiting(changed)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


# ------------------------------------------------------------------------------------- response


def _respond(
    services: Services,
    context: RequestContext,
    member: ShareSessionKey,
    acknowledged: dict[_Where, KafkaError | None],
    fetched: _Fetched,
) -> ShareFetchResponse:
    topics: dict[UUID, list[PartitionData]] = defaultdict(list)
    moved: list[int] = []
    for where in {**acknowledged, **fetched}:
        result = fetched.get(where)
        delivered = result if isinstance(result, DeliveredRecords) else None
        failed = result if isinstance(result, KafkaError) else None
        refused = acknowledged.get(where)
        leader, leader_epoch = -1, -1
        if ErrorCode.NOT_LEADER_OR_FOLLOWER in (
            failed and failed.code, refused and refused.code,
        ):  # fmt: skip
            leader, leader_epoch = leader_of(services, *where)
            moved.append(leader)
        topics[where[0]].append(
            PartitionData(
                partition_index=i32(where[1]),
                error_code=NO_ERROR if failed is None else error(failed.code),
                error_message=None if failed is None else failed.message,
                acknowledge_error_code=i16(0 if refused is None else refused.code),
                acknowledge_error_message=None if refused is None else refused.message,
                current_leader=LeaderIdAndEpoch(
                    leader_id=i32(leader), leader_epoch=i32(leader_epoch)
                ),
                records=records(b"" if delivered is None else b"".join(delivered.pieces)),
                acquired_records=()
                if delivered is None
                else tuple(
                    AcquiredRecords(
                        first_offset=i64(one.first),
                        last_offset=i64(one.last),
                        delivery_count=i16(one.deliveries),
                    )
                    for one in delivered.acquired
                ),
            )
        )
    return respond(
        partial(
            ShareFetchResponse,
            error_code=NO_ERROR,
            error_message=None,
            acquisition_lock_timeout=milliseconds(
                services.shares.partitions.settings_of(member.group_id).lock_ms
            ),
            responses=tuple(
                ShareFetchableTopicResponse(topic_id=topic_id, partitions=tuple(partitions))
                for topic_id, partitions in topics.items()
            ),
            node_endpoints=tuple(
                NodeEndpoint(
                    node_id=BrokerId(one.node_id), host=one.host, port=i32(one.port), rack=one.rack
                )
                for one in addresses(services, context.caller, moved)
            ),
        )
    )
