"""AddPartitionsToTxn (24), versions 0-5.

A producer that speaks an older Produce than v12 says which partitions it is about to write to in
its transaction. From v4 on the request is for brokers: many transactions, or only the question
whether a partition is in one.

v0, v1 call a fenced producer INVALID_PRODUCER_EPOCH; v3 flexible; v4 many transactions and
`verify_only`; v5 TRANSACTION_ABORTABLE.
"""

from collections.abc import Coroutine
from functools import partial

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
from headrace.apis.transactions.transaction_errors import for_old_producers
from headrace.coordination.outcome import Outcome, Result, Token, answer
from headrace.coordination.transactions import BUMPS_AT_END, Identity, Transactions
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition
from headrace.wire.primitives import NO_ERROR, NO_THROTTLE, error

FOR_BROKERS_FROM = 4
ABORTABLE_FROM = 5
FENCED_FROM = 2

_Refused = frozenset[TopicPartition]
"""Partitions that do not exist, or that are not in the transaction."""


def add_partitions_to_txn(
    services: Services, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse | Coroutine[None, None, AddPartitionsToTxnResponse]:
    """Add the partitions of each transaction, all or none of it."""

    def finish(results: list[Result[_Refused]]) -> AddPartitionsToTxnResponse:
        answers = tuple(
            _answer(one, result, context.version)
            for one, result in zip(request.transactions, results, strict=True)
        )
        return AddPartitionsToTxnResponse(
            throttle_time=NO_THROTTLE, error_code=NO_ERROR, results_by_transaction=answers
        )

    return services.transactions.run_each(
        [
            (one.transactional_id, partial(_operation, services, one, context.version))
            for one in request.transactions
        ],
        finish,
    )


def _operation(
    services: Services,
    asked: AddPartitionsToTxnTransaction,
    version: int,
    state: Transactions,
    token: Token[_Refused],
    _now_ms: int,
) -> Outcome:
    """Replies with the partitions that there are no more, or that are not in the transaction."""
    partitions = _partitions(asked)
    who = Identity(asked.producer_id, asked.producer_epoch)
    if asked.verify_only:
        return answer(token, state.missing(asked.transactional_id, who, partitions))
    topics = services.metadata.image.topics
    unknown = frozenset(
        one
        for one in partitions
        if one.topic not in topics or not 0 <= one.partition < len(topics[one.topic].partitions)
    )
    if unknown:
        return answer(token, unknown)
    spoken = BUMPS_AT_END if version >= FOR_BROKERS_FROM else 0
    return state.add(asked.transactional_id, who, partitions, spoken, token)


def _partitions(asked: AddPartitionsToTxnTransaction) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partitions
    )


def _answer(
    asked: AddPartitionsToTxnTransaction, result: Result[_Refused], version: int
) -> AddPartitionsToTxnResult:
    refused: _Refused = frozenset()
    code = others = ErrorCode.NONE
    if isinstance(result, KafkaError):
        others = for_old_producers(result.code, version, FENCED_FROM)
    elif result:
        refused = result
        if not asked.verify_only:
            code, others = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
        elif version >= ABORTABLE_FROM:
            code = ErrorCode.TRANSACTION_ABORTABLE
        else:
            code = ErrorCode.INVALID_TXN_STATE
    return AddPartitionsToTxnResult(
        transactional_id=asked.transactional_id,
        topic_results=tuple(
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index,
                        partition_error_code=error(
                            code if TopicPartition(topic.name, index) in refused else others
                        ),
                    )
                    for index in topic.partitions
                ),
            )
            for topic in asked.topics
        ),
    )
