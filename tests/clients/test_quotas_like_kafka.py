"""DescribeClientQuotas and AlterClientQuotas answer as Apache Kafka does."""

import pytest
from kio.schema.alter_client_quotas.v1 import request as altering
from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse
from kio.schema.describe_client_quotas.v1.request import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from kio.schema.describe_client_quotas.v1.response import DescribeClientQuotasResponse

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.wire.primitives import f64, i8
from tests.support.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.java, pytest.mark.slow]

Entity = tuple[tuple[str, str | None], ...]
PRODUCE, IPS = "producer_byte_rate", "connection_creation_rate"
U, C = ("user", "like-kafka"), ("client-id", "like-kafka")

ALTERATIONS: list[tuple[Entity, list[tuple[str, float | None]]]] = [
    ((U,), [(PRODUCE, 1e9)]),
    ((U,), [(PRODUCE, 0.0)]),
    ((U,), [(PRODUCE, -1.0)]),
    ((U,), [(PRODUCE, 1.5)]),
    ((U,), [(PRODUCE, 1e30)]),
    ((U,), [(PRODUCE, 1.0), (PRODUCE, 2.0)]),
    ((U,), [("request_percentage", 1e5 + 0.5), ("controller_mutation_rate", 1e5 + 0.25)]),
    ((U,), [(IPS, 1e5)]),
    ((U,), [("nonsense", 1.0)]),
    ((U,), [("nonsense", None)]),
    ((U, C), [(PRODUCE, 1e9)]),
    ((C, ("user", None)), [(PRODUCE, 1e9)]),
    ((("client-id", "like-kafka"),), [("consumer_byte_rate", 1e9)]),
    ((("user", ""),), [(PRODUCE, 1e9)]),
    ((("group", "g"),), [(PRODUCE, 1e9)]),
    ((), [(PRODUCE, 1e9)]),
    ((("ip", "10.0.0.7"),), [(IPS, 1e5)]),
    ((("ip", "10.0.0.7"),), [(IPS, 1e10)]),
    ((("ip", "10.0.0.7"),), [(PRODUCE, 1e9)]),
    ((("ip", "10.0.0.7"), U), [(IPS, 1e5)]),
    ((("ip", "no such host"),), [(IPS, 1e5)]),
]
FILTERS: list[tuple[list[tuple[str, int, str | None]], bool]] = [
    ([("user", 0, "like-kafka")], False),
    ([("user", 0, "like-kafka")], True),
    ([("user", 2, None)], False),
    ([("user", 2, None), ("client-id", 2, None)], True),
    ([("user", 1, None)], False),
    ([("client-id", 0, "like-kafka")], True),
    ([("ip", 2, None)], False),
    ([], True),
    ([("", 0, "a")], False),
    ([("group", 0, "a")], False),
    ([("user", 0, None)], False),
    ([("user", 1, "a")], False),
    ([("user", 2, "a")], False),
    ([("user", 3, None)], False),
    ([("user", 2, None), ("user", 2, None)], False),
    ([("ip", 2, None), ("user", 2, None)], False),
]


def entry(entity: Entity, ops: list[tuple[str, float | None]]) -> altering.EntryData:
    return altering.EntryData(
        entity=tuple(
            altering.EntityData(entity_type=kind, entity_name=name) for kind, name in entity
        ),
        ops=tuple(
            altering.OpData(key=key, value=f64(value or 0.0), remove=value is None)
            for key, value in ops
        ),
    )


def codes(cluster: Cluster) -> list[list[int]]:
    found = []
    for entity, ops in ALTERATIONS:
        request = altering.AlterClientQuotasRequest(
            entries=(entry(entity, ops),), validate_only=False
        )
        response = cluster.ask(request, AlterClientQuotasResponse)
        found.append([int(one.error_code) for one in response.entries])
    return found


def described(cluster: Cluster) -> list[object]:
    found: list[object] = []
    for components, strict in FILTERS:
        request = DescribeClientQuotasRequest(
            components=tuple(
                ComponentData(entity_type=kind, match_type=i8(how), match=name)
                for kind, how, name in components
            ),
            strict=strict,
        )
        response = cluster.ask(request, DescribeClientQuotasResponse)
        entries = {
            frozenset((one.entity_type, one.entity_name) for one in row.entity): {
                one.key: one.value for one in row.values
            }
            for row in response.entries or ()
        }
        found.append((int(response.error_code), response.entries is None, entries))
    return found


def test_quotas_are_validated_and_filtered_as_apache_kafka_does(
    bootstrap: str, apache_kafka: ApacheKafka
) -> None:
    with (
        Cluster(ClientConfig(parse_bootstrap(bootstrap))) as ours,
        Cluster(ClientConfig(parse_bootstrap(apache_kafka.bootstrap))) as kafka,
    ):
        try:
            assert codes(ours) == codes(kafka)
            assert described(ours) == described(kafka)
        finally:
            keys = (PRODUCE, IPS, "consumer_byte_rate", "request_percentage")
            for cluster in (ours, kafka):
                for entity, _ in ALTERATIONS:
                    gone: list[tuple[str, float | None]] = [(key, None) for key in keys]
                    gone.append(("controller_mutation_rate", None))
                    request = altering.AlterClientQuotasRequest(
                        entries=(entry(entity, gone),), validate_only=False
                    )
                    cluster.ask(request, AlterClientQuotasResponse)
