"""Every cold API in every version that is advertised: a client's bytes in, readable bytes out."""

import dataclasses
import datetime
import typing

import pytest

from headrace.apis.routes import ROUTES, SASL_AUTHENTICATE, SASL_HANDSHAKE, HandlerKind
from headrace.wire import codec
from tests.apis.one_broker import OneBroker, over_the_wire
from tests.support.messages import about_orders

COLD = [
    (route, version)
    for route in ROUTES.values()
    if route.kind is HandlerKind.COLD
    for version in range(route.min_version, route.max_version + 1)
]


@pytest.mark.parametrize(("route", "version"), COLD)
def test_a_request_is_answered_in_its_own_version(
    broker: OneBroker, route: typing.Any, version: int
) -> None:
    broker.create("orders", 2)
    handler = route.load()
    request = about_orders(codec.request_class(route.key, version))
    response = over_the_wire(broker, handler, route.key, version, request)
    if hasattr(response, "throttle_time"):
        assert response.throttle_time == datetime.timedelta(0)
    assert dataclasses.is_dataclass(response)
    if route in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
        return  # both are refused by one function
    hints = typing.get_type_hints(handler)
    assert hints["request" if "request" in hints else "_request"] is codec.request_class(route.key)
    returned = hints["return"]
    # A handler that may have to wait returns the response or a coroutine of it.
    assert codec.response_class(route.key) in (returned, *typing.get_args(returned))
