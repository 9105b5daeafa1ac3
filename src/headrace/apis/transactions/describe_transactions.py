"""DescribeTransactions (65), version 0: the state of transactional ids."""

import datetime
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, cast

from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

from headrace.apis.context import Caller, RequestContext, Services
from headrace.apis.rights import denied, may_with_topic
from headrace.coordination.outcome import Outcome, Result, Token, answer
from headrace.coordination.transaction_records import NO_TIME, Transaction, by_topics
from headrace.coordination.transactions import Transactions
from headrace.security.acls import AclOperation, ResourceType
from headrace.wire.primitives import (
    NO_ERROR,
    ProducerId,
    TopicName,
    TransactionalId,
    error,
    i16,
    i32,
    milliseconds,
    respond,
)

if TYPE_CHECKING:
    from kio.static.primitive import TZAware


def describe_transactions(
    services: Services, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse | Coroutine[None, None, DescribeTransactionsResponse]:
    """Each id's state, or its error."""

    def finish(results: list[Result[Transaction]]) -> DescribeTransactionsResponse:
        return respond(
            partial(
                DescribeTransactionsResponse,
                transaction_states=tuple(
                    map(partial(_state, context.caller), request.transactional_ids, results)
                ),
            )
        )

    return services.transactions.run_each(
        [(name, partial(_describe, context.caller, name)) for name in request.transactional_ids],
        finish,
    )


def _describe(
    caller: Caller, name: str, state: Transactions, token: Token[Transaction], _now_ms: int
) -> Outcome:
    if not caller.may(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name):
        return answer(token, denied(ResourceType.TRANSACTIONAL_ID))
    return answer(token, state.described(name))


def _state(caller: Caller, name: str, result: Result[Transaction]) -> TransactionState:
    if isinstance(result, Transaction):
        return TransactionState(
            error_code=NO_ERROR,
            transactional_id=TransactionalId(name),
            transaction_state=result.state.title,
            transaction_timeout=milliseconds(result.timeout_ms),
            transaction_start_time=_time(result.start_ms),
            producer_id=ProducerId(result.producer_id),
            producer_epoch=i16(result.epoch),
            topics=tuple(
                TopicData(topic=TopicName(topic), partitions=tuple(map(i32, indexes)))
                for topic, indexes in by_topics(result.partitions).items()
                if may_with_topic(caller, AclOperation.DESCRIBE, topic, silent=True)
            ),
        )
    return TransactionState(
        error_code=error(result.code),
        transactional_id=TransactionalId(name),
        transaction_state="",
        transaction_timeout=milliseconds(0),
        transaction_start_time=_time(0),
        producer_id=ProducerId(0),
        producer_epoch=i16(0),
        topics=(),
    )


def _time(ms: int) -> "TZAware":
    # kio cannot express -1, which means that the transaction has not started.
    found = None if ms == NO_TIME else datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
    return cast("TZAware", found)
