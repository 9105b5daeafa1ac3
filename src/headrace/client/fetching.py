"""Fetch: whole record batches of one partition, the next ones asked for before these are used.

While the caller works on one answer the broker already sends the next. Leaders that move, brokers
that restart and cut connections are waited for; records that are gone are reported.
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
"""The API, and its versions that name a topic by its name and by its id."""
MAX_BYTES = 8 << 20
MAX_WAIT_MS = 500
EMPTY_ANSWERS = 3
"""So many answers without records, while the broker says that it has gone past the range, mean
that compaction or an aborted transaction has left nothing there."""

_PARTITION = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_MAGIC_AT = 16


class FetchPlan(NamedTuple):
    """What to ask for, and how much at once."""

    partition: TopicPartition
    isolation: int = 0
    max_bytes: int = MAX_BYTES
    max_wait_ms: int = MAX_WAIT_MS
    min_bytes: int = 1
    topic_id: uuid.UUID | None = None
    """Read only from the topic with this id; None: from whichever has the name."""


class Fetched(NamedTuple):
    """Whole batches as they came: they begin at `positions` in `data`, the last ends at `end`.

    The bytes are valid until the next answer is taken.
    """

    data: bytearray
    positions: list[int]
    end: int
    aborted: list[tuple[int, int]]
    """Producer id and first offset of aborted transactions, for `read_committed`."""


class DataLoss(ClientError):
    """Records of the range are not in the log any more; `resume_at` is where it goes on."""

    def __init__(self, message: str, resume_at: int) -> None:
        super().__init__(message)
        self.resume_at = resume_at


class _Body(NamedTuple):
    """The one partition of a Fetch answer."""

    error: int
    high_watermark: int
    last_stable: int
    log_start: int
    aborted: list[tuple[int, int]]
    records_at: int
    records_end: int
    answered: bool


def fetch_range(cluster: Cluster, plan: FetchPlan, start: int, stop: int) -> Iterator[Fetched]:
    """The batches that hold the offsets in [start, stop), and perhaps more around them.

    DataLoss if the log begins after `start` or ends before `stop` for good, or if the plan names a
    topic id and the topic has another one now.
    """
    reading = _Reading(cluster, plan, start, stop)
    try:
        while reading.position < stop:
            fetched = reading.next()
            if fetched is not None:
                yield fetched
    finally:
        reading.hang_up()


class _Reading:
    """Where a range is being read: the connection, the position, and what went wrong since."""

    def __init__(self, cluster: Cluster, plan: FetchPlan, start: int, stop: int) -> None:
        self.position = start
        self._cluster = cluster
        self._plan = plan
        self._stop = stop
        self._connection: Connection | None = None
        self._empty = 0
        self._calm()

    def next(self) -> Fetched | None:
        """The next answer's batches; the Fetch after it is under way when this returns."""
        try:
            if self._connection is None:
                broker = self._cluster.leader(self._plan.partition)
                self._check_topic_id()
                self._connection = self._cluster.connect(broker)
                self._connection.send(self._request(self._connection))
            answer = self._connection.receive(reuse=True)
            body = parse_fetch(answer)
            check(body.error, f"fetching {self._plan.partition} at offset {self.position}")
        except (KafkaError, Unreachable) as error:
            self._trouble(error)
            return None
        positions, end = whole_batches(answer.data, body.records_at, body.records_end)
        if not positions:
            self._nothing(body)
        else:
            self._calm()
            last = read_header(answer.data, positions[-1])
            self.position = max(self.position, last.next_offset)
        if self.position < self._stop:
            self._ask()
        if not positions:
            return None
        return Fetched(answer.data, positions, end, body.aborted)

    def hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self) -> None:
        assert self._connection is not None
        try:
            self._connection.send(self._request(self._connection))
        except Unreachable as error:
            self._trouble(error)

    def _request(self, connection: Connection) -> object:
        version = BY_NAME if self._plan.topic_id is None else connection.version(FETCH, BY_ID)
        return fetch_request(self._plan, self.position, version)

    def _check_topic_id(self) -> None:
        wanted, found = self._plan.topic_id, self._cluster.topic_id(self._plan.partition.topic)
        if wanted is not None and found is not None and wanted != found:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"topic {self._plan.partition.topic} was deleted and created again: its id was "
                f"{encode_uuid(wanted)} and is {encode_uuid(found)} now",
            )

    def _calm(self) -> None:
        self._empty = 0
        self._deadline: float | None = None
        self._pause_s = self._cluster.config.retry_backoff_s

    def _trouble(self, error: KafkaError | Unreachable) -> None:
        """Wait and look for the leader again, or give up."""
        self.hang_up()
        if isinstance(error, KafkaError) and error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise self._lost_records()
        if not is_retriable(error):
            raise error
        now = time.monotonic()
        recreated = isinstance(error, KafkaError) and error.code == ErrorCode.INCONSISTENT_TOPIC_ID
        limit_s = self._cluster.config.total_timeout_s
        # A broker may not have heard of the newer topic yet.
        limit_s = min(limit_s, NEW_TOPIC_PATIENCE_S) if recreated else limit_s
        self._deadline = min(self._deadline or now + limit_s, now + limit_s)
        if now + self._pause_s > self._deadline:
            raise DataLoss(str(error), self._stop) if recreated else error
        self._cluster.forget()
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, self._cluster.config.retry_backoff_max_s)

    def _nothing(self, body: _Body) -> None:
        """No records came: a gap up to the end, or a log that has not come back that far yet."""
        bound = body.last_stable if self._plan.isolation else body.high_watermark
        if not body.answered:
            return  # throttled
        if bound >= self._stop:
            self._empty += 1
            if self._empty >= EMPTY_ANSWERS:
                self.position = self._stop
            return
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._cluster.config.total_timeout_s
        if now > self._deadline:
            raise DataLoss(
                f"{self._plan.partition} ends at offset {bound}, before {self._stop}, "
                "where it once ended: records are lost",
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
    """Where the batches begin, and where the last whole one ends: an answer may end in half one."""
    positions: list[int] = []
    length_at = struct.Struct(">i").unpack_from
    at = start
    while at + HEADER_BYTES <= end:
        following = at + OVERHEAD + length_at(data, at + 8)[0]
        if data[at + _MAGIC_AT] != MAGIC:
            raise ClientError(
                f"the log holds records of format {data[at + _MAGIC_AT]}, which clients before "
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
    """The answer to `fetch_request`, without a copy of its records."""
    try:
        return _parse_fetch(answer)
    except (IndexError, ValueError, struct.error) as error:
        raise ClientError(f"an answer to Fetch cannot be read: {error}") from error


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
        raise ValueError("the records reach past the end of the answer")
    return _Body(error, high_watermark, last_stable, log_start, aborted, at, end, True)
