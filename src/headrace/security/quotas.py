"""Quotas: how much the clients of a user may produce, fetch and ask for.

The most specific quota counts: of the user and the client id, then of the user, then of the client
id, each by name before the default. Clients that share a quota share its meter. Rates are those of
Kafka: samples of one window each, eleven of them, and never less than ten windows of time.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from headrace.security.state import QuotaEntity, Quotas

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

USER, CLIENT_ID, IP = "user", "client-id", "ip"

ClientMeter: TypeAlias = tuple[str | None, str | None]
"""The user and the client id that share a meter; None where they are not told apart."""


class QuotaWindows(NamedTuple):
    """How rates are measured."""

    samples: int = 11
    seconds: int = 1


class Rate:
    """A rate over the last windows."""

    __slots__ = ("_amounts", "_began", "_windows")

    def __init__(self, windows: QuotaWindows) -> None:
        self._windows = windows
        self._began: list[float] = []
        self._amounts: list[float] = []

    def record(self, amount: float, now: float) -> None:
        """Count something that happened now."""
        self._purge(now)
        if not self._began or now - self._began[-1] >= self._windows.seconds:
            self._began.append(now)
            self._amounts.append(0.0)
        self._amounts[-1] += amount

    def unrecord(self, amount: float) -> None:
        """Take back what was counted last."""
        if self._amounts:
            self._amounts[-1] -= amount

    def throttle_s(self, limit: float, now: float) -> float:
        """How long to wait until the rate is down to the limit; 0 if it is not above."""
        self._purge(now)
        elapsed = self._elapsed(now)
        rate = sum(self._amounts) / elapsed
        return (rate - limit) / limit * elapsed if rate > limit else 0.0

    def value(self, now: float) -> float:
        """The rate per second."""
        self._purge(now)
        return sum(self._amounts) / self._elapsed(now)

    def _elapsed(self, now: float) -> float:
        """The time that counts: what has passed, with missing windows as if they had passed."""
        seconds, least = self._windows.seconds, self._windows.samples - 1
        passed = now - self._began[0] if self._began else 0.0
        return passed + max(0, least - int(passed / seconds)) * seconds

    def _purge(self, now: float) -> None:
        oldest = now - self._windows.samples * self._windows.seconds
        while self._began and self._began[0] <= oldest:
            del self._began[0], self._amounts[0]


class TokenBucket:
    """A rate that allows bursts: tokens come back with time, and may be owed."""

    __slots__ = ("_at", "_tokens", "_windows")

    def __init__(self, windows: QuotaWindows) -> None:
        self._windows = windows
        self._tokens: float | None = None
        self._at = 0.0

    def take(self, count: float, limit: float, now: float) -> float:
        """Take tokens if there are any; how long to wait if there were none, else 0."""
        most = limit * self._windows.samples * self._windows.seconds
        if self._tokens is None:
            self._tokens = most
        else:
            self._tokens = min(most, self._tokens + (now - self._at) * limit)
        self._at = now
        if self._tokens <= 0:
            return -self._tokens / limit or 1 / limit
        self._tokens -= count
        return max(0.0, -self._tokens / limit)


def client_quota(
    quotas: Mapping[QuotaEntity, Quotas], key: str, user: str, client_id: str
) -> tuple[float, ClientMeter] | None:
    """The limit of a client and the meter that it is measured by; None if it has no limit."""
    for entity, meter in _candidates(user, client_id):
        limit = quotas.get(entity, {}).get(key)
        if limit is not None:
            return limit, meter
    return None


def ip_quota(quotas: Mapping[QuotaEntity, Quotas], address: str) -> float | None:
    """How many connections a second an address may open; None if that is not limited."""
    for name in (address, None):
        limit = quotas.get(((IP, name),), {}).get(CONNECTION_CREATION_RATE)
        if limit is not None:
            return limit
    return None


def _candidates(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, ClientMeter]]:
    """The entities that may have a limit for the client, the most specific one first."""
    for name in (user, None):
        for client in (client_id, None):
            yield ((CLIENT_ID, client), (USER, name)), (user, client_id)
        yield ((USER, name),), (user, None)
    for client in (client_id, None):
        yield ((CLIENT_ID, client),), (None, client_id)
