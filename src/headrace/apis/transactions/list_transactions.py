"""ListTransactions (66), versions 0-2.

Lists the transactional ids that this broker coordinates. While some of them are being loaded from
the log the response is COORDINATOR_LOAD_IN_PROGRESS, because the list would be incomplete.

v1 a filter by duration; v2 a filter by an expression for the id.
"""

from functools import partial

from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.list_transactions.v2.response import ListTransactionsResponse, TransactionState

from headrace.apis.context import RequestContext, Services
from headrace.coordination import transaction_records
from headrace.expressions.expression import Expression
from headrace.security.acls import AclOperation, ResourceType
from headrace.wire.primitives import NO_ERROR, ProducerId, TransactionalId, respond
from headrace.wire.steps import Steps

_STATES = frozenset(state.title for state in transaction_records.TransactionState)


def list_transactions(
    services: Services, request: ListTransactionsRequest, context: RequestContext
) -> Steps[ListTransactionsResponse]:
    """All ids that pass every filter."""
    unknown = tuple(name for name in request.state_filters if name not in _STATES)
    states = _STATES.intersection(request.state_filters)
    pattern = request.transactional_id_pattern
    expression = Expression(pattern) if pattern else None
    producer_ids = frozenset(request.producer_id_filters)
    found = []
    if states or not unknown:
        now_ms = services.clock.now_ms()
        for shard in services.transactions.shards.states():
            shard.wall.ms = now_ms
            listed = shard.listed(states, producer_ids, request.duration_filter)
            for name, one in listed:
                matches = expression is None or expression.matches(name)
                kind = ResourceType.TRANSACTIONAL_ID
                if matches and context.caller.may(AclOperation.DESCRIBE, kind, name, silent=True):
                    found.append(
                        TransactionState(
                            transactional_id=TransactionalId(name),
                            producer_id=ProducerId(one.producer_id),
                            transaction_state=one.state.title,
                        )
                    )
                yield
    return respond(
        partial(
            ListTransactionsResponse,
            error_code=NO_ERROR,
            unknown_state_filters=unknown,
            transaction_states=tuple(found),
        )
    )
