"""Client quotas: measures what requests use, and mutes connections over their quota.

As in Kafka (KIP-219), a request over a quota is answered immediately with the throttle time, and
its connection is not read until that time has passed. Produce counts the bytes of its request.
Fetch counts the records of its response; a response over the quota is not counted, and is sent
without records. CreateTopics, DeleteTopics and CreatePartitions count partitions. Request time is
counted at the end of a request, so that it throttles the client's next request.

It is used only while the cluster has client quotas (`serving.py`).
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from functools import partial
from time import perf_counter
from typing import Any

from headrace.apis.hot import Answer, Later, LongProduce
from headrace.apis.routes import FETCH, PRODUCE, ROUTES, QuotaClass
from headrace.broker.connection import ClientConnection, Handler
from headrace.broker.metrics.values import Metrics
from headrace.clock import Clock
from headrace.errors import ErrorCode, KafkaError
from headrace.security.quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientMeter,
    QuotaWindows,
    Rate,
    TokenBucket,
    client_quota,
)
from headrace.security.state import QuotaEntity, Quotas
from headrace.settings import Settings
from headrace.wire.fast import FetchRequest
from headrace.wire.framing import REQUEST_START_BYTES, request_start

_PRODUCE_KEY, _FETCH = PRODUCE.key.to_bytes(2), FETCH.key
_EXEMPT = frozenset(key for key, row in ROUTES.items() if row.quota is QuotaClass.EXEMPT)
_PERCENT = 100.0
_MANY_METERS = 10_000
_MOST_MS = 2**31 - 1
"""The longest throttle time that a response has room for."""
_GRANT_S = 0.1
"""How long a client may use up a grant; short beside a window of quotas."""
_LENGTH_BYTES = 2
_CLIENT_AT = REQUEST_START_BYTES - _LENGTH_BYTES
"""Where the client id begins in a request, with its length."""


class Limited:
    """A limit, and the meter that its clients share."""

    __slots__ = ("at_once", "labels", "limit", "meter")

    def __init__(
        self, key: str, limit: float, shared_by: ClientMeter, meter: Any, windows: QuotaWindows
    ) -> None:
        self.limit = limit
        self.at_once = limit * windows.full_s
        """An amount that never exceeds the limit."""
        self.meter = meter
        user, client_id = shared_by
        self.labels = (key, user or "", client_id or "")

    def count(self, amount: float, now: float) -> float:
        """Count an amount; the throttle time in seconds."""
        meter: Rate = self.meter
        meter.settle(now)
        if meter.record(amount, now) <= self.at_once:
            return 0.0
        return meter.throttle_s(self.limit, now)


class ConnectionQuota:
    """The quotas of a client id on one connection: `apis.context.ClientQuota`."""

    __slots__ = (
        "_connection", "_throttling", "client", "fetch", "is_consumer", "mutation",
        "produce", "produce_rate", "request", "unlimited",
    )  # fmt: skip

    def __init__(
        self, throttling: "Throttling", connection: ClientConnection, client: bytes
    ) -> None:
        self._throttling = throttling
        self._connection = connection
        self.client = client
        """The client id as the headers of requests have it, with its length before it."""
        user = connection.caller.principal.partition(":")[2]
        find = partial(throttling.find, user, str(client[_LENGTH_BYTES:], "utf-8", "replace"))
        self.produce = find(PRODUCER_BYTE_RATE)
        self.fetch = find(CONSUMER_BYTE_RATE)
        self.request = find(REQUEST_PERCENTAGE)
        self.mutation = find(CONTROLLER_MUTATION_RATE)
        self.produce_rate: Rate | None = None
        """The meter of produced bytes if it is all that a Produce has to be counted by."""
        if self.produce is not None and self.request is None:
            self.produce_rate = self.produce.meter
        self.unlimited = not (self.produce or self.fetch or self.request or self.mutation)
        self.is_consumer = False

    def throttle(self, limited: Limited, seconds: float) -> None:
        """Set the throttle time of the response, and mute the connection for that time."""
        throttle_ms = min(round(seconds * 1000), _MOST_MS)
        if throttle_ms <= 0:
            return
        caller = self._connection.caller
        caller.throttle_ms = max(caller.throttle_ms, throttle_ms)
        self._connection.mute(caller.throttle_ms / 1000)
        self._throttling.metrics.add(
            "headrace_throttle_seconds_total", throttle_ms / 1000, *limited.labels
        )

    def throttle_for_time(self, now: float) -> float:
        """Throttle the client for its request time; the throttle time in seconds."""
        if self.request is None:
            return 0.0
        windows = self._throttling.windows
        over = self.request.meter.throttle_s(self.request.limit, now)
        seconds: float = min(over, windows.seconds)
        self.throttle(self.request, seconds)
        return seconds

    def count_time(self, seconds: float) -> None:
        """Count the time that a request took."""
        if self.request is not None:
            self.request.meter.record(seconds * _PERCENT, self._throttling.now())

    def cap(self, request: FetchRequest) -> FetchRequest:
        self.is_consumer = True
        if self.fetch is None:
            return request
        most = int(self.fetch.limit * self._throttling.windows.full_s)
        if request.max_bytes <= most:
            return request
        return request._replace(max_bytes=most, min_bytes=min(request.min_bytes, most))

    def withholds(self, response_bytes: int) -> bool:
        now = self._throttling.now()
        withheld = self.throttle_for_time(now) > 0
        fetch = self.fetch
        if fetch is None:
            return withheld
        seconds = fetch.count(response_bytes, now)
        self.throttle(fetch, seconds)
        # A batch that is larger than the quota of all windows passes while it is the only one.
        if withheld or (seconds > 0 and fetch.meter.total(now) > response_bytes):
            fetch.meter.unrecord(response_bytes)
            return True
        return False

    def take_mutations(self, partitions: int, strict: bool) -> KafkaError | None:
        mutation = self.mutation
        if mutation is None:
            return None
        bucket: TokenBucket = mutation.meter
        now = self._throttling.now()
        if strict and (owed_s := bucket.owed_s(mutation.limit, now)) > 0:
            self.throttle(mutation, owed_s)
            return KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{CONTROLLER_MUTATION_RATE} of {mutation.limit:g} partitions a second is used up; "
                f"try again in {owed_s:.1f} s",
            )
        owed_s = bucket.take(partitions, mutation.limit, now)
        if not strict:
            self.throttle(mutation, owed_s)
        return None

    def may_create(self, partitions: int) -> bool:
        mutation = self.mutation
        if mutation is None:
            return True
        bucket: TokenBucket = mutation.meter
        now = self._throttling.now()
        if bucket.owed_s(mutation.limit, now) > 0:
            return False
        bucket.take(partitions, mutation.limit, now)
        return True


class Throttling:
    """Passes requests to the handler, counts what they use, and throttles clients."""

    def __init__(
        self,
        handler: Handler,
        settings: Settings,
        clock: Clock,
        metrics: Metrics,
        connections: Iterable[ClientConnection],
    ) -> None:
        self._connections = connections
        self._handle = handler.handle
        self.now: Callable[[], float] = clock.monotonic
        self.metrics = metrics
        self.windows = QuotaWindows(
            settings.integer("quota.window.num"), settings.integer("quota.window.size.seconds")
        )
        self._mutation_windows = QuotaWindows(
            settings.integer("controller.quota.window.num"),
            settings.integer("controller.quota.window.size.seconds"),
        )
        self._quotas: Mapping[QuotaEntity, Quotas] = {}
        self._rates: dict[tuple[str, ClientMeter], Rate] = {}
        self._buckets: dict[tuple[str, ClientMeter], TokenBucket] = {}
        self._forget_at = 2 * _MANY_METERS
        self._granted: list[Rate] = []

    @property
    def quotas(self) -> Mapping[QuotaEntity, Quotas]:
        """The quotas of the cluster."""
        return self._quotas

    @quotas.setter
    def quotas(self, quotas: Mapping[QuotaEntity, Quotas]) -> None:
        self._quotas = quotas
        self._settle()
        self._look_up_again()

    def find(self, user: str, client_id: str, key: str) -> Limited | None:
        """A client's limit and the meter that it shares; None if it has no such limit."""
        found = client_quota(self._quotas, key, user, client_id)
        if found is None:
            return None
        limit, shared_by = found
        if key == CONTROLLER_MUTATION_RATE:
            if (key, shared_by) not in self._buckets:
                self._buckets[key, shared_by] = TokenBucket(self._mutation_windows)
            bucket = self._buckets[key, shared_by]
            return Limited(key, limit, shared_by, bucket, self._mutation_windows)
        if (key, shared_by) not in self._rates:
            self._rates[key, shared_by] = Rate(self.windows)
        return Limited(key, limit, shared_by, self._rates[key, shared_by], self.windows)

    def _forget_idle(self) -> None:
        """Remove idle meters, because clients choose their ids and could create any number."""
        if len(self._rates) + len(self._buckets) < self._forget_at:
            return
        self._settle()
        now = self.now()
        self._rates = {one: rate for one, rate in self._rates.items() if rate.total(now) > 0}
        self._buckets = {one: bucket for one, bucket in self._buckets.items() if bucket.is_used}
        self._forget_at = 2 * max(len(self._rates) + len(self._buckets), _MANY_METERS)
        self._look_up_again()

    def _look_up_again(self) -> None:
        """Let all connections find their meters again."""
        for connection in self._connections:
            connection.caller.quota = connection.caller.fetch_quota = None

    def handle(
        self, connection: ClientConnection, buf: bytearray, view: memoryview, pos: int, end: int
    ) -> Answer | Later:
        """The response to the request in [pos, end), or an awaitable of it."""
        caller = connection.caller
        quota: ConnectionQuota | None = caller.quota  # type: ignore[assignment]
        if quota is None or not buf.startswith(quota.client, pos + _CLIENT_AT):
            quota = self._quota_of(connection, buf, pos)
        caller.throttle_ms = 0
        if buf.startswith(_PRODUCE_KEY, pos):
            rate = quota.produce_rate
            if rate is not None:
                left = rate.left - (end - pos)
                if left >= 0:
                    rate.left = left
                    return self._handle(connection, buf, view, pos, end)
            if (produce := quota.produce) is not None:
                throttle_s = self._count_produce(produce, end - pos)
                if throttle_s:
                    quota.throttle(produce, throttle_s)
                elif quota.request is None:
                    return self._handle(connection, buf, view, pos, end)
        key = buf[pos] << 8 | buf[pos + 1]
        if quota.unlimited or key in _EXEMPT:
            return self._handle(connection, buf, view, pos, end)
        if quota.request is None:
            answer = self._handle(connection, buf, view, pos, end)
        else:
            answer = self._handle_timed(quota, key, connection, buf, view, pos, end)
        if connection.muted and (answer is None or type(answer) is bytes):
            return [answer] if answer else []  # the connection stops to read after a list
        return answer

    def _count_produce(self, produce: Limited, size: int) -> float:
        """Count a Produce; the throttle time in seconds.

        Far from the limit, the next ones are counted by a subtraction until the grant is used up
        or its time is over.
        """
        now = self.now()
        throttle_s = produce.count(size, now)
        if not throttle_s:
            produce.meter.grant(produce.at_once, now)
            if not self._granted:
                asyncio.get_running_loop().call_later(_GRANT_S, self._settle)
            self._granted.append(produce.meter)
        return throttle_s

    def _settle(self) -> None:
        """Record what was taken of grants, so that it counts in about the window of its time."""
        now = self.now()
        for rate in self._granted:
            rate.settle(now)
        self._granted.clear()

    def _quota_of(self, connection: ClientConnection, buf: bytearray, pos: int) -> ConnectionQuota:
        """The quota of a request's client id; it becomes the quota of the connection."""
        self._forget_idle()
        _, _, _, size = request_start(buf, pos)
        start = pos + _CLIENT_AT
        client = bytes(buf[start : start + _LENGTH_BYTES + max(size, 0)])
        quota = ConnectionQuota(self, connection, client)
        caller = connection.caller
        caller.quota = quota
        caller.fetch_quota = quota if quota.fetch or quota.request else None
        return quota

    def _handle_timed(
        self,
        quota: ConnectionQuota,
        key: int,
        connection: ClientConnection,
        buf: bytearray,
        view: memoryview,
        pos: int,
        end: int,
    ) -> Answer | Later:
        """Handle a request of a client whose request time is limited."""
        quota.is_consumer = False
        if key != _FETCH:  # Fetch finds out later whether a follower sent it
            quota.throttle_for_time(self.now())
        began = perf_counter()
        answer = self._handle(connection, buf, view, pos, end)
        if key != _FETCH or quota.is_consumer:
            quota.count_time(perf_counter() - began)
        if isinstance(answer, LongProduce):
            return LongProduce(_count_steps(answer.appended, quota))
        if isinstance(answer, Coroutine):
            return _count_steps(answer, quota)
        return answer


async def _count_steps(work: Coroutine[None, None, Any], quota: ConnectionQuota) -> Any:
    return await _CountedSteps(work, quota)


class _CountedSteps:
    """Counts the time in which a coroutine runs on the event loop."""

    __slots__ = ("_quota", "_work")

    def __init__(self, work: Coroutine[None, None, Any], quota: ConnectionQuota) -> None:
        self._work = work
        self._quota = quota

    def __await__(self) -> Generator[Any, Any, Any]:
        steps: Any = self._work.__await__()
        step: Callable[[], Any] = partial(next, steps)
        while True:
            began = perf_counter()
            try:
                waits_for = step()
            except StopIteration as done:
                return done.value
            finally:
                self._quota.count_time(perf_counter() - began)
            try:
                yield waits_for
            except BaseException as error:
                step = partial(steps.throw, error)
            else:
                step = partial(next, steps)
