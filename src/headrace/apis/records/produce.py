"""Produce (0), versions 0-13.

Appends one record batch per partition and returns its base offset. With `acks=0` there is no
response, and an error closes the connection, because the client has no other way to notice it. With
`acks=1` and `acks=all` the response is sent when the batch is committed as the topic requires.

A batch whose records take long to examine is examined in steps (`long_batches.py`). Its connection
is not read meanwhile, so that batches are appended in the order of requests. The other checks of
the batch are made after the examination.

For a request with a transactional id, the transaction coordinator first verifies that the
partitions are in the transaction (`produce_transactions.py`).

v3 has batches of magic 2 only; v0-2 are advertised because old clients expect them, and are
refused; v8 error messages and the refused records (KIP-467); v9 flexible; v11
TRANSACTION_ABORTABLE; v12 adds partitions to the transaction (KIP-890); v13 topics by id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING

from headrace.apis.context import Caller, Services
from headrace.apis.hot import CloseConnection, LongProduce, LongRequest
from headrace.apis.routes import PRODUCE
from headrace.errors import ErrorCode, KafkaError
from headrace.replication.examination import Examination, Examined, TakesLong
from headrace.security.acls import AclOperation, ResourceType
from headrace.wire.fast import (
    PRODUCE_FLEXIBLE_FROM,
    PRODUCE_TOPIC_IDS_FROM,
    PRODUCE_VERSIONS,
    ManyPartitions,
    ProduceRequest,
    TopicKey,
    parse_produce,
    parse_usual_produce,
    produce_response,
    usual_produce_response,
)
from headrace.wire.results import ProduceResult

if TYPE_CHECKING:
    from headrace.apis.records.produce_transactions import WritePermission, WritePermissions

_Topics = list[tuple[TopicKey, list[ProduceResult]]]
_Pending = list[tuple[list[ProduceResult], int, asyncio.Future[None]]]
"""Results that wait for a commit: their list, their index in it, and the commit."""

_Answer = bytes | Coroutine[None, None, bytes | None] | None
_Appending = Generator[Examination | None, Examined | KafkaError | None, _Answer]
"""Appends the batches of a request. It yields the examination that it waits for, or None to let
other requests run, and returns the response."""

_AT_ONCE_S = 0.002
"""After this time, the rest of a request waits until other clients have been served."""


class Produce:
    """Appends the batches of producers."""

    versions = PRODUCE_VERSIONS

    def __init__(self, services: Services) -> None:
        self._by_key = services.replicas.by_key
        self._clock = services.clock
        self._services = services
        self._permissions: WritePermissions | None = None
        self._slices = services.slices
        self._long_batches = services.long_batches
        self._errors = services.errors

    def __call__(
        self,
        caller: Caller,
        buf: bytearray,
        view: memoryview,
        pos: int,
        end: int,
        version: int,
        correlation_id: int,
    ) -> _Answer | LongProduce:
        """The response, None without one (acks=0), or a coroutine that returns it."""
        if version >= PRODUCE_FLEXIBLE_FROM:
            usual = parse_usual_produce(buf, pos, end, version)
            if usual is not None:
                acks, key, index, start, stop = usual
                partitions = self._by_key.get(key)
                if partitions is not None and 0 <= index < len(partitions) and -1 <= acks <= 1:
                    partition = partitions[index]
                    permissions = caller.permissions
                    allowed = permissions is None or permissions.may_write(partition.name.topic)
                    if allowed and not partition.commits_later:
                        try:
                            base, append_time, log_start = partition.append(
                                buf, view, start, stop, acks, self._clock.now_ms()
                            )
                        except KafkaError as error:
                            failed = self._refused(index, error)
                            return _answer(caller, acks, [(key, [failed])], version, correlation_id)
                        except TakesLong:
                            pass
                        else:
                            if acks == 0:
                                return None
                            return usual_produce_response(
                                version, correlation_id, caller.throttle_ms, key, index, base,
                                append_time, log_start,
                            )  # fmt: skip
        try:
            request = parse_produce(buf, view, pos, end, version)
        except ManyPartitions:
            # Imported here, because it is rare.
            from headrace.apis.records.large_produce import LargeProduce

            raise LongRequest(LargeProduce(self)) from None
        if request.transactional_id is None:
            return self._append_all(caller, request, buf, view, version, correlation_id)
        kind = ResourceType.TRANSACTIONAL_ID
        if not caller.may(AclOperation.WRITE, kind, request.transactional_id):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return self._refuse_all(caller, request, code, version, correlation_id)
        writable = self._allowed(caller, request, version)
        permission = self._ask_permission(writable, buf, version)
        if isinstance(permission, Coroutine):
            # The buffer is reused before the coordinator responds.
            own = bytearray(view[pos:end])
            return self._append_later(caller, permission, own, version, correlation_id)
        return self._append_all(caller, request, buf, view, version, correlation_id, permission)

    def _ask_permission(
        self, request: ProduceRequest, buf: bytearray, version: int
    ) -> WritePermission | Coroutine[None, None, WritePermission]:
        if self._permissions is None:
            # Imported here, because a broker without transactions starts faster.
            from headrace.apis.records.produce_transactions import WritePermissions

            self._permissions = WritePermissions(self._services)
        return self._permissions.ask(request, buf, version)

    async def _append_later(
        self,
        caller: Caller,
        asked: Coroutine[None, None, WritePermission],
        buf: bytearray,
        version: int,
        correlation_id: int,
    ) -> bytes | None:
        """Append when the coordinator has responded."""
        permission = await asked
        view = memoryview(buf)
        request = parse_produce(buf, view, 0, len(buf), version)
        try:
            answer = self._append_all(
                caller, request, buf, view, version, correlation_id, permission
            )
            if isinstance(answer, LongProduce):
                answer = await answer.appended
        finally:
            permission.end_turn()
        return answer if answer is None or isinstance(answer, bytes) else await answer

    def _append_all(
        self,
        caller: Caller,
        request: ProduceRequest,
        buf: bytearray,
        view: memoryview,
        version: int,
        correlation_id: int,
        permission: WritePermission | None = None,
    ) -> _Answer | LongProduce:
        steps = self._append_steps(caller, request, buf, view, version, correlation_id, permission)
        try:
            wanted = next(steps)
        except StopIteration as end:
            answer: _Answer = end.value
            return answer
        return LongProduce(self._finish(steps, wanted))

    def _append_steps(
        self,
        caller: Caller,
        request: ProduceRequest,
        buf: bytearray,
        view: memoryview,
        version: int,
        correlation_id: int,
        permission: WritePermission | None = None,
    ) -> _Appending:
        """Append all batches. `buf` is copied before other requests, which may reuse it, run."""
        acks = request.acks
        if not -1 <= acks <= 1:
            return self._refuse_acks(caller, request, version, correlation_id)
        now_ms = self._clock.now_ms()
        topics: _Topics = []
        pending: _Pending = []
        first, copied = 0, False
        several = len(request.topics) != 1 or len(request.topics[0][1]) != 1
        now = self._slices.now
        until = now() + _AT_ONCE_S if several else 0.0
        for key, batches in request.topics:
            results: list[ProduceResult] = []
            topics.append((key, results))
            if caller.permissions is not None and self._is_denied(caller, key, version):
                results += (self._forbidden(index) for index, _, _ in batches)
                continue
            for index, start, end in batches:
                wanted: Examination | None = None
                examined: Examined | None = None
                pause = several and now() > until
                while True:
                    if pause:
                        if not copied:
                            first, buf = _copy(request, view)
                            view, copied = memoryview(buf), True
                        if wanted is not None:
                            wanted.batch = view[start - first : end - first]
                        found = yield wanted
                        if isinstance(found, KafkaError):
                            results.append(self._refused(index, found))
                            break
                        examined = found
                        now_ms, until = self._clock.now_ms(), now() + _AT_ONCE_S
                    partitions = self._by_key.get(key)
                    if partitions is None or not 0 <= index < len(partitions):
                        results.append(self._unknown(index, partitions is None, version))
                        break
                    partition = partitions[index]
                    try:
                        base, append_time, log_start = partition.append(
                            buf, view, start - first, end - first, acks, now_ms,
                            None if permission is None else permission.of(partition), examined,
                        )  # fmt: skip
                    except KafkaError as error:
                        results.append(self._refused(index, error))
                        break
                    except TakesLong as long:
                        wanted, pause = long.examination, True
                        continue
                    waits = acks < 0 or (acks and partition.flushes_first)
                    if waits and not partition.replica.is_committed(base + 1):
                        # Immediately: if this broker stops being the leader, the future fails.
                        commit = partition.wait_committed(partition.replica.log.end_offset)
                        pending.append((results, len(results), commit))
                    results.append(ProduceResult(index, 0, base, append_time, log_start))
                    break
        if pending:
            return self._wait(caller, pending, topics, request, version, correlation_id)
        return _answer(caller, acks, topics, version, correlation_id)

    async def _wait(
        self,
        caller: Caller,
        pending: _Pending,
        topics: _Topics,
        request: ProduceRequest,
        version: int,
        correlation_id: int,
    ) -> bytes:
        """Answer when every batch is committed, or after the request's `timeout_ms`."""
        timeout_ms = request.timeout_ms
        commits = [commit for _, _, commit in pending]
        await asyncio.wait(commits, timeout=max(timeout_ms, 0) / 1000)
        for results, place, commit in pending:
            if not commit.done():
                commit.cancel()
                code, message = ErrorCode.REQUEST_TIMED_OUT, f"not committed within {timeout_ms} ms"
            elif (error := commit.exception()) is not None:
                code = (
                    error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
                )
                message = str(error)
            else:
                continue
            self._errors.add(PRODUCE.key, code)
            start = results[place].log_start_offset
            results[place] = ProduceResult(
                results[place].partition_index, code, log_start_offset=start, error_message=message
            )
        return produce_response(version, correlation_id, caller.throttle_ms, topics)

    def _refused(self, index: int, error: KafkaError) -> ProduceResult:
        """The result of a batch that is not appended."""
        self._errors.add(PRODUCE.key, error.code)
        return ProduceResult(
            index, error.code, error_message=error.message, record_errors=error.record_errors
        )

    def _forbidden(self, index: int) -> ProduceResult:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        self._errors.add(PRODUCE.key, code)
        return ProduceResult(index, code)

    def _unknown(self, index: int, topic_unknown: bool, version: int) -> ProduceResult:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "this broker has no such partition"
        if topic_unknown and version >= PRODUCE_TOPIC_IDS_FROM:
            code, message = ErrorCode.UNKNOWN_TOPIC_ID, "unknown topic id"
        return self._refused(index, KafkaError(code, message))

    def _refuse_acks(
        self, caller: Caller, request: ProduceRequest, version: int, correlation_id: int
    ) -> bytes | None:
        code = ErrorCode.INVALID_REQUIRED_ACKS
        return self._refuse_all(caller, request, code, version, correlation_id)

    def _refuse_all(
        self,
        caller: Caller,
        request: ProduceRequest,
        code: ErrorCode,
        version: int,
        correlation_id: int,
    ) -> bytes | None:
        """The same error for all batches."""
        self._errors.add(PRODUCE.key, code)
        if request.acks == 0:
            raise CloseConnection(f"a produce with acks=0 failed: {code.name}")
        return refuse_produce(caller, request, code, version, correlation_id)

    def _allowed(self, caller: Caller, request: ProduceRequest, version: int) -> ProduceRequest:
        """The partitions that the client may write to. Only these are added to its transaction."""
        if caller.permissions is None:
            return request
        topics = [one for one in request.topics if not self._is_denied(caller, one[0], version)]
        return request._replace(topics=topics)

    def _is_denied(self, caller: Caller, key: TopicKey, version: int) -> bool:
        """Whether the client may not write to the topic; False for an unknown topic id."""
        permissions, partitions = caller.permissions, self._by_key.get(key)
        if permissions is None:
            return False
        if partitions:
            return not permissions.may_write(partitions[0].name.topic)
        if version >= PRODUCE_TOPIC_IDS_FROM:
            return False
        return not permissions.may_write(key.decode())

    async def _finish(self, steps: _Appending, wanted: Examination | None) -> _Answer:
        """Complete what the steps wait for until they have appended everything."""
        while True:
            found: Examined | KafkaError | None = None
            if wanted is None:
                await self._slices.turn()
            else:
                try:
                    found = await self._long_batches.examine(wanted)
                except KafkaError as error:
                    found = error
            try:
                wanted = steps.send(found)
            except StopIteration as end:
                answer: _Answer = end.value
                return answer


def _answer(
    caller: Caller, acks: int, topics: _Topics, version: int, correlation_id: int
) -> bytes | None:
    if acks != 0:
        return produce_response(version, correlation_id, caller.throttle_ms, topics)
    if any(result.error_code for _, results in topics for result in results):
        # The client gets no response, so this is the only way to report the error.
        raise CloseConnection("a produce with acks=0 failed")
    return None


def _copy(request: ProduceRequest, view: memoryview) -> tuple[int, bytearray]:
    """A copy of the request's batches, and the position where they began in `view`."""
    places = [place for _, batches in request.topics for place in batches if place[1] >= 0]
    first = min((start for _, start, _ in places), default=0)
    last = max((end for _, _, end in places), default=0)
    return first, bytearray(view[first:last])


def refuse_produce(
    caller: Caller, request: ProduceRequest, code: ErrorCode, version: int, correlation_id: int
) -> bytes:
    """A response with the same error for every partition."""
    return produce_response(
        version,
        correlation_id,
        caller.throttle_ms,
        [
            (key, [ProduceResult(index, code) for index, _, _ in batches])
            for key, batches in request.topics
        ],
    )
