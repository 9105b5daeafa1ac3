"""EndTxn (26), versions 0-5.

Commits or aborts a transaction. The response is sent when the decision is in the log. The markers
are written after that; until then the next transaction gets CONCURRENT_TRANSACTIONS.

v0, v1 INVALID_PRODUCER_EPOCH for a fenced producer; v3 flexible; v4 TRANSACTION_ABORTABLE; v5 a new
epoch, or a new id, at each end (KIP-890), so that late writes are refused.
"""

from collections.abc import Coroutine
from functools import partial

from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.end_txn.v5.response import EndTxnResponse

from headrace.apis.context import RequestContext, Services
from headrace.apis.transactions.transaction_errors import for_old_producers
from headrace.coordination.outcome import Outcome, Result, Token
from headrace.coordination.transactions import BUMPS_AT_END, Identity, Transactions
from headrace.errors import KafkaError
from headrace.wire.primitives import NO_ERROR, ProducerId, error, i16, respond

BUMPS_FROM = 5
FENCED_FROM = 2


def end_txn(
    services: Services, request: EndTxnRequest, context: RequestContext
) -> EndTxnResponse | Coroutine[None, None, EndTxnResponse]:
    """Commit or abort."""
    who = Identity(request.producer_id, request.producer_epoch)
    transaction_version = BUMPS_AT_END if context.version >= BUMPS_FROM else 0

    def end(state: Transactions, token: Token[Identity], _now_ms: int) -> Outcome:
        return state.end(
            request.transactional_id, who, request.committed, transaction_version, token
        )

    def finish(results: list[Result[Identity]]) -> EndTxnResponse:
        (result,) = results
        if isinstance(result, KafkaError):
            code = for_old_producers(result.code, context.version, FENCED_FROM)
            return respond(partial(EndTxnResponse, error_code=error(code)))
        return respond(
            partial(
                EndTxnResponse,
                error_code=NO_ERROR,
                producer_id=ProducerId(result.producer_id),
                producer_epoch=i16(result.epoch),
            )
        )

    return services.transactions.run_each([(request.transactional_id, end)], finish)
