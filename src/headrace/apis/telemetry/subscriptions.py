"""The metrics that a client should push: the union of the subscriptions that match it.

Pure decisions on the configs of client-metrics resources. The subscription id depends only on
the client and its metrics, so that all brokers compute the same id for a client.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.expressions.expression import Expression
from headrace.settings.client_metrics_table import (
    ALL_METRICS,
    DEFAULT_INTERVAL_MS,
    parse_interval_ms,
    parse_match,
    parse_metrics,
)
from headrace.types import encode_uuid
from headrace.wire.checksum import crc32c


@dataclass(frozen=True, slots=True)
class PushingClient:
    """The attributes of a client that may push metrics."""

    instance_id: uuid.UUID
    client_id: str
    software_name: str
    software_version: str
    address: str
    port: str

    def attributes(self) -> dict[str, str]:
        """The attributes that patterns can match, by Kafka's names."""
        return {
            "client_instance_id": encode_uuid(self.instance_id),
            "client_id": self.client_id,
            "client_software_name": self.software_name,
            "client_software_version": self.software_version,
            "client_source_address": self.address,
            "client_source_port": self.port,
        }


@dataclass(frozen=True, slots=True)
class MetricsSubscription:
    """A client-metrics resource."""

    metrics: frozenset[str]
    interval_ms: int
    match: Mapping[str, Expression]

    @classmethod
    def parse(cls, configs: Mapping[str, str]) -> "MetricsSubscription":
        """The subscription with these configs, which were checked when they were stored."""
        return cls(
            frozenset(parse_metrics(configs)), parse_interval_ms(configs), parse_match(configs)
        )

    def matches(self, attributes: Mapping[str, str]) -> bool:
        """Whether all patterns match."""
        return all(expression.matches(attributes[name]) for name, expression in self.match.items())


@dataclass(frozen=True, slots=True)
class AskedMetrics:
    """The subscription of one client."""

    subscription_id: int
    metrics: tuple[str, ...]
    """Prefixes of names; `*` alone means all metrics."""
    interval_ms: int

    def includes(self, name: str) -> bool:
        """Whether the client was asked for the metric of this name."""
        return self.metrics == (ALL_METRICS,) or name.startswith(self.metrics)


def asked_metrics(
    subscriptions: Iterable[MetricsSubscription], client: PushingClient
) -> AskedMetrics:
    """The union of the subscriptions that match a client, with their shortest interval."""
    attributes = client.attributes()
    metrics: set[str] = set()
    interval_ms = DEFAULT_INTERVAL_MS
    for subscription in subscriptions:
        if subscription.matches(attributes):
            metrics |= subscription.metrics
            interval_ms = min(interval_ms, subscription.interval_ms)
    names = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
    return AskedMetrics(
        _subscription_id(names, interval_ms, client.instance_id), names, interval_ms
    )


def _subscription_id(metrics: tuple[str, ...], interval_ms: int, instance_id: uuid.UUID) -> int:
    """CRC-32C of metrics and interval, mixed with the client's id, as a signed number."""
    checksum = crc32c(f"{','.join(metrics)} {interval_ms}".encode())
    mixed = instance_id.int ^ (instance_id.int >> 32)
    mixed ^= mixed >> 64
    unsigned = (checksum ^ mixed) & 0xFFFF_FFFF
    return unsigned - (1 << 32) if unsigned >> 31 else unsigned
