"""The clients that push metrics to this broker, and the limits of their requests.

A client requests its subscription, then pushes at the interval in the response; requests that come
too early get THROTTLING_QUOTA_EXCEEDED. A client that sends nothing for three intervals, and at
least a minute, is removed with its metrics. There is no timer: requests and scrapes remove such
clients. A restarted broker has no clients; they continue with the same ids.

One part differs from Apache Kafka, on purpose: after a response that tells the client to ask for
its subscription again, its next push is not refused as too early.
"""

import asyncio
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.apis.telemetry.pushed_series import PushedSeries, SeriesTable
from headrace.apis.telemetry.subscriptions import (
    AskedMetrics,
    MetricsSubscription,
    PushingClient,
    asked_metrics,
)
from headrace.clock import Clock
from headrace.errors import ErrorCode, KafkaError
from headrace.settings import Settings
from headrace.wire import compression
from headrace.wire.steps import Steps

MAX_CLIENTS = 16_384
"""The number of clients in the cache, as in Apache Kafka; the least recently seen are removed."""
MIN_EXPIRY_S = 60.0
_SWEEP_S = 5.0
_LARGE_PUSHES_AT_A_TIME = 2
_RESERVED = (uuid.UUID(int=0), uuid.UUID(int=1))
_ASKS_AGAIN = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""Errors after which a client requests its subscription immediately."""

ACCEPTED_CODECS = (compression.ZSTD, compression.LZ4, compression.GZIP, compression.SNAPPY)
"""The codecs of pushes, in order of preference."""

_Configs = Mapping[str, Mapping[str, str]]


@dataclass(slots=True)
class ClientInstance:
    """A client that requests its subscription or pushes."""

    client: PushingClient
    asked: AskedMetrics
    subscriptions: int
    """The version of the subscriptions that `asked` was computed from."""
    series: PushedSeries
    seen_s: float
    asked_s: float = float("-inf")
    pushed_s: float = float("-inf")
    may_push: bool = True
    """Whether the next push is accepted at any time, because none came since the client asked."""
    last_error: ErrorCode = ErrorCode.NONE
    terminated: bool = False

    @property
    def expires_s(self) -> float:
        """When the client is removed if it sends no further request."""
        return self.seen_s + max(MIN_EXPIRY_S, 3 * self.asked.interval_ms / 1000)


@dataclass(frozen=True, slots=True)
class Push:
    """The fields of a push that are checked before its metrics are read."""

    subscription_id: int
    terminating: bool
    codec: int
    size_bytes: int


@dataclass(slots=True)
class ClientMetrics:
    """The state of client metrics on one broker."""

    settings: Settings
    clock: Clock
    configs: Callable[[], _Configs]
    """The subscriptions of the cluster as they are now."""
    series: SeriesTable = field(init=False)
    large_pushes: asyncio.Semaphore = field(init=False)
    """Bounds the memory of pushes that are decompressed."""
    refused: Counter[ErrorCode] = field(default_factory=Counter, init=False)
    """Requests that were refused, by the error."""
    _seen: _Configs = field(default_factory=dict, init=False)
    _subscriptions: list[MetricsSubscription] = field(default_factory=list, init=False)
    _number: int = field(default=0, init=False)
    _instances: OrderedDict[uuid.UUID, ClientInstance] = field(
        default_factory=OrderedDict, init=False
    )
    _swept_s: float = field(default=float("-inf"), init=False)

    def __post_init__(self) -> None:
        self.large_pushes = asyncio.Semaphore(_LARGE_PUSHES_AT_A_TIME)
        self.series = SeriesTable(
            self.settings.integer("headrace.client.metrics.max.series"),
            self.settings.integer("headrace.client.metrics.max.series.per.client"),
        )

    @property
    def max_bytes(self) -> int:
        """The largest push, as the client sends it."""
        return self.settings.integer("telemetry.max.bytes")

    def subscribe(self, client: PushingClient) -> AskedMetrics:
        """The subscription of a client; KafkaError if it requests it too early."""
        instance, now = self._instance(client), self.clock.monotonic()
        early = now - max(instance.asked_s, instance.pushed_s) < instance.asked.interval_ms / 1000
        if early and instance.last_error not in _ASKS_AGAIN:
            raise self._refuse(ErrorCode.THROTTLING_QUOTA_EXCEEDED, _too_early(instance))
        instance.asked_s, instance.may_push, instance.last_error = now, True, ErrorCode.NONE
        return instance.asked

    def accept(self, client: PushingClient, push: Push) -> ClientInstance:
        """The client whose push may be stored; KafkaError if it is refused."""
        if client.instance_id in _RESERVED:
            raise self._refuse(ErrorCode.INVALID_REQUEST, "the client instance id is missing")
        instance = self._instance(client)
        try:
            self._check(instance, push)
        except KafkaError as error:
            instance.last_error = error.code
            self.refused[error.code] += 1
            raise
        finally:
            instance.terminated |= push.terminating
        instance.last_error = ErrorCode.NONE
        return instance

    def fail(self, instance: ClientInstance, code: ErrorCode, why: str) -> KafkaError:
        """The error of a push whose metrics cannot be read."""
        instance.last_error = code
        return self._refuse(code, why)

    def render(self) -> Steps[str]:
        """The metrics of all clients, and the number of clients, in Prometheus' text format."""
        self._follow()
        self._sweep()
        own = [
            *_gauge("clients", "Clients that requested a subscription.", len(self._instances)),
            *_gauge("series", "Series that clients have pushed.", self.series.count),
            *_counters("dropped", "Pushed data points that were dropped.", "reason",
                       self.series.dropped),
            *_counters("refused", "Requests of pushing clients that were refused.", "error",
                       {code.name: count for code, count in self.refused.items()}),
        ]  # fmt: skip
        return "\n".join(own) + "\n" + (yield from self.series.render())

    def _check(self, instance: ClientInstance, push: Push) -> None:
        name, now = instance.client.client_id, self.clock.monotonic()
        if instance.terminated:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"client {name!r} has sent its terminating push; further pushes are refused",
            )
        interval_s = instance.asked.interval_ms / 1000
        if instance.may_push or now - instance.pushed_s >= interval_s:
            instance.pushed_s, instance.may_push = now, False
        elif not push.terminating:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, _too_early(instance))
        if push.subscription_id != instance.asked.subscription_id:
            raise KafkaError(
                ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
                f"the subscription of client {name!r} has changed; request it again",
            )
        if push.codec != compression.NONE and push.codec not in ACCEPTED_CODECS:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {push.codec} is unknown"
            )
        if push.size_bytes > self.max_bytes:
            raise KafkaError(
                ErrorCode.TELEMETRY_TOO_LARGE,
                f"the push of client {name!r} has {push.size_bytes} bytes; "
                f"telemetry.max.bytes={self.max_bytes}",
            )

    def _instance(self, client: PushingClient) -> ClientInstance:
        """The instance of a client, matched with the present subscriptions."""
        self._follow()
        self._sweep()
        now = self.clock.monotonic()
        known = self._instances.get(client.instance_id)
        if known is None:
            known = self._instances[client.instance_id] = ClientInstance(
                client,
                asked_metrics(self._subscriptions, client),
                self._number,
                PushedSeries(client),
                now,
            )
            if len(self._instances) > MAX_CLIENTS:
                _, oldest = self._instances.popitem(last=False)
                self.series.forget(oldest.series)
        elif known.subscriptions != self._number:
            self._match_again(known)
        known.seen_s = now
        self._instances.move_to_end(client.instance_id)
        return known

    def _match_again(self, instance: ClientInstance) -> None:
        """Match a client with changed subscriptions; its series are removed if they change it."""
        asked = asked_metrics(self._subscriptions, instance.client)
        instance.subscriptions = self._number
        if asked == instance.asked:
            return
        if asked.metrics != instance.asked.metrics:
            self.series.forget(instance.series)
            instance.series = PushedSeries(instance.client)
        instance.asked = asked
        instance.asked_s = instance.pushed_s = float("-inf")
        instance.may_push = True

    def _follow(self) -> None:
        """Apply changed subscriptions."""
        configs = self.configs()
        if configs is self._seen:
            return
        if configs != self._seen:
            self._subscriptions = [MetricsSubscription.parse(one) for one in configs.values()]
            self._number += 1
            if not configs:
                for instance in self._instances.values():
                    self.series.forget(instance.series)
                    instance.series = PushedSeries(instance.client)
        self._seen = configs

    def _sweep(self) -> None:
        """Remove clients that have expired."""
        now = self.clock.monotonic()
        if now - self._swept_s < _SWEEP_S:
            return
        self._swept_s = now
        for instance in [one for one in self._instances.values() if one.expires_s <= now]:
            del self._instances[instance.client.instance_id]
            self.series.forget(instance.series)

    def _refuse(self, code: ErrorCode, why: str) -> KafkaError:
        self.refused[code] += 1
        return KafkaError(code, why)


def _gauge(name: str, doc: str, value: int) -> list[str]:
    name = f"headrace_client_metrics_{name}"
    return [f"# HELP {name} {doc}", f"# TYPE {name} gauge", f"{name} {value}"]


def _counters(name: str, doc: str, label: str, values: Mapping[str, int]) -> list[str]:
    name = f"headrace_client_metrics_{name}_total"
    lines = [f'{name}{{{label}="{key}"}} {value}' for key, value in values.items()]
    return [f"# HELP {name} {doc}", f"# TYPE {name} counter", *lines]


def _too_early(instance: ClientInstance) -> str:
    return (
        f"client {instance.client.client_id!r} sent a request before its push interval of "
        f"{instance.asked.interval_ms} ms was over"
    )
