"""Every cold API in every version that is advertised: a client's bytes in, readable bytes out."""

import dataclasses
import datetime
import typing
from importlib import import_module

import pytest

from headrace.apis.routes import ROUTES
from headrace.wire import codec, codec_fields
from tests.apis.one_broker import OneBroker, over_the_wire

COLD = [
    (route, version)
    for route in ROUTES.values()
    if route.handler is not None
    for version in range(route.min_version, route.max_version + 1)
]
FILLING: dict[str, object] = {
    "name": "orders",
    "topic": "orders",
    "topic_names": ("orders",),
    "resource_type": 2,
    "resource_name": "orders",
    "feature": "metadata.version",
    "transactional_id": "copier",
    "group_id": "readers",
    "producer_id": -1,
    "producer_epoch": -1,
    "partitions": (0,),
    "partition_indexes": (0,),
}


def _fill(of: type) -> object:
    """A request with one item in every list, about the topic `orders`."""
    values: dict[str, object] = {}
    for field in codec_fields.fields(of):
        if field.entity is not None:
            value: object = _fill(field.entity)
            values[field.name] = (value,) if field.array else None if field.nullable else value
        elif field.name in FILLING:
            values[field.name] = FILLING[field.name]
        elif field.array:
            values[field.name] = ()
        else:
            values[field.name] = field.default
    if "topic_id" in values and "name" in values:
        values["topic_id"] = None
    return of(**values)


@pytest.mark.parametrize(("route", "version"), COLD)
def test_a_request_is_answered_in_its_own_version(
    broker: OneBroker, route: typing.Any, version: int
) -> None:
    broker.create("orders", 2)
    module, function = route.handler.split(":")
    handler = getattr(import_module(f"headrace.apis.{module}"), function)
    request = _fill(codec.request_class(route.key, version))
    response = over_the_wire(broker, handler, route.key, version, request)
    if hasattr(response, "throttle_time"):
        assert response.throttle_time == datetime.timedelta(0)
    hints = typing.get_type_hints(handler)
    assert hints["request" if "request" in hints else "_request"] is codec.request_class(route.key)
    returned = hints["return"]
    # A handler that may have to wait returns the response or a coroutine of it.
    assert codec.response_class(route.key) in (returned, *typing.get_args(returned))
    assert dataclasses.is_dataclass(response)
