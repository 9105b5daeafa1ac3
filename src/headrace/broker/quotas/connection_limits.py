"""Limits of connections: their number and their rate, per broker, listener and address.

As in Kafka: a listener with too many connections, or too high a rate, accepts none for some time.
If the broker has too many, no listener accepts, except the one between brokers. New connections of
an address with too high a rate are held for the throttle time and then closed; those of an address
with too many connections are closed immediately.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.apis.context import Caller
from headrace.security.quotas import QuotaWindows, Rate, ip_quotas, normal_address
from headrace.security.state import QuotaEntity, Quotas
from headrace.settings import Settings

_MANY_METERS = 10_000
_LEAST_RATE = 1e-9


@dataclass(frozen=True, slots=True)
class _Limits:
    """The limits of one listener from the settings."""

    of_broker: int
    of_listener: int
    of_address: int
    of_addresses: Mapping[str, int]
    broker_rate: float
    listener_rate: float


class ConnectionLimits:
    """Counts the connections of a broker, and enforces the limits."""

    def __init__(
        self,
        settings_now: Callable[[], Settings],
        quotas_now: Callable[[], Mapping[QuotaEntity, Quotas]],
        now: Callable[[], float],
    ) -> None:
        settings = settings_now()
        self._settings_now = settings_now
        self._quotas_now = quotas_now
        self._now = now
        self._windows = QuotaWindows(
            settings.integer("quota.window.num"), settings.integer("quota.window.size.seconds")
        )
        listeners = settings.listeners
        self._protected = listeners.inter_broker_name if len(listeners.all) > 1 else None
        self._total = 0
        self.per_listener: Counter[str] = Counter()
        """How many connections each listener has."""
        self.accepted: Counter[str] = Counter()
        """How many each listener has had since the start."""
        self._per_address: Counter[str] = Counter()
        self._broker_rate = Rate(self._windows)
        self._listener_rates = {one.name: Rate(self._windows) for one in listeners.all}
        self._address_rates: dict[str, Rate] = {}
        self._read_from: Settings | None = None
        self._limits: dict[str, _Limits] = {}
        self._quotas: Mapping[QuotaEntity, Quotas] = {}
        self._address_quotas: dict[str | None, float] = {}

    # ------------------------------------------------------------------------- how many there are

    def opened(self, caller: Caller) -> None:
        """Count a connection."""
        self._total += 1
        self.per_listener[caller.listener] += 1
        self.accepted[caller.listener] += 1
        self._per_address[caller.ip] += 1

    def closed(self, caller: Caller) -> None:
        """Stop counting a connection."""
        self._total -= 1
        self.per_listener[caller.listener] -= 1
        self._per_address[caller.ip] -= 1
        if not self._per_address[caller.ip]:
            del self._per_address[caller.ip]

    def is_full(self, listener: str) -> str:
        """The reason why a listener can accept no more connections; empty if it can."""
        limits = self._limits_of(listener)
        if self.per_listener[listener] >= limits.of_listener:
            return f"the listener {listener} has max.connections={limits.of_listener}"
        if listener != self._protected and self._total >= limits.of_broker:
            return f"the broker has max.connections={limits.of_broker}"
        return ""

    def is_too_many(self, listener: str, host: str) -> str:
        """The reason why an address can have no more connections; empty if it can."""
        limits = self._limits_of(listener)
        most = limits.of_addresses.get(_plain(host), limits.of_address)
        return f"max.connections.per.ip={most}" if self._per_address[host] >= most else ""

    # --------------------------------------------------------------------------- how fast they come

    def throttle_s(self, listener: str) -> float:
        """Count a new connection; the seconds for which its listener may accept no others."""
        limits, now = self._limits_of(listener), self._now()
        throttle_s = 0.0
        if listener != self._protected:
            throttle_s = self._count(self._broker_rate, limits.broker_rate, now)
        rate = self._listener_rates[listener]
        return max(throttle_s, self._count(rate, limits.listener_rate, now))

    def throttle_address_s(self, listener: str, host: str) -> float:
        """Count a new connection of an address; the seconds for which it is held, then closed.

        A connection that is closed does not count, neither here nor for its listener.
        """
        quotas = self._quotas_now()
        if quotas is not self._quotas:
            self._quotas, self._address_quotas = quotas, ip_quotas(quotas)
        if not self._address_quotas:
            return 0.0
        address = _plain(host)
        limit = self._address_quotas.get(address, self._address_quotas.get(None))
        if limit is None:
            return 0.0
        now = self._now()
        rate = self._address_rates.get(address)
        if rate is None:
            if len(self._address_rates) >= _MANY_METERS:
                idle = [one for one, rate in self._address_rates.items() if not rate.total(now)]
                for one in idle:
                    del self._address_rates[one]
            rate = self._address_rates[address] = Rate(self._windows)
        throttle_s = self._count(rate, limit, now)
        if throttle_s > 0:
            rate.unrecord(1)
            self._listener_rates[listener].unrecord(1)
            if listener != self._protected:
                self._broker_rate.unrecord(1)
        return throttle_s

    def _count(self, rate: Rate, limit: float, now: float) -> float:
        rate.record(1, now)
        return min(rate.throttle_s(max(limit, _LEAST_RATE), now), self._windows.seconds)

    def _limits_of(self, listener: str) -> _Limits:
        settings = self._settings_now()
        if settings is not self._read_from:
            self._read_from = settings
            self._limits = {name: _read(settings, name) for name in self._listener_rates}
        return self._limits[listener]


def _read(settings: Settings, listener: str) -> _Limits:
    own = settings.for_listener(listener)
    words = settings.text("max.connections.per.ip.overrides").split(",")
    overrides = (word.strip().rpartition(":") for word in words if word.strip())
    return _Limits(
        of_broker=settings.integer("max.connections"),
        of_listener=own.integer("max.connections"),
        of_address=settings.integer("max.connections.per.ip"),
        of_addresses={_plain(host.strip("[]")): int(count) for host, _, count in overrides},
        broker_rate=settings.integer("max.connection.creation.rate"),
        listener_rate=own.integer("max.connection.creation.rate"),
    )


def _plain(host: str) -> str:
    return (normal_address(host) or host) if ":" in host else host
