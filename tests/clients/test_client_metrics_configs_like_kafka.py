"""Subscriptions to client metrics are checked, described and listed as Apache Kafka does."""

import time

import pytest
from kio.schema.alter_configs.v2 import request as replacing
from kio.schema.alter_configs.v2.response import AlterConfigsResponse
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse
from kio.schema.incremental_alter_configs.v1 import request as altering
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.list_config_resources.v1.response import ListConfigResourcesResponse

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.wire.primitives import i8
from tests.support.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.java, pytest.mark.slow]

SET, DELETE, APPEND, SUBTRACT = range(4)
CLIENT_METRICS = i8(16)

EVERY_PATTERN = (
    "client_instance_id=.*,client_id=.*,client_software_name=librdkafka,"
    "client_software_version=2[.].*,client_source_address=127[.].*,client_source_port=.*"
)
ALTERATIONS: list[tuple[str, tuple[str, int, str | None]]] = [
    ("", ("metrics", SET, "a")),
    ("s", ("nonsense", SET, "a")),
    ("s", ("nonsense", DELETE, None)),
    ("s", ("interval.ms", SET, "99")),
    ("s", ("interval.ms", SET, "100")),
    ("s", ("interval.ms", SET, "3600000")),
    ("s", ("interval.ms", SET, "3600001")),
    ("s", ("interval.ms", SET, "1.5")),
    ("s", ("interval.ms", SET, "")),
    ("s", ("interval.ms", APPEND, "1")),
    ("s", ("metrics", SET, "")),
    ("s", ("metrics", SET, "a,,b")),
    ("s", ("metrics", SET, "a,")),
    ("s", ("metrics", SET, ",")),
    ("s", ("metrics", SET, None)),
    ("s", ("metrics", APPEND, "b")),
    ("s", ("metrics", SUBTRACT, "b")),
    ("s", ("match", SET, "")),
    ("s", ("match", SET, "host=a")),
    ("s", ("match", SET, "client_id")),
    ("s", ("match", SET, "client_id=")),
    ("s", ("match", SET, "client_id= ")),
    ("s", ("match", SET, "=a")),
    ("s", ("match", SET, "client_id=a,")),
    ("s", ("match", SET, "client_id=a=b")),
    ("s", ("match", SET, "client_id==b")),
    ("s", ("match", SET, "client_id=[")),
    ("s", ("match", SET, "client_id=a{1,2}")),
    ("s", ("match", SET, "client_id=a,client_id=b")),
    ("s", ("match", SET, " client_id = a ")),
    ("s", ("match", SET, EVERY_PATTERN)),
    ("a/b c", ("metrics", SET, "*")),
]


def alter(cluster: Cluster, name: str, *configs: tuple[str, int, str | None]) -> int:
    resource = altering.AlterConfigsResource(
        resource_type=CLIENT_METRICS,
        resource_name=name,
        configs=tuple(
            altering.AlterableConfig(name=key, config_operation=i8(kind), value=value)
            for key, kind, value in configs
        ),
    )
    request = altering.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    (result,) = cluster.ask(request, IncrementalAlterConfigsResponse).responses
    return int(result.error_code)


def replace(cluster: Cluster, name: str, **configs: str) -> int:
    resource = replacing.AlterConfigsResource(
        resource_type=CLIENT_METRICS,
        resource_name=name,
        configs=tuple(
            replacing.AlterableConfig(name=key, value=value) for key, value in configs.items()
        ),
    )
    request = replacing.AlterConfigsRequest(resources=(resource,), validate_only=False)
    (result,) = cluster.ask(request, AlterConfigsResponse).responses
    return int(result.error_code)


def describe(cluster: Cluster, name: str) -> object:
    resource = DescribeConfigsResource(
        resource_type=CLIENT_METRICS, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=(resource,), include_synonyms=True)
    (result,) = cluster.ask(request, DescribeConfigsResponse).results
    entries = sorted(
        (
            one.name,
            one.value,
            int(one.config_source),
            one.read_only,
            one.is_sensitive,
            int(one.config_type),
            [(synonym.name, synonym.value, int(synonym.source)) for synonym in one.synonyms],
        )
        for one in result.configs
    )
    return int(result.error_code), entries


def listed(cluster: Cluster) -> set[str]:
    request = ListConfigResourcesRequest(resource_types=(CLIENT_METRICS,))
    response = cluster.ask(request, ListConfigResourcesResponse)
    return {one.resource_name for one in response.config_resources}


def wait_until_listed(cluster: Cluster, names: set[str]) -> None:
    deadline = time.monotonic() + 60
    while (found := listed(cluster)) != names:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def history(cluster: Cluster) -> list[object]:
    found: list[object] = [(case, alter(cluster, *case)) for case in ALTERATIONS]
    wait_until_listed(cluster, {"s", "a/b c"})
    found += [describe(cluster, name) for name in ("s", "a/b c", "unknown", "")]
    found += [replace(cluster, "a/b c", match="client_id=x"), replace(cluster, "s", host="y")]
    found.append(replace(cluster, "s"))
    wait_until_listed(cluster, {"a/b c"})
    found.append(alter(cluster, "a/b c", ("match", DELETE, None), ("metrics", DELETE, None)))
    wait_until_listed(cluster, set())
    return found


def test_subscriptions_are_validated_and_described_as_apache_kafka_does(
    bootstrap: str, apache_kafka: ApacheKafka
) -> None:
    with (
        Cluster(ClientConfig(parse_bootstrap(bootstrap))) as ours,
        Cluster(ClientConfig(parse_bootstrap(apache_kafka.bootstrap))) as kafka,
    ):
        assert history(ours) == history(kafka)
