"""Acknowledgements in ShareFetch and ShareAcknowledge: from the request to the stored state."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from headrace.apis.context import Caller, Services
from headrace.coordination.shares.delivery import Acknowledgement, ranges_of_types
from headrace.coordination.shares.share_records import SharePartitionKey
from headrace.coordination.shares.share_sessions import ShareSessionKey
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation, ResourceType

_CLIENT_ERRORS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INVALID_RECORD_STATE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.FENCED_STATE_EPOCH,
    }
)
"""Errors that clients of share groups know; all others are UNKNOWN_SERVER_ERROR."""


class AcknowledgementRow(Protocol):
    """An acknowledgement batch of either request."""

    @property
    def first_offset(self) -> int: ...

    @property
    def last_offset(self) -> int: ...

    @property
    def acknowledge_types(self) -> Sequence[int]: ...


def for_client(error: KafkaError) -> KafkaError:
    """The error as a client of share groups expects it."""
    if error.code in _CLIENT_ERRORS:
        return error
    if error.code is ErrorCode.FENCED_LEADER_EPOCH:
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message)
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{error.code.name}: {error.message}")


def may_read(services: Services, caller: Caller, topic_id: UUID) -> bool:
    """Whether the client may read the topic; a topic that does not exist is no secret."""
    if caller.permissions is None:
        return True
    name = services.shares.partitions.topic_name(topic_id)
    return name is None or caller.may(AclOperation.READ, ResourceType.TOPIC, name)


async def acknowledge(
    services: Services,
    caller: Caller,
    member: ShareSessionKey,
    rows: Mapping[tuple[UUID, int], Iterable[AcknowledgementRow]],
) -> dict[tuple[UUID, int], KafkaError | None]:
    """Process the acknowledgements of each partition; its error, if they were not stored."""
    results: dict[tuple[UUID, int], KafkaError | None] = {}
    waiting: dict[tuple[UUID, int], asyncio.Future[KafkaError | None]] = {}
    partitions = services.shares.partitions
    for (topic_id, index), batches in rows.items():
        results[topic_id, index] = None
        try:
            if not may_read(services, caller, topic_id):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            led = partitions.find(SharePartitionKey(member.group_id, topic_id, index))
            stored = partitions.acknowledge(led, member.member_id, _ranges(batches))
            if stored is not None:
                waiting[topic_id, index] = stored
        except KafkaError as error:
            results[topic_id, index] = for_client(error)
    for where, future in waiting.items():
        failed = await future
        results[where] = None if failed is None else for_client(failed)
    return results


def _ranges(batches: Iterable[AcknowledgementRow]) -> list[Acknowledgement]:
    found: list[Acknowledgement] = []
    for one in batches:
        try:
            found += ranges_of_types(one.first_offset, one.last_offset, one.acknowledge_types)
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
    return found
