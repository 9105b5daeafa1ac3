"""InitProducerId (22), versions 0-5.

An idempotent producer gets a new producer id with epoch 0. If it sends the request again after a
sequence error it gets another new id; without transactions the old id needs no fencing.

A transactional producer gets the id that belongs to its transactional id, with the next epoch:
the previous producer is fenced, and its open transaction is aborted first; until then the new one
gets CONCURRENT_TRANSACTIONS and retries.

v2 flexible; v3 the producer's present id and epoch (KIP-360); v4 PRODUCER_FENCED beside
INVALID_PRODUCER_EPOCH; v5 TRANSACTION_ABORTABLE.
"""

from collections.abc import Coroutine
from functools import partial

from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse

from headrace.apis.context import Caller, RequestContext, Services
from headrace.apis.rights import may_with_cluster
from headrace.apis.transactions.transaction_errors import for_old_producers
from headrace.coordination.outcome import Outcome, Result, Token
from headrace.coordination.transactions import Identity, Transactions
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation, ResourceType
from headrace.wire.primitives import NO_ERROR, ProducerId, error, i16, respond, to_milliseconds

NONE = -1
FENCED_FROM = 4


def init_producer_id(
    services: Services, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | Coroutine[None, None, InitProducerIdResponse]:
    """A producer id: a new one, or that of a transactional id."""
    name = request.transactional_id
    if (request.producer_id == NONE) != (request.producer_epoch == NONE) or name == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    if name is None:
        if not _may_be_idempotent(context.caller):
            return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        try:
            return _given(Identity(services.metadata.producer_ids.next(), 0))
        except KafkaError as failure:
            return _refused(failure.code)
    if not context.caller.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    given = Identity(request.producer_id, request.producer_epoch)
    timeout_ms = to_milliseconds(request.transaction_timeout)

    def init(state: Transactions, token: Token[Identity], _now_ms: int) -> Outcome:
        return state.init(name, timeout_ms, given, token)

    def finish(results: list[Result[Identity]]) -> InitProducerIdResponse:
        (result,) = results
        if isinstance(result, KafkaError):
            return _refused(for_old_producers(result.code, context.version, FENCED_FROM))
        return _given(result)

    return services.transactions.run_each([(name, init)], finish)


def _may_be_idempotent(caller: Caller) -> bool:
    """Whether the client may write idempotently, which needs the right to write to any topic."""
    return (
        caller.permissions is None
        or may_with_cluster(caller, AclOperation.IDEMPOTENT_WRITE, silent=True)
        or caller.permissions.allows_any(AclOperation.WRITE, ResourceType.TOPIC)
    )


def _given(identity: Identity) -> InitProducerIdResponse:
    return respond(
        partial(
            InitProducerIdResponse,
            error_code=NO_ERROR,
            producer_id=ProducerId(identity.producer_id),
            producer_epoch=i16(identity.epoch),
        )
    )


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return respond(
        partial(InitProducerIdResponse, error_code=error(code), producer_epoch=i16(NONE))
    )
