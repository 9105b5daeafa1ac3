"""A refused request gets its own response in its own version, with the error in it."""

from typing import Any

import pytest
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest

from headrace.errors import ErrorCode, KafkaError
from headrace.wire import codec
from headrace.wire.primitives import i8
from headrace.wire.refusal import refusal

REFUSED = KafkaError(ErrorCode.ILLEGAL_SASL_STATE)


@pytest.mark.parametrize("version", range(7))
def test_every_coordinator_key_gets_the_error(version: int) -> None:
    request = FindCoordinatorRequest(key_type=i8(0), coordinator_keys=("group",))
    response = refusal(10, request, REFUSED)
    encoded = codec.encode(10, version, response)
    decoded: Any = codec.decode_response(version, codec.response_class(10, version), encoded, 0)
    answers = decoded.coordinators if version >= 4 else (decoded,)
    assert [int(one.error_code) for one in answers] == [ErrorCode.ILLEGAL_SASL_STATE]
