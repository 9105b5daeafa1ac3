"""AddOffsetsToTxn (25), versions 0-4.

Producers whose TxnOffsetCommit is older than v5 send it before they commit offsets of a group in
their transaction. It adds the group's partition of `__consumer_offsets` to the transaction.

v0, v1 INVALID_PRODUCER_EPOCH for a fenced producer; v3 flexible; v4 TRANSACTION_ABORTABLE.
"""

from collections.abc import Coroutine
from functools import partial

from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
from kio.schema.add_offsets_to_txn.v4.response import AddOffsetsToTxnResponse

from headrace.apis.context import RequestContext, Services
from headrace.apis.transactions.transaction_errors import for_old_producers
from headrace.cluster.image import OFFSETS_TOPIC
from headrace.coordination.outcome import Outcome, Result, Token
from headrace.coordination.transactions import Identity, Transactions
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition
from headrace.wire.primitives import error, respond

FENCED_FROM = 2


def add_offsets_to_txn(
    services: Services, request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse | Coroutine[None, None, AddOffsetsToTxnResponse]:
    """Add the group's partition of the offsets topic to the transaction."""

    def add(state: Transactions, token: Token[frozenset[TopicPartition]], _now_ms: int) -> Outcome:
        where = TopicPartition(OFFSETS_TOPIC, services.groups.topic.partition_of(request.group_id))
        who = Identity(request.producer_id, request.producer_epoch)
        return state.add(request.transactional_id, who, frozenset({where}), 0, token)

    def finish(results: list[Result[frozenset[TopicPartition]]]) -> AddOffsetsToTxnResponse:
        (result,) = results
        code = ErrorCode.NONE
        if isinstance(result, KafkaError):
            code = for_old_producers(result.code, context.version, FENCED_FROM)
        return respond(partial(AddOffsetsToTxnResponse, error_code=error(code)))

    return services.transactions.run_each([(request.transactional_id, add)], finish)
