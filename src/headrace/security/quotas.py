"""Quotas: entities and keys, the quota that applies to a client, and metering.

The most specific quota applies: of the user and the client id, then of the user, then of the client
id, each by name before the default. Clients that share a quota share its meter. Rates and token
buckets are those of Kafka. Nothing here reads a clock or a socket; `broker/quotas/`
enforces quotas.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from headrace.errors import ErrorCode, KafkaError
from headrace.security.state import QuotaEntity, Quotas

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

USER, CLIENT_ID, IP = "user", "client-id", "ip"

_INT_MAX, _LONG_MAX = 2**31 - 1, 2**63 - 1
_FRACTION = 1e-6

_CLIENT_KEYS: dict[str, int | None] = {
    PRODUCER_BYTE_RATE: _LONG_MAX,
    CONSUMER_BYTE_RATE: _LONG_MAX,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
"""The largest value of a whole number; None where fractions are allowed."""
_IP_KEYS: dict[str, int | None] = {CONNECTION_CREATION_RATE: _INT_MAX}

ClientMeter: TypeAlias = tuple[str | None, str | None]
"""The user and the client id of a meter; None if it is shared by all of them."""


# ------------------------------------------------------------------------- entities and values


def check_entity(parts: Mapping[str, str | None]) -> QuotaEntity:
    """The entity of these types and names; KafkaError if it is not valid."""
    if not parts:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in parts.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP in parts:
        if len(parts) > 1:
            raise _invalid("An entity of type ip cannot be combined with user or client-id")
        name = parts[IP]
        if name is not None and normal_address(name) is None:
            raise _invalid(f"{name} is not a valid IP address")
    return tuple(sorted(parts.items()))


def check_value(entity: QuotaEntity, key: str, value: float) -> None:
    """KafkaError if the quota is not valid for the entity."""
    keys = _IP_KEYS if entity[0][0] == IP else _CLIENT_KEYS
    if key not in keys:
        raise _invalid(f"Invalid configuration key {key}; expected one of {', '.join(keys)}")
    if not value > 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    most = keys[key]
    if most is None:
        return
    if value > most:
        raise _invalid(f"Proposed value for {key} is too large")
    if value % 1 > _FRACTION:
        raise _invalid(f"{key} cannot be a fractional value")


def normal_address(text: str) -> str | None:
    """An IP address in canonical form; None if the text is not an address."""
    import ipaddress  # imported here, because only quotas of addresses need it

    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def client_quota(
    quotas: Mapping[QuotaEntity, Quotas], key: str, user: str, client_id: str
) -> tuple[float, ClientMeter] | None:
    """The limit of a client and its meter; None if it has no limit."""
    for entity, meter in _candidates(user, client_id):
        limit = quotas.get(entity, {}).get(key)
        if limit is not None:
            return limit, meter
    return None


def _candidates(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, ClientMeter]]:
    """The entities whose quota may apply to the client, the most specific first."""
    for name in (user, None):
        for client in (client_id, None):
            yield ((CLIENT_ID, client), (USER, name)), (user, client_id)
        yield ((USER, name),), (user, None)
    for client in (client_id, None):
        yield ((CLIENT_ID, client),), (None, client_id)


def ip_quotas(quotas: Mapping[QuotaEntity, Quotas]) -> dict[str | None, float]:
    """The connection rates of addresses; the key None is the default."""
    return {
        None if name is None else normal_address(name): values[CONNECTION_CREATION_RATE]
        for ((kind, name), *_), values in quotas.items()
        if kind == IP and CONNECTION_CREATION_RATE in values
    }


# -------------------------------------------------------------------------------------- meters


class QuotaWindows(NamedTuple):
    """The windows over which rates are measured."""

    samples: int = 11
    seconds: int = 1

    @property
    def full_s(self) -> float:
        """The shortest time over which a rate is measured: all windows but the present one."""
        return (self.samples - 1) * self.seconds

    @property
    def span_s(self) -> float:
        """How long a sample counts after its last event."""
        return self.samples * self.seconds


class _Sample(NamedTuple):
    began: float
    last: float
    amount: float


class Rate:
    """An amount per second, over the samples of the last windows.

    A sample begins with an event and covers one window. It counts until its last event is `span_s`
    old. The rate is the sum of the samples divided by the time since the oldest one began, to which
    missing windows are added up to `full_s`.
    """

    __slots__ = (
        "_amount", "_began", "_granted", "_last", "_older", "_older_amount", "_window_s",
        "_windows", "left",
    )  # fmt: skip

    def __init__(self, windows: QuotaWindows) -> None:
        self._windows = windows
        self._window_s = windows.seconds
        self._older: list[_Sample] = []
        self._older_amount = 0.0
        """The sum of the older samples; some of them may have expired."""
        self._began = self._last = float("-inf")
        self._amount = 0.0
        self._granted = 0.0
        self.left = 0.0
        """The amount that may be taken from here without `record`; negative: call `settle`."""

    def grant(self, at_once: float, now: float) -> None:
        """Let a client use up what is not too much, without looking at the clock each time.

        `at_once` is an amount that never exceeds the limit. What counts now becomes less with time,
        so the difference stays allowed.
        """
        self.settle(now)
        self._granted = self.left = max(0.0, at_once - self.total(now))

    def settle(self, now: float) -> None:
        """Record what was taken of the grant, and end the grant."""
        used = self._granted - self.left
        self._granted = self.left = 0.0
        if used:
            self.record(used, now)

    def record(self, amount: float, now: float) -> float:
        """Record an amount; returns an upper bound of the sum of the samples."""
        if now - self._began >= self._window_s:
            self._begin_sample(now)
        self._last = now
        self._amount += amount
        return self._older_amount + self._amount

    def _begin_sample(self, now: float) -> None:
        if self._last > float("-inf"):
            self._older.append(_Sample(self._began, self._last, self._amount))
        self._began, self._last, self._amount = now, now, 0.0
        self.total(now)

    def unrecord(self, amount: float) -> None:
        """Undo the last record."""
        self._amount -= amount

    def throttle_s(self, limit: float, now: float) -> float:
        """The throttle time until the rate is at the limit; 0 if it is not above."""
        total = self.total(now)
        if total <= limit * self._windows.full_s:
            return 0.0
        return max(0.0, total / limit - self._elapsed(now))

    def total(self, now: float) -> float:
        """The sum of the samples that have not expired."""
        oldest = now - self._windows.span_s
        older = self._older
        while older and older[0].last <= oldest:
            del older[0]
        if self._last <= oldest:
            self._amount = 0.0
        self._older_amount = sum([sample.amount for sample in older])
        return self._older_amount + self._amount

    def _elapsed(self, now: float) -> float:
        """The time over which the rate is measured, including missing windows."""
        windows = self._windows
        passed = now - (self._older[0].began if self._older else self._began)
        missing = windows.samples - 1 - int(passed / windows.seconds)
        return passed + max(0, missing) * windows.seconds


class TokenBucket:
    """A rate that allows bursts: tokens are refilled over time, and may be negative."""

    __slots__ = ("_at", "_tokens", "_windows")

    def __init__(self, windows: QuotaWindows) -> None:
        self._windows = windows
        self._tokens = float("inf")
        self._at = 0.0

    @property
    def is_used(self) -> bool:
        """Whether the bucket was ever used."""
        return self._tokens < float("inf")

    def owed_s(self, limit: float, now: float) -> float:
        """The time until the number of tokens is not negative; 0 if it is not now."""
        most = limit * self._windows.span_s
        self._tokens = min(most, self._tokens + (now - self._at) * limit)
        self._at = now
        return max(0.0, -self._tokens / limit)

    def take(self, count: float, limit: float, now: float) -> float:
        """Take tokens, even below zero; the time until the number is not negative."""
        self.owed_s(limit, now)
        self._tokens -= count
        return max(0.0, -self._tokens / limit)
