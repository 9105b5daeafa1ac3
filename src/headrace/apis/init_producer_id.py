"""InitProducerId (22), versions 0-5.

An idempotent producer gets an id that nobody has had before, with epoch 0. A producer that asks
again because a sequence broke gets another new id: the old one needs no fence without transactions.

v2 flexible; v3 the producer's present id and epoch (KIP-360); v4 tells a fenced producer from an
old epoch; v5 for KIP-890. Not done: transactions. A transactional id is answered as a broker does
whose coordinator is not available.
"""

from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse

from headrace.apis.context import Caller, Services
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.primitives import NO_ERROR, NO_THROTTLE, ProducerId, error, i16

NONE = -1


def init_producer_id(
    services: Services, request: InitProducerIdRequest, _caller: Caller
) -> InitProducerIdResponse:
    """A new producer id."""
    refused = _refusal(request)
    if refused is not None:
        return InitProducerIdResponse(
            throttle_time=NO_THROTTLE, error_code=error(refused), producer_epoch=i16(NONE)
        )
    try:
        producer_id = services.metadata.next_producer_id()
    except KafkaError as failure:
        return InitProducerIdResponse(
            throttle_time=NO_THROTTLE, error_code=error(failure.code), producer_epoch=i16(NONE)
        )
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE,
        error_code=NO_ERROR,
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(0),
    )


def _refusal(request: InitProducerIdRequest) -> ErrorCode | None:
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return ErrorCode.INVALID_REQUEST
    if request.transactional_id is None:
        return None
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.COORDINATOR_NOT_AVAILABLE
