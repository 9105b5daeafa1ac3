"""DescribeClientQuotas and AlterClientQuotas: filters, validation, and what is stored."""

from collections.abc import Mapping

import pytest
from kio.schema.alter_client_quotas.v1 import request as altering
from kio.schema.describe_client_quotas.v1.request import (
    ComponentData,
    DescribeClientQuotasRequest,
)

from headrace.apis.security.client_quotas import alter_client_quotas, describe_client_quotas
from headrace.errors import ErrorCode
from headrace.wire.primitives import f64, i8
from tests.apis.one_broker import OneBroker

Name = str | None
NONE, INVALID = ErrorCode.NONE, ErrorCode.INVALID_REQUEST
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
RATE = "producer_byte_rate"


def entry(entity: Mapping[str, Name], *ops: tuple[str, float | None]) -> altering.EntryData:
    return altering.EntryData(
        entity=tuple(
            altering.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
        ),
        ops=tuple(
            altering.OpData(key=key, value=f64(value or 0.0), remove=value is None)
            for key, value in ops
        ),
    )


def alter(broker: OneBroker, *entries: altering.EntryData, validate: bool = False) -> list[int]:
    request = altering.AlterClientQuotasRequest(entries=entries, validate_only=validate)
    response = broker.ask(alter_client_quotas, request)
    return [int(one.error_code) for one in response.entries]


def describe(
    broker: OneBroker, *components: tuple[str, int, Name], strict: bool = False
) -> dict[tuple[tuple[str, Name], ...], dict[str, float]] | int:
    """The quotas of the entities that match, or the error."""
    request = DescribeClientQuotasRequest(
        components=tuple(
            ComponentData(entity_type=kind, match_type=i8(how), match=name)
            for kind, how, name in components
        ),
        strict=strict,
    )
    response = broker.ask(describe_client_quotas, request)
    if response.error_code:
        assert response.entries is None
        assert response.error_message
        return int(response.error_code)
    assert response.entries is not None
    return {
        tuple((one.entity_type, one.entity_name) for one in found.entity): {
            value.key: value.value for value in found.values
        }
        for found in response.entries
    }


def test_quotas_are_set_changed_and_removed(broker: OneBroker) -> None:
    alice = {"user": "alice"}
    assert alter(broker, entry(alice, (RATE, 10.0), ("request_percentage", 1.5))) == [NONE]
    key = (("user", "alice"),)
    assert describe(broker) == {key: {RATE: 10.0, "request_percentage": 1.5}}
    assert alter(broker, entry(alice, (RATE, 20.0), ("request_percentage", None))) == [NONE]
    assert describe(broker) == {key: {RATE: 20.0}}
    assert alter(broker, entry(alice, (RATE, 30.0)), validate=True) == [NONE]
    assert describe(broker) == {key: {RATE: 20.0}}
    assert alter(broker, entry(alice, (RATE, None), ("nonsense", None))) == [NONE]
    assert describe(broker) == {}


def test_one_refused_entity_does_not_hold_up_others(broker: OneBroker) -> None:
    codes = alter(
        broker,
        entry({"user": "a"}, (RATE, 0.0)),
        entry({"user": "b"}, (RATE, 1.0)),
        entry({"user": "c"}, (RATE, 1.0), (RATE, 2.0)),
        entry({}, (RATE, 1.0)),
        entry({"user": "d", "planet": "mars"}, (RATE, 1.0)),
    )
    assert codes == [INVALID, NONE, INVALID, INVALID, INVALID]
    assert describe(broker) == {(("user", "b"),): {RATE: 1.0}}


def test_an_entity_that_is_named_twice_is_refused(broker: OneBroker) -> None:
    twice = entry({"user": "a", "client-id": "c"}, (RATE, 1.0))
    reordered = entry({"client-id": "c", "user": "a"}, (RATE, 2.0))
    assert alter(broker, twice, reordered) == [INVALID]


def test_filters_match_names_defaults_and_types(broker: OneBroker) -> None:
    entities: list[dict[str, Name]] = [
        {"user": "a"},
        {"user": None},
        {"user": "a", "client-id": "c"},
        {"user": "a", "client-id": None},
        {"client-id": "c"},
        {"ip": "10.0.0.7"},
    ]
    for place, one in enumerate(entities):
        key = "connection_creation_rate" if "ip" in one else RATE
        assert alter(broker, entry(one, (key, place + 1.0))) == [NONE]

    def found(*components: tuple[str, int, Name], strict: bool = False) -> list[int]:
        matched = describe(broker, *components, strict=strict)
        assert isinstance(matched, dict)
        return sorted(int(*values.values()) - 1 for values in matched.values())

    assert found() == [0, 1, 2, 3, 4, 5]
    assert found(("user", EXACT, "a")) == [0, 2, 3]
    assert found(("user", EXACT, "a"), strict=True) == [0]
    assert found(("user", DEFAULT, None)) == [1]
    assert found(("user", SPECIFIED, None)) == [0, 1, 2, 3]
    assert found(("user", SPECIFIED, None), strict=True) == [0, 1]
    assert found(("client-id", DEFAULT, None)) == [3]
    assert found(("user", EXACT, "a"), ("client-id", SPECIFIED, None), strict=True) == [2, 3]
    assert found(("ip", SPECIFIED, None)) == [5]
    assert found(strict=True) == []


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", EXACT, "a")], INVALID),
        ([("user", EXACT, "a"), ("user", DEFAULT, None)], INVALID),
        ([("group", EXACT, "a")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, None)], INVALID),
        ([("user", DEFAULT, "a")], INVALID),
        ([("user", SPECIFIED, "a")], INVALID),
        ([("user", 3, None)], INVALID),
        ([("ip", SPECIFIED, None), ("user", SPECIFIED, None)], INVALID),
    ],
)
def test_filters_that_make_no_sense_are_refused(
    broker: OneBroker, components: list[tuple[str, int, Name]], code: ErrorCode
) -> None:
    assert describe(broker, *components) == code
