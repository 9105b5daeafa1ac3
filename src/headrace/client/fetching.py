"""Fetch: whole record batches of one partition, with one request ahead.

While the caller processes one response the broker already sends the next. New leaders, restarting
brokers and closed connections lead to retries; deleted records are reported.
"""

import struct
import time
import uuid
from collections.abc import Iterator
from typing import NamedTuple

from headrace.client.cluster import NEW_TOPIC_PATIENCE_S, Cluster
from headrace.client.connection import Connection
from headrace.client.errors import ClientError, Unreachable, check, is_retriable
from headrace.client.protocol import Response
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition, encode_uuid
from headrace.wire.batch import HEADER_BYTES, MAGIC, OVERHEAD, read_header
from headrace.wire.primitives import TopicName, i8, i32, i64, milliseconds
from headrace.wire.varint import read_uvarint, skip_tagged_fields

FETCH, BY_NAME, BY_ID = 1, 12, 13
"""The API key, and the versions with topics by name and by id."""
MAX_BYTES = 8 << 20
MAX_WAIT_MS = 500
EMPTY_RESPONSES = 3
"""After this many responses without records, while the broker's bound is past the range, the range
has no more records: compaction or an aborted transaction has left none."""

_PARTITION = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_MAGIC_AT = 16


class FetchPlan(NamedTuple):
    """The partition to fetch, and the limits of one request."""

    partition: TopicPartition
    isolation: int = 0
    max_bytes: int = MAX_BYTES
    max_wait_ms: int = MAX_WAIT_MS
    min_bytes: int = 1
    topic_id: uuid.UUID | None = None
    """Read only from the topic with this id; None: from any topic with the name."""


class Fetched(NamedTuple):
    """Whole batches as received: they begin at `positions` in `data`, the last ends at `end`.

    The bytes are valid until the next response is received, of this range or of the next one.
    """

    data: bytearray
    positions: list[int]
    end: int
    aborted: list[tuple[int, int]]
    """Producer id and first offset of aborted transactions, for `read_committed`."""


class DataLoss(ClientError):
    """Records of the range are no longer in the log; `resume_at` is the next available offset."""

    def __init__(self, message: str, resume_at: int) -> None:
        super().__init__(message)
        self.resume_at = resume_at


class _Body(NamedTuple):
    """The only partition of a Fetch response."""

    error: int
    high_watermark: int
    last_stable: int
    log_start: int
    aborted: list[tuple[int, int]]
    records_at: int
    records_end: int
    answered: bool


def fetch_range(cluster: Cluster, plan: FetchPlan, start: int, stop: int) -> Iterator[Fetched]:
    """The batches with the offsets in [start, stop); they may contain more offsets.

    DataLoss if the log begins after `start` or still ends before `stop`, or if the plan names a
    topic id and the topic has another one now.
    """
    reading = _Reading(cluster, plan, start, stop)
    try:
        while reading.position < stop:
            fetched = reading.next()
            if fetched is not None:
                yield fetched
    finally:
        reading.finish()


class _Reading:
    """The state of reading a range: connection, position, and retries."""

    def __init__(self, cluster: Cluster, plan: FetchPlan, start: int, stop: int) -> None:
        self.position = start
        self._cluster = cluster
        self._plan = plan
        self._stop = stop
        self._connection: Connection | None = None
        self._empty = 0
        self._reset_retries()

    def next(self) -> Fetched | None:
        """The batches of the next response; the following Fetch is already sent."""
        try:
            if self._connection is None:
                broker = self._cluster.leader(self._plan.partition)
                self._check_topic_id()
                self._connection = self._cluster.connect(broker)
                if self._needs_new_topic_id(self._connection) and self._start_over():
                    return None
                self._connection.send(self._request(self._connection))
            answer = self._connection.receive(reuse=True)
            body = parse_fetch(answer)
            check(body.error, f"fetching {self._plan.partition} at offset {self.position}")
        except (KafkaError, Unreachable) as error:
            self._recover(error)
            return None
        positions, end = whole_batches(answer.data, body.records_at, body.records_end)
        if not positions:
            self._no_records(body)
        else:
            self._reset_retries()
            last = read_header(answer.data, positions[-1])
            self.position = max(self.position, last.next_offset)
        if self.position < self._stop and self._connection is not None:
            self._ask()
        if not positions:
            return None
        return Fetched(answer.data, positions, end, body.aborted)

    def finish(self) -> None:
        """Leave the connection to the next range."""
        if self._connection is not None:
            self._cluster.give_back(self._connection)
            self._connection = None

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self) -> None:
        assert self._connection is not None
        try:
            self._connection.send(self._request(self._connection))
        except Unreachable as error:
            self._recover(error)

    def _start_over(self) -> bool:
        """Use new connections and leaders if those in use are from earlier work; whether so."""
        if not self._cluster.kept:
            return False
        self._close()
        self._cluster.renew()
        return True

    def _request(self, connection: Connection) -> object:
        version = BY_NAME if self._plan.topic_id is None else connection.version(FETCH, BY_ID)
        return fetch_request(self._plan, self.position, version)

    def _needs_new_topic_id(self, connection: Connection) -> bool:
        """Whether the broker cannot compare topic ids itself, so that an old id proves nothing."""
        return self._plan.topic_id is not None and connection.version(FETCH, BY_ID) < BY_ID

    def _check_topic_id(self) -> None:
        wanted, found = self._plan.topic_id, self._cluster.topic_id(self._plan.partition.topic)
        if wanted is not None and found is not None and wanted != found:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"topic {self._plan.partition.topic} was deleted and created again: its id was "
                f"{encode_uuid(wanted)} and is {encode_uuid(found)} now",
            )

    def _reset_retries(self) -> None:
        self._empty = 0
        self._deadline: float | None = None
        self._pause_s = self._cluster.config.retry_backoff_s

    def _recover(self, error: KafkaError | Unreachable) -> None:
        """Wait and find the leader again, or raise the error."""
        if self._start_over():
            return
        self._close()
        if isinstance(error, KafkaError) and error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise self._lost_records()
        if not is_retriable(error):
            raise error
        now = time.monotonic()
        recreated = isinstance(error, KafkaError) and error.code == ErrorCode.INCONSISTENT_TOPIC_ID
        limit_s = self._cluster.config.total_timeout_s
        # A broker may not know the newer topic yet.
        limit_s = min(limit_s, NEW_TOPIC_PATIENCE_S) if recreated else limit_s
        self._deadline = min(self._deadline or now + limit_s, now + limit_s)
        if now + self._pause_s > self._deadline:
            raise DataLoss(str(error), self._stop) if recreated else error
        self._cluster.forget()
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, self._cluster.config.retry_backoff_max_s)

    def _no_records(self, body: _Body) -> None:
        """Handle a response without records: a gap up to `stop`, or a log that is shorter yet."""
        bound = body.last_stable if self._plan.isolation else body.high_watermark
        if not body.answered:
            return  # throttled
        if bound >= self._stop:
            self._empty += 1
            if self._empty >= EMPTY_RESPONSES:
                self.position = self._stop
            return
        if self._start_over():
            return
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._cluster.config.total_timeout_s
        if now > self._deadline:
            raise DataLoss(
                f"{self._plan.partition} ends at offset {bound}, before {self._stop}, "
                "an earlier end of the log: records are lost",
                self._stop,
            )

    def _lost_records(self) -> DataLoss:
        from headrace.client.offsets import EARLIEST, LATEST, list_offsets

        partition = self._plan.partition
        earliest = list_offsets(self._cluster, {partition: EARLIEST})[partition]
        if earliest > self.position:
            return DataLoss(
                f"{partition} begins at offset {earliest}: the records from {self.position} on "
                "were deleted before they were read",
                min(earliest, self._stop),
            )
        latest = list_offsets(self._cluster, {partition: LATEST})[partition]
        return DataLoss(
            f"{partition} ends at offset {latest}, before {self.position}: was the topic "
            "deleted and created again?",
            self._stop,
        )


def whole_batches(data: bytearray, start: int, end: int) -> tuple[list[int], int]:
    """The starts of the batches, and the end of the last whole one; the rest is partial."""
    positions: list[int] = []
    length_at = struct.Struct(">i").unpack_from
    at = start
    while at + HEADER_BYTES <= end:
        following = at + OVERHEAD + length_at(data, at + 8)[0]
        if data[at + _MAGIC_AT] != MAGIC:
            raise ClientError(
                f"the log has records of format {data[at + _MAGIC_AT]}, which clients before "
                "Apache Kafka 0.11 wrote; only format 2 can be read"
            )
        if following > end:
            break
        if following < at + HEADER_BYTES:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "a record batch is shorter than its header")
        positions.append(at)
        at = following
    return positions, at


def fetch_request(plan: FetchPlan, offset: int, version: int) -> object:
    """A Fetch of one partition, without a session."""
    return _fetch_by_name(plan, offset) if version < BY_ID else _fetch_by_id(plan, offset)


def _fetch_by_name(plan: FetchPlan, offset: int) -> object:
    from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic

    partition = FetchPartition(
        partition=i32(plan.partition.partition),
        fetch_offset=i64(offset),
        partition_max_bytes=i32(plan.max_bytes),
    )
    return FetchRequest(
        max_wait=milliseconds(plan.max_wait_ms),
        min_bytes=i32(plan.min_bytes),
        max_bytes=i32(plan.max_bytes),
        isolation_level=i8(plan.isolation),
        topics=(FetchTopic(topic=TopicName(plan.partition.topic), partitions=(partition,)),),
        forgotten_topics_data=(),
    )


def _fetch_by_id(plan: FetchPlan, offset: int) -> object:
    from kio.schema.fetch.v13.request import FetchPartition, FetchRequest, FetchTopic

    partition = FetchPartition(
        partition=i32(plan.partition.partition),
        fetch_offset=i64(offset),
        partition_max_bytes=i32(plan.max_bytes),
    )
    return FetchRequest(
        max_wait=milliseconds(plan.max_wait_ms),
        min_bytes=i32(plan.min_bytes),
        max_bytes=i32(plan.max_bytes),
        isolation_level=i8(plan.isolation),
        topics=(FetchTopic(topic_id=plan.topic_id, partitions=(partition,)),),
        forgotten_topics_data=(),
    )


def parse_fetch(answer: Response) -> _Body:
    """Parse the response to `fetch_request`, without a copy of its records."""
    try:
        return _parse_fetch(answer)
    except (IndexError, ValueError, struct.error) as error:
        raise ClientError(f"malformed Fetch response: {error}") from error


def _parse_fetch(answer: Response) -> _Body:
    data = answer.data
    _, error, _ = struct.unpack_from(">ihi", data, answer.start)
    topics, at = read_uvarint(data, answer.start + 10)
    if error or topics < 2:
        return _Body(error, -1, -1, -1, [], 0, 0, False)
    if answer.version < BY_ID:
        size, at = read_uvarint(data, at)
        at += size - 1
    else:
        at += 16
    partitions, at = read_uvarint(data, at)
    if partitions < 2:
        return _Body(0, -1, -1, -1, [], 0, 0, False)
    _, error, high_watermark, last_stable, log_start = _PARTITION.unpack_from(data, at)
    count, at = read_uvarint(data, at + _PARTITION.size)
    aborted: list[tuple[int, int]] = []
    for _ in range(count - 1):
        aborted.append(_ABORTED.unpack_from(data, at))
        at = skip_tagged_fields(data, at + _ABORTED.size)
    size, at = read_uvarint(data, at + 4)  # after the preferred read replica
    end = at + max(size - 1, 0)
    if end > answer.end:
        raise ValueError("the records extend past the end of the response")
    return _Body(error, high_watermark, last_stable, log_start, aborted, at, end, True)
