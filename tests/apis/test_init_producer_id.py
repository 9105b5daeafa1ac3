"""InitProducerId allocates producer ids."""

from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse
from kio.schema.types import TransactionalId

from headrace.apis.transactions.init_producer_id import init_producer_id
from headrace.errors import ErrorCode
from headrace.wire.primitives import ProducerId, i16, milliseconds
from tests.apis.one_broker import OneBroker

NONE = ErrorCode.NONE


def producer(
    broker: OneBroker, transactional_id: str | None = None, producer_id: int = -1, epoch: int = -1
) -> tuple[int, int, int]:
    request = InitProducerIdRequest(
        transactional_id=None if transactional_id is None else TransactionalId(transactional_id),
        transaction_timeout=milliseconds(60_000),
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(epoch),
    )
    answer = broker.ask(init_producer_id, request)
    assert isinstance(answer, InitProducerIdResponse)
    return ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch


def test_each_idempotent_producer_gets_an_id_of_its_own(broker: OneBroker) -> None:
    answers = [producer(broker), producer(broker), producer(broker, producer_id=0, epoch=3)]
    assert [(code, epoch) for code, _, epoch in answers] == [(NONE, 0)] * 3
    assert len({producer_id for _, producer_id, _ in answers}) == 3


def test_a_transactional_id_keeps_its_producer_id_and_gets_a_new_epoch(broker: OneBroker) -> None:
    _, first, epoch = producer(broker, "x")
    assert epoch == 0
    assert producer(broker, "x") == (NONE, first, 1)
    assert producer(broker, "x", first, 1) == (NONE, first, 2)
    assert producer(broker, "x", first, 0) == (ErrorCode.PRODUCER_FENCED, -1, -1)


def test_a_request_that_contradicts_itself_is_refused(broker: OneBroker) -> None:
    assert producer(broker, "") == (ErrorCode.INVALID_REQUEST, -1, -1)
    assert producer(broker, producer_id=5) == (ErrorCode.INVALID_REQUEST, -1, -1)
