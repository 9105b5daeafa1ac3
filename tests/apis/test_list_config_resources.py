"""ListConfigResources lists resources with configs."""

import pytest
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest

from headrace.apis.configs.list_config_resources import list_config_resources
from headrace.cluster.controller import Alteration, ConfigChange, Operation
from headrace.errors import ErrorCode
from headrace.wire.primitives import i8
from tests.apis.one_broker import NEWEST, OneBroker

NONE = ErrorCode.NONE


@pytest.mark.parametrize(
    ("types", "version", "resources"),
    [
        ((), NEWEST, {("t", 2), ("1", 4), ("1", 8), ("s", 16), ("g", 32)}),
        ((32,), NEWEST, {("g", 32)}),
        ((2,), NEWEST, {("t", 2)}),
        ((4, 16), NEWEST, {("1", 4), ("s", 16)}),
        ((), 0, {("s", 16)}),
    ],
)
def test_resources_with_configs_are_listed(
    broker: OneBroker, types: tuple[int, ...], version: int, resources: set[tuple[str, int]]
) -> None:
    broker.create("t")
    change = ConfigChange("consumer.session.timeout.ms", Operation.SET, "50000")
    alteration = Alteration("group", "g", (change,), broker=broker.services.settings)
    metrics = (ConfigChange("metrics", Operation.SET, "*"),)
    subscription = Alteration("client-metrics", "s", metrics)
    assert broker.metadata.alter_configs([alteration, subscription]) == [None, None]
    request = ListConfigResourcesRequest(resource_types=tuple(map(i8, types)))
    answer = broker.ask_in_steps(list_config_resources, request, version)
    assert ErrorCode(answer.error_code) == NONE
    found = {(one.resource_name, one.resource_type) for one in answer.config_resources}
    assert found == resources


def test_an_unknown_type_of_resource_is_refused(broker: OneBroker) -> None:
    request = ListConfigResourcesRequest(resource_types=(i8(3),))
    answer = broker.ask_in_steps(list_config_resources, request)
    assert ErrorCode(answer.error_code) == ErrorCode.UNSUPPORTED_VERSION
