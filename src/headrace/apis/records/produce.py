"""Produce (0), versions 0-13.

Appends one record batch per partition and answers with its base offset. `acks=0` answers nothing
(and closes the connection on an error, as the client could not learn of it otherwise), `acks=1`
and `acks=all` answer once the batch is committed as the topic asks.

A request with a transactional id asks the transaction coordinator first whether its partitions
are in the transaction (`produce_transactions.py`); all others never hear of it.

v3 carries batches of magic 2 only; v0-2 are advertised for old clients' sake and refused when
used; v8 error messages and the records that are refused (KIP-467); v9 flexible; v11
TRANSACTION_ABORTABLE; v12 adds partitions to the transaction itself (KIP-890); v13 topics by id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING

from headrace.apis.context import Services
from headrace.errors import ErrorCode, KafkaError
from headrace.replication.partition import Partition
from headrace.wire.fast import (
    PRODUCE_FLEXIBLE_FROM,
    PRODUCE_TOPIC_IDS_FROM,
    ProduceRequest,
    ProduceResult,
    TopicKey,
    parse_produce,
    parse_usual_produce,
    produce_response,
    usual_produce_response,
)

if TYPE_CHECKING:
    from headrace.apis.records.produce_transactions import Leave, Leaves

_Topics = list[tuple[TopicKey, list[ProduceResult]]]
_Pending = list[tuple[list[ProduceResult], int, Partition, int]]
"""Where the answer stands that has to wait, its partition, and the offset to be committed."""


class SilentFailure(Exception):
    """An `acks=0` produce failed; closing the connection is the only way to tell the client."""


class Produce:
    """Appends what producers send."""

    def __init__(self, services: Services) -> None:
        self._by_key = services.replicas.by_key
        self._clock = services.clock
        self._services = services
        self._leaves: Leaves | None = None

    def __call__(
        self,
        buf: bytearray,
        view: memoryview,
        pos: int,
        end: int,
        version: int,
        correlation_id: int,
    ) -> bytes | Coroutine[None, None, bytes | None] | None:
        """The answer, None where none is due, or a coroutine that waits for the commit."""
        if version >= PRODUCE_FLEXIBLE_FROM:
            usual = parse_usual_produce(buf, pos, end, version)
            if usual is not None:
                acks, key, index, start, stop = usual
                partitions = self._by_key.get(key)
                if partitions is not None and 0 <= index < len(partitions) and -1 <= acks <= 1:
                    partition = partitions[index]
                    if not partition.held:
                        try:
                            base, append_time, log_start = partition.append(
                                buf, view, start, stop, acks, self._clock.now_ms()
                            )
                        except KafkaError as error:
                            failed = _refused(index, error)
                            return _answer(acks, [(key, [failed])], version, correlation_id)
                        if acks == 0:
                            return None
                        return usual_produce_response(
                            version, correlation_id, key, index, base, append_time, log_start
                        )
        request = parse_produce(buf, view, pos, end, version)
        if request.transactional_id is None:
            return self._append_all(request, buf, view, version, correlation_id)
        leave = self._ask_leave(request, buf, version)
        if isinstance(leave, Coroutine):
            # The buffer is used again before the coordinator has answered.
            own = bytearray(view[pos:end])
            return self._append_later(leave, own, version, correlation_id)
        return self._append_all(request, buf, view, version, correlation_id, leave)

    def _ask_leave(
        self, request: ProduceRequest, buf: bytearray, version: int
    ) -> Leave | Coroutine[None, None, Leave]:
        if self._leaves is None:
            # Imported here, because a broker without transactions starts faster.
            from headrace.apis.records.produce_transactions import Leaves

            self._leaves = Leaves(self._services)
        return self._leaves.ask(request, buf, version)

    async def _append_later(
        self,
        asked: Coroutine[None, None, Leave],
        buf: bytearray,
        version: int,
        correlation_id: int,
    ) -> bytes | None:
        """Append once the coordinator has spoken."""
        leave = await asked
        view = memoryview(buf)
        request = parse_produce(buf, view, 0, len(buf), version)
        answer = self._append_all(request, buf, view, version, correlation_id, leave)
        return answer if answer is None or isinstance(answer, bytes) else await answer

    def _append_all(
        self,
        request: ProduceRequest,
        buf: bytearray,
        view: memoryview,
        version: int,
        correlation_id: int,
        leave: Leave | None = None,
    ) -> bytes | Coroutine[None, None, bytes | None] | None:
        acks = request.acks
        if not -1 <= acks <= 1:
            return refuse_produce(request, ErrorCode.INVALID_REQUIRED_ACKS, version, correlation_id)
        now_ms = self._clock.now_ms()
        topics: _Topics = []
        pending: _Pending | None = None
        for key, batches in request.topics:
            partitions = self._by_key.get(key)
            results: list[ProduceResult] = []
            for index, start, end in batches:
                if partitions is None or not 0 <= index < len(partitions):
                    results.append(_unknown(index, partitions is None, version))
                    continue
                partition = partitions[index]
                try:
                    base, append_time, log_start = partition.append(
                        buf, view, start, end, acks, now_ms,
                        None if leave is None else leave.of(partition),
                    )  # fmt: skip
                except KafkaError as error:
                    results.append(_refused(index, error))
                    continue
                if (acks < 0 or partition.flushes_first) and not partition.is_committed(base + 1):
                    if pending is None:
                        pending = []
                    pending.append((results, len(results), partition, partition.log.end_offset))
                results.append((index, 0, base, append_time, log_start, None, ()))
            topics.append((key, results))
        if pending is not None and acks != 0:
            # At once: whoever stops leading before the answer is awaited fails them.
            commits = [partition.wait_committed(offset) for _, _, partition, offset in pending]
            return _wait(commits, pending, topics, request.timeout_ms, version, correlation_id)
        return _answer(acks, topics, version, correlation_id)


def _answer(acks: int, topics: _Topics, version: int, correlation_id: int) -> bytes | None:
    if acks != 0:
        return produce_response(version, correlation_id, topics)
    if any(result[1] for _, results in topics for result in results):
        raise SilentFailure
    return None


async def _wait(
    commits: list[asyncio.Future[None]],
    pending: _Pending,
    topics: _Topics,
    timeout_ms: int,
    version: int,
    correlation_id: int,
) -> bytes:
    """Answer when every batch is committed, or when the producer's patience ends."""
    await asyncio.wait(commits, timeout=max(timeout_ms, 0) / 1000)
    for commit, (results, place, _, _) in zip(commits, pending, strict=True):
        index, _, _, _, log_start, _, _ = results[place]
        if not commit.done():
            commit.cancel()
            results[place] = (
                index, ErrorCode.REQUEST_TIMED_OUT, -1, -1, log_start,
                f"not committed within {timeout_ms} ms", (),
            )  # fmt: skip
        elif (error := commit.exception()) is not None:
            code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
            results[place] = (index, code, -1, -1, log_start, str(error), ())
    return produce_response(version, correlation_id, topics)


def _refused(index: int, error: KafkaError) -> ProduceResult:
    return index, error.code, -1, -1, -1, error.message, error.record_errors


def _unknown(index: int, topic_unknown: bool, version: int) -> ProduceResult:
    if topic_unknown and version >= PRODUCE_TOPIC_IDS_FROM:
        return _refused(
            index, KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
        )
    return _refused(
        index,
        KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition here"),
    )


def refuse_produce(
    request: ProduceRequest, code: ErrorCode, version: int, correlation_id: int
) -> bytes:
    """The same error for every partition of the request."""
    return produce_response(
        version,
        correlation_id,
        [
            (key, [(index, code, -1, -1, -1, None, ()) for index, _, _ in batches])
            for key, batches in request.topics
        ],
    )
