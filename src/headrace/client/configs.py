"""Configs of topics and brokers: describe them and change them. All calls are retried."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.client.cluster import Cluster
from headrace.client.errors import check
from headrace.errors import ErrorCode
from headrace.types import ConfigResourceType
from headrace.wire.primitives import i8

if TYPE_CHECKING:
    from kio.schema.describe_configs.v4.response import DescribeConfigsResult

SET, DELETE = 0, 1
SOURCES = {
    1: "topic",
    2: "broker",
    3: "cluster default",
    4: "server file",
    5: "default",
    7: "subscription",
    8: "group",
}
"""The sources of values, by their numbers in DescribeConfigs."""


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """One config as the cluster reports it."""

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool

    @property
    def is_default(self) -> bool:
        return self.source == "default"

    @property
    def changed_here(self) -> bool:
        """Whether it is set on the topic itself, not inherited from the broker."""
        return self.source == "topic"


def describe_configs(cluster: Cluster, kind: ConfigResourceType, name: str) -> list[ConfigValue]:
    """All configs of a topic or broker, by name; an empty name is the default of all brokers."""
    from kio.schema.describe_configs.v4.request import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
    )
    from kio.schema.describe_configs.v4.response import DescribeConfigsResponse

    resource = DescribeConfigsResource(
        resource_type=i8(kind), resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=(resource,))
    what = f"{kind.name.lower()} {name!r}"

    def attempt() -> list[ConfigValue]:
        (answer,) = cluster.ask(request, DescribeConfigsResponse, _broker(kind, name)).results
        check(int(answer.error_code), what, answer.error_message)
        return _values(answer)

    return cluster.retry(f"describing the configs of {what}", attempt)


def describe_topic_configs(cluster: Cluster, topics: Iterable[str]) -> dict[str, list[ConfigValue]]:
    """All configs of many topics, in one request; topics that do not exist are left out."""
    return cluster.retry(
        "describing the configs of topics",
        lambda: {name: _values(row) for name, row in _ask_topics(cluster, topics, None).items()},
    )


def _values(row: "DescribeConfigsResult") -> list[ConfigValue]:
    return [
        ConfigValue(
            each.name,
            each.value,
            SOURCES.get(int(each.config_source), "unknown"),
            each.read_only,
            each.is_sensitive,
        )
        for each in sorted(row.configs, key=lambda each: each.name)
    ]


def topic_config(cluster: Cluster, topics: Iterable[str], key: str) -> dict[str, str | None]:
    """One config of many topics, in one request; topics that do not exist are left out."""
    found = topic_configs(cluster, topics, (key,))
    return {name: configs.get(key) for name, configs in found.items()}


def topic_configs(
    cluster: Cluster, topics: Iterable[str], keys: Sequence[str]
) -> dict[str, dict[str, str | None]]:
    """Some configs of many topics, in one request; topics that do not exist are left out."""
    return cluster.retry(
        f"describing {', '.join(keys)}",
        lambda: {
            name: {each.name: each.value for each in row.configs}
            for name, row in _ask_topics(cluster, topics, tuple(keys)).items()
        },
    )


def _ask_topics(
    cluster: Cluster, topics: Iterable[str], keys: tuple[str, ...] | None
) -> "dict[str, DescribeConfigsResult]":
    from kio.schema.describe_configs.v4.request import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
    )
    from kio.schema.describe_configs.v4.response import DescribeConfigsResponse

    request = DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(
                resource_type=i8(ConfigResourceType.TOPIC),
                resource_name=name,
                configuration_keys=keys,
            )
            for name in topics
        )
    )
    found: dict[str, DescribeConfigsResult] = {}
    for row in cluster.ask(request, DescribeConfigsResponse).results:
        if int(row.error_code) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        check(int(row.error_code), f"topic {row.resource_name!r}", row.error_message)
        found[row.resource_name] = row
    return found


def list_client_metrics(cluster: Cluster) -> list[str]:
    """The names of the subscriptions to client metrics (KIP-714): those that have configs."""
    from kio.schema.list_config_resources.v0.request import ListConfigResourcesRequest
    from kio.schema.list_config_resources.v0.response import ListConfigResourcesResponse

    def attempt() -> list[str]:
        answer = cluster.ask(ListConfigResourcesRequest(), ListConfigResourcesResponse)
        check(int(answer.error_code), "listing subscriptions to client metrics")
        return sorted(each.resource_name for each in answer.config_resources)

    return cluster.retry("listing subscriptions to client metrics", attempt)


def alter_configs(
    cluster: Cluster,
    kind: ConfigResourceType,
    name: str,
    to_set: Mapping[str, str],
    to_delete: Iterable[str] = (),
) -> None:
    """Set configs and reset others to their defaults, all or none; the rest is not changed."""
    from kio.schema.incremental_alter_configs.v1.request import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )
    from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse

    changes = [
        AlterableConfig(name=key, config_operation=i8(SET), value=value)
        for key, value in to_set.items()
    ]
    changes += [
        AlterableConfig(name=key, config_operation=i8(DELETE), value=None) for key in to_delete
    ]
    resource = AlterConfigsResource(
        resource_type=i8(kind), resource_name=name, configs=tuple(changes)
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    what = f"{kind.name.lower()} {name!r}"

    def attempt() -> None:
        broker = _broker(kind, name)
        answer = (
            cluster.ask_controller(request, IncrementalAlterConfigsResponse)
            if broker is None
            else cluster.ask(request, IncrementalAlterConfigsResponse, broker)
        )
        for row in answer.responses:
            check(int(row.error_code), what, row.error_message)

    cluster.retry(f"changing the configs of {what}", attempt)


def _broker(kind: ConfigResourceType, name: str) -> int | None:
    """The broker for the request: a named broker for its own configs, any for the others."""
    return int(name) if kind is ConfigResourceType.BROKER and name else None
