"""Fetch (1) of very many partitions, in steps.

A request with more than `wire.fast.MANY_FETCHED` partitions comes here. A few partitions are read
at a time, and the parts of the response are combined. A request that opens a session is answered
immediately, without a wait for `min_bytes`: the client's next request is incremental and waits. A
request without a session is read again every `AGAIN_S` until there are enough bytes or
`max_wait_ms` have passed. Above `MOST_IN_SESSION` partitions no session is created, as if all slots
were taken.
"""

import asyncio
from dataclasses import dataclass, field
from itertools import islice
from time import perf_counter
from typing import Any

from headrace.apis.context import Caller
from headrace.apis.hot import Answer
from headrace.apis.records.fetch import READ_COMMITTED, Fetch
from headrace.apis.records.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchSession,
    SessionPartition,
)
from headrace.apis.routes import FETCH
from headrace.apis.slices import Slices
from headrace.wire import codec
from headrace.wire.fast import (
    FETCH_TOPIC_IDS_FROM,
    Chunk,
    FetchPartition,
    FetchRequest,
    TopicKey,
    fetch_body,
    join_fetch_bodies,
)
from headrace.wire.results import FetchResult
from headrace.wire.steps import Steps

AGAIN_S = 0.05
MOST_IN_SESSION = 20_000
_TOGETHER = 128
"""Partitions that are read in one step."""
_STRIDE = 256


@dataclass(slots=True)
class Read:
    """The results of a large request."""

    version: int
    session_id: int = 0
    ready: bool = False
    topics: int = 0
    total_bytes: int = 0
    chunks: list[Chunk] = field(default_factory=list)
    counted_later: list[tuple[FetchSession, list[tuple[TopicKey, list[FetchResult]]]]] = field(
        default_factory=list
    )
    """What counts as sent only if this is the answer."""

    def response(self, correlation_id: int, throttle_ms: int) -> list[Chunk]:
        """The whole frame."""
        return join_fetch_bodies(
            self.version, correlation_id, throttle_ms, self.session_id, self.topics, self.chunks
        )


class LargeFetch:
    """Answers a large request."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    async def __call__(
        self, slices: Slices, caller: Caller, body: bytearray, version: int, correlation_id: int
    ) -> Answer:
        """The response, when there are enough bytes or `max_wait_ms` have passed."""
        message = await slices.finish(codec.read_steps(FETCH.key, version, body))
        request = await slices.finish(request_steps(message, version))
        if request.session_epoch > INITIAL_EPOCH:
            answer = self._fetch.answer(caller, request, version, correlation_id)
            return answer if isinstance(answer, list) else await answer
        quota = caller.fetch_quota if request.replica_id < 0 else None
        if quota is not None:
            request = quota.cap(request)
        until = perf_counter() + request.max_wait_ms / 1000
        while True:
            read = await slices.finish(read_steps(self._fetch, caller, request, version))
            if read.ready or perf_counter() >= until:
                if quota is not None and quota.withholds(read.total_bytes):
                    self._fetch.sessions.drop(read.session_id)
                    read = Read(version)
                for session, topics in read.counted_later:
                    self._fetch.sent(session, topics, to_follower=request.replica_id >= 0)
                return read.response(correlation_id, caller.throttle_ms)
            await asyncio.sleep(AGAIN_S)


def request_steps(message: Any, version: int) -> Steps[FetchRequest]:
    """The request, from kio's class of its version."""
    count = 0
    topics: list[tuple[TopicKey, list[FetchPartition]]] = []
    for topic in message.topics:
        key = topic.topic_id.bytes if version >= FETCH_TOPIC_IDS_FROM else topic.topic.encode()
        partitions: list[FetchPartition] = []
        for one in topic.partitions:
            partitions.append(
                (
                    one.partition, getattr(one, "current_leader_epoch", -1), one.fetch_offset,
                    getattr(one, "last_fetched_epoch", -1), getattr(one, "log_start_offset", -1),
                    one.partition_max_bytes,
                )
            )  # fmt: skip
            count += 1
            if not count % _STRIDE:
                yield
        topics.append((key, partitions))
        yield
    replica = getattr(message, "replica_state", None)
    return FetchRequest(
        replica.replica_id if replica is not None else message.replica_id,
        int(message.max_wait.total_seconds() * 1000),
        message.min_bytes,
        message.max_bytes,
        message.isolation_level,
        getattr(message, "session_id", 0),
        getattr(message, "session_epoch", FINAL_EPOCH),
        topics,
        [],
        replica.replica_epoch if replica is not None else -1,
        getattr(message, "rack_id", ""),
    )


def read_steps(fetch: Fetch, caller: Caller, request: FetchRequest, version: int) -> Steps[Read]:
    """Read all partitions of a full request once."""
    by_ids = version >= FETCH_TOPIC_IDS_FROM
    read = Read(version)
    count = sum(len(partitions) for _, partitions in request.topics)
    if request.session_epoch == INITIAL_EPOCH and count <= MOST_IN_SESSION:
        session, _ = fetch.sessions.session_for(request, by_ids)
        if session.id:
            read.session_id = session.id
            read.ready = True
            entries = iter(list(session.entries.values()))
            while some := list(islice(entries, _TOGETHER)):
                _read_some(fetch, caller, session, some, request, read)
                yield
            return read
    fetch.sessions.drop(request.session_id)
    for key, partitions in request.topics:
        for start in range(0, max(len(partitions), 1), _TOGETHER):
            part = request._replace(topics=[(key, partitions[start : start + _TOGETHER])])
            session = FetchSession(0, by_ids, part)
            _read_some(fetch, caller, session, list(session.entries.values()), request, read)
            yield
    return read


def _read_some(
    fetch: Fetch,
    caller: Caller,
    session: FetchSession,
    entries: list[SessionPartition],
    request: FetchRequest,
    read: Read,
) -> None:
    left = request._replace(max_bytes=max(request.max_bytes - read.total_bytes, 0))
    topics, ready = fetch.read(caller, session, left, False, entries, read.total_bytes)
    read.ready = read.ready or ready
    read.topics += len(topics)
    for key, results in topics:
        for result in results:
            if result.records is not None:
                read.total_bytes += result.records.length
            elif session.id and request.replica_id < 0:
                _watch_if_quiet(
                    session, session.entries[key, result.partition_index], result, request
                )
    if session.id:
        fetch.sent(session, topics, to_follower=request.replica_id >= 0)
    else:
        read.counted_later.append((session, topics))
    read.chunks += fetch_body(read.version, topics)


def _watch_if_quiet(
    session: FetchSession, entry: SessionPartition, result: FetchResult, request: FetchRequest
) -> None:
    """Exclude a partition without news from the next incremental read until it changes."""
    committed = request.isolation == READ_COMMITTED
    end = result.last_stable_offset if committed else result.high_watermark
    if not result.error_code and entry.offset >= end and entry in session.dirty:
        entry.watch()
        del session.dirty[entry]
