"""TxnOffsetCommit (28), versions 0-5.

Commits a group's offsets in a producer's transaction. They take effect when the transaction is
committed; until then an OffsetFetch of stable offsets gets UNSTABLE_OFFSET_COMMIT.

v0-2 do not name the member; v2 leader epochs; v3 flexible, members; v4 TRANSACTION_ABORTABLE; v5
adds the group to the transaction (KIP-890), while earlier versions need AddOffsetsToTxn before.
"""

from collections.abc import Coroutine
from functools import partial

from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest
from kio.schema.txn_offset_commit.v5.response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

from headrace.apis.context import RequestContext, Services
from headrace.apis.rights import may_with_topic
from headrace.apis.transactions.transaction_errors import when_committing
from headrace.cluster.image import OFFSETS_TOPIC
from headrace.coordination.groups.group import Committer
from headrace.coordination.groups.registry import Groups
from headrace.coordination.offsets import OffsetToCommit
from headrace.coordination.outcome import Outcome, Reply, Result, Token
from headrace.coordination.transactions import Identity
from headrace.errors import ErrorCode, KafkaError
from headrace.replication.partition import Partition
from headrace.replication.verification import VerificationGuard
from headrace.security.acls import AclOperation
from headrace.types import TopicPartition
from headrace.wire.primitives import error, respond

ADDS_FROM = 5
ABORTABLE_FROM = 4

_Refused = dict[TopicPartition, ErrorCode]
_NEWEST_OFFSET_COMMIT = 9


def txn_offset_commit(
    services: Services, request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse | Coroutine[None, None, TxnOffsetCommitResponse]:
    """Commit the offsets, if the group is in the transaction."""
    denied = _denied(request, context)
    if all(topic.name in denied for topic in request.topics):
        return _answer(request, _refused(request, denied), ErrorCode.NONE)
    try:
        guarded = _begin(services, request)
        missing = _enlist(services, request, context.version)
    except KafkaError as refusal:
        return _answer(request, _refused(request, denied), when_committing(refusal.code))
    if isinstance(missing, frozenset):
        return _commit(services, request, context, missing)
    return _commit_later(services, request, context, missing, guarded)


def _denied(request: TxnOffsetCommitRequest, context: RequestContext) -> set[str]:
    """The topics that the client may not read."""
    return {
        str(topic.name)
        for topic in request.topics
        if not may_with_topic(context.caller, AclOperation.READ, topic.name)
    }


def _refused(request: TxnOffsetCommitRequest, denied: set[str]) -> _Refused:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return {
        TopicPartition(topic.name, one.partition_index): code
        for topic in request.topics
        if topic.name in denied
        for one in topic.partitions
    }


def _begin(
    services: Services, request: TxnOffsetCommitRequest
) -> tuple[Partition, VerificationGuard]:
    """A guard that shows whether the transaction has ended since; taken before the verification."""
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    who, (where,) = _producer_and_partition(services, request)
    try:
        partition = services.replicas.partition(*where)
    except KafkaError as error:
        raise KafkaError(ErrorCode.NOT_COORDINATOR, error.message) from error
    return partition, partition.verifications.begin(who.producer_id, who.epoch)


def _enlist(
    services: Services, request: TxnOffsetCommitRequest, version: int
) -> frozenset[TopicPartition] | Coroutine[None, None, frozenset[TopicPartition]]:
    who, where = _producer_and_partition(services, request)
    return services.transactions.enlist(
        request.transactional_id, who, where, add=version >= ADDS_FROM
    )


def _producer_and_partition(
    services: Services, request: TxnOffsetCommitRequest
) -> tuple[Identity, frozenset[TopicPartition]]:
    where = TopicPartition(OFFSETS_TOPIC, services.groups.topic.partition_of(request.group_id))
    return Identity(request.producer_id, request.producer_epoch), frozenset({where})


async def _commit_later(
    services: Services,
    request: TxnOffsetCommitRequest,
    context: RequestContext,
    missing: Coroutine[None, None, frozenset[TopicPartition]],
    guarded: tuple[Partition, VerificationGuard],
) -> TxnOffsetCommitResponse:
    partition, verification = guarded
    try:
        lacking = await missing
        if not partition.verifications.is_verified(request.producer_id, verification):
            # The transaction ended meanwhile: a write after its marker would stay pending forever.
            _, lacking = _producer_and_partition(services, request)
        answer = _commit(services, request, context, lacking)
    except KafkaError as refusal:
        refused = _refused(request, _denied(request, context))
        return _answer(request, refused, when_committing(refusal.code))
    return answer if isinstance(answer, TxnOffsetCommitResponse) else await answer


def _commit(
    services: Services,
    request: TxnOffsetCommitRequest,
    context: RequestContext,
    missing: frozenset[TopicPartition],
) -> TxnOffsetCommitResponse | Coroutine[None, None, TxnOffsetCommitResponse]:
    if missing:
        abortable = context.version >= ABORTABLE_FROM
        code = ErrorCode.TRANSACTION_ABORTABLE if abortable else ErrorCode.INVALID_TXN_STATE
        return _answer(request, _refused(request, _denied(request, context)), code)
    wanted, refused = _judge(services, request, context)
    who = Committer(
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        _NEWEST_OFFSET_COMMIT,
    )
    producer = (request.producer_id, request.producer_epoch)

    def commit(groups: Groups, token: Token[None], now_ms: int) -> Outcome:
        outcome = groups.commit_in_transaction(request.group_id, who, wanted, producer, now_ms)
        outcome.replies.append(Reply(token, None))
        return outcome

    def finish(results: list[Result[None]]) -> TxnOffsetCommitResponse:
        (result,) = results
        code = result.code if isinstance(result, KafkaError) else ErrorCode.NONE
        return _answer(request, refused, when_committing(code))

    return services.groups.run_each([(request.group_id, commit)], finish)


def _judge(
    services: Services, request: TxnOffsetCommitRequest, context: RequestContext
) -> tuple[list[OffsetToCommit], _Refused]:
    known = services.metadata.image.topics
    max_bytes = services.settings.integer("offset.metadata.max.bytes")
    wanted: list[OffsetToCommit] = []
    refused: _Refused = {}
    for topic in request.topics:
        found = known.get(topic.name)
        count = len(found.partitions) if found is not None else 0
        allowed = may_with_topic(context.caller, AclOperation.READ, topic.name)
        for one in topic.partitions:
            where = TopicPartition(topic.name, one.partition_index)
            metadata = one.committed_metadata or ""
            if not allowed:
                refused[where] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not 0 <= one.partition_index < count:
                refused[where] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(metadata) > max_bytes:
                refused[where] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                wanted.append(
                    OffsetToCommit(
                        *where, one.committed_offset, one.committed_leader_epoch, metadata
                    )
                )
    return wanted, refused


def _answer(
    request: TxnOffsetCommitRequest, refused: _Refused, others: ErrorCode
) -> TxnOffsetCommitResponse:
    return respond(
        partial(
            TxnOffsetCommitResponse,
            topics=tuple(
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        TxnOffsetCommitResponsePartition(
                            partition_index=one.partition_index,
                            error_code=error(
                                refused.get(TopicPartition(topic.name, one.partition_index), others)
                            ),
                        )
                        for one in topic.partitions
                    ),
                )
                for topic in request.topics
            ),
        )
    )
