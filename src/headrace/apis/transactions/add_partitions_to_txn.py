"""AddPartitionsToTxn (24), versions 0-5.

Producers whose Produce is older than v12 send it before they write to partitions in their
transaction. From v4 on brokers send it, for many transactions at once, or to verify that partitions
are in a transaction.

v0, v1 INVALID_PRODUCER_EPOCH for a fenced producer; v3 flexible; v4 many transactions and
`verify_only`; v5 TRANSACTION_ABORTABLE.
"""

from collections.abc import Coroutine
from functools import partial
from typing import NamedTuple

from kio.schema.add_partitions_to_txn.v5.request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
)
from kio.schema.add_partitions_to_txn.v5.response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

from headrace.apis.context import RequestContext, Services
from headrace.apis.rights import denied, may_with_topic, need_cluster
from headrace.apis.transactions.transaction_errors import for_old_producers
from headrace.coordination.outcome import Outcome, Result, Token, answer
from headrace.coordination.runtime import Operation
from headrace.coordination.transactions import BUMPS_AT_END, Identity, Transactions
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation, ResourceType
from headrace.types import TopicPartition
from headrace.wire.primitives import NO_ERROR, error, respond
from headrace.wire.steps import Steps, finish

FOR_BROKERS_FROM = 4
ABORTABLE_FROM = 5
FENCED_FROM = 2

_MANY_PARTITIONS = 512
_STRIDE = 256
"""Partitions that are processed between two yields."""

_Refused = frozenset[TopicPartition]
"""Partitions that are not in the transaction."""


class _Named(NamedTuple):
    """The partitions that a request names for one transaction."""

    partitions: frozenset[TopicPartition]
    """Those that exist."""
    unknown: dict[str, set[int]]
    """The others. There may be very many; freeing plain numbers takes little time."""
    denied: set[str]
    """Topics that the client may not write to."""


def add_partitions_to_txn(
    services: Services, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse | Coroutine[None, None, AddPartitionsToTxnResponse]:
    """Add the partitions of each transaction; for one transaction all or none."""
    if context.version >= FOR_BROKERS_FROM:
        need_cluster(context.caller, AclOperation.CLUSTER_ACTION)
    if _names_many(request):
        return _add_many(services, request, context)
    named = [finish(_named(services, one, context)) for one in request.transactions]

    def combine(results: list[Result[_Refused]]) -> AddPartitionsToTxnResponse:
        return finish(_response(request, named, results, context.version))

    operations = _operations(request, named, context)
    return services.transactions.run_each(operations, combine)


def _names_many(request: AddPartitionsToTxnRequest) -> bool:
    """Whether one transaction has so many partitions that they are handled in slices."""
    return any(
        sum(len(topic.partitions) for topic in one.topics) > _MANY_PARTITIONS
        for one in request.transactions
    )


async def _add_many(
    services: Services, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    """The same for many partitions, in slices before and after the operations."""
    slices = services.slices
    named = [await slices.finish(_named(services, one, context)) for one in request.transactions]
    operations = _operations(request, named, context)
    results = services.transactions.run_each(operations, list)
    if isinstance(results, Coroutine):
        results = await results
    return await slices.finish(_response(request, named, results, context.version))


def _named(
    services: Services, asked: AddPartitionsToTxnTransaction, context: RequestContext
) -> Steps[_Named]:
    topics = services.metadata.image.topics
    partitions: set[TopicPartition] = set()
    unknown: dict[str, set[int]] = {}
    forbidden: set[str] = set()
    for topic in asked.topics:
        if context.version < FOR_BROKERS_FROM and not may_with_topic(
            context.caller, AclOperation.WRITE, topic.name
        ):
            forbidden.add(str(topic.name))
        found = topics.get(topic.name)
        known = range(0 if found is None else len(found.partitions))
        for start in range(0, len(topic.partitions), _STRIDE):
            for index in topic.partitions[start : start + _STRIDE]:
                if index in known:
                    partitions.add(TopicPartition(topic.name, index))
                else:
                    unknown.setdefault(topic.name, set()).add(index)
            yield
    return _Named(frozenset(partitions), unknown, forbidden)


def _operations(
    request: AddPartitionsToTxnRequest, named: list[_Named], context: RequestContext
) -> list[tuple[str, Operation[Transactions, _Refused]]]:
    return [
        (one.transactional_id, partial(_operation, one, them, context))
        for one, them in zip(request.transactions, named, strict=True)
    ]


def _operation(
    asked: AddPartitionsToTxnTransaction,
    named: _Named,
    context: RequestContext,
    state: Transactions,
    token: Token[_Refused],
    _now_ms: int,
) -> Outcome:
    """Replies with the existing partitions that are not in the transaction, if asked for them."""
    kind = ResourceType.TRANSACTIONAL_ID
    if context.version < FOR_BROKERS_FROM and not context.caller.may(
        AclOperation.WRITE, kind, asked.transactional_id
    ):
        return answer(token, denied(kind))
    who = Identity(asked.producer_id, asked.producer_epoch)
    if asked.verify_only:
        return answer(token, state.missing(asked.transactional_id, who, named.partitions))
    if named.unknown or named.denied:
        return answer(token, frozenset())
    transaction_version = BUMPS_AT_END if context.version >= FOR_BROKERS_FROM else 0
    return state.add(asked.transactional_id, who, named.partitions, transaction_version, token)


def _response(
    request: AddPartitionsToTxnRequest,
    named: list[_Named],
    results: list[Result[_Refused]],
    version: int,
) -> Steps[AddPartitionsToTxnResponse]:
    answers = []
    for one, them, result in zip(request.transactions, named, results, strict=True):
        answers.append((yield from _answer(one, them, result, version)))
    return respond(
        partial(
            AddPartitionsToTxnResponse, error_code=NO_ERROR, results_by_transaction=tuple(answers)
        )
    )


def _answer(
    asked: AddPartitionsToTxnTransaction, named: _Named, result: Result[_Refused], version: int
) -> Steps[AddPartitionsToTxnResult]:
    refused: _Refused = frozenset()
    unknown: dict[str, set[int]] = {}
    code = others = ErrorCode.NONE
    if isinstance(result, KafkaError):
        others = for_old_producers(result.code, version, FENCED_FROM)
    elif result or named.unknown or named.denied:
        refused, unknown = result, named.unknown
        if not asked.verify_only:
            code, others = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
        elif version >= ABORTABLE_FROM:
            code = ErrorCode.TRANSACTION_ABORTABLE
        else:
            code = ErrorCode.INVALID_TXN_STATE
    topics = []
    for topic in asked.topics:
        rows: list[AddPartitionsToTxnPartitionResult] = []
        missing = unknown.get(topic.name, set())
        forbidden = others is not ErrorCode.NONE and topic.name in named.denied
        for start in range(0, len(topic.partitions), _STRIDE):
            rows += (
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=error(
                        ErrorCode.TOPIC_AUTHORIZATION_FAILED
                        if forbidden and not isinstance(result, KafkaError)
                        else code
                        if index in missing or TopicPartition(topic.name, index) in refused
                        else others
                    ),
                )
                for index in topic.partitions[start : start + _STRIDE]
            )
            yield
        topics.append(
            AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=tuple(rows))
        )
    return AddPartitionsToTxnResult(
        transactional_id=asked.transactional_id, topic_results=tuple(topics)
    )
