"""Reads the topics of all views of a server in one thread, as a `read_committed` consumer.

The thread fetches what is new of all partitions with one request to each broker, decodes it, and
applies it to the files of the tables. It never touches the event loop's state: views are told by
`call_soon_threadsafe`.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig
from headrace.client.errors import ClientError, Unreachable, is_retriable
from headrace.client.first_batches import FirstBatches, fetch_partitions
from headrace.client.offsets import COMMITTED, EARLIEST, available_offsets
from headrace.errors import ErrorCode, KafkaError
from headrace.sql.records.decoding import BadRow, Row, RowReader
from headrace.sql.views.fetched_records import committed_of
from headrace.sql.views.view_file import ViewFile
from headrace.types import TopicPartition, encode_uuid

log = logging.getLogger("headrace.sql")

WAIT_MS = 100
FETCH_BYTES = 4 << 20
"""At a time, so that a table that is loaded does not delay others for long."""
PARTITION_BYTES = (64 << 10, 256 << 10)
"""Of each partition, at least and at most."""
METADATA_S = 5.0
"""How often topic ids and numbers of partitions are compared with those of the cluster."""
PAUSE_S = 1.0
"""Between attempts to follow a topic that cannot be read."""
EMPTY_RESPONSES = 3
"""After this many responses without records below the last stable offset, none are there."""
EXPIRY_S = 30.0


class ViewObserver(Protocol):
    """What is told of a view's progress, in the thread that follows."""

    def reached(self, positions: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """The offsets up to which the view has been read, and the ends of its partitions."""

    def met(self, bad: Sequence[BadRow]) -> None:
        """Records that are not rows."""

    def failed(self, sentence: str) -> None:
        """The topic cannot be read at present."""


@dataclass(slots=True)
class FollowedTable:
    """A table with its topic. Only the thread that follows uses it, once it has been added."""

    topic: str
    file: ViewFile
    reader: RowReader
    observer: ViewObserver
    retention_ms: int | None = None
    positions: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    empty: dict[int, int] = field(default_factory=dict)
    is_new: bool = True
    """Its observer has not been told anything yet."""
    checked_at: float | None = None
    """When its topic was last compared with that of the cluster; None: never."""
    not_before: float = 0.0
    stream_time: int | None = None
    expired_at: float = 0.0


class TableFollower:
    """One thread for any number of tables."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._tables: list[FollowedTable] = []
        self._changes: list[tuple[FollowedTable, threading.Event | None]] = []
        """Tables that were added, and those to be removed with what is set afterwards."""
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sql-views", daemon=True)
        self._turn = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Blocks until the thread has ended."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def add(self, table: FollowedTable) -> None:
        with self._lock:
            self._changes.append((table, None))
        self._wake.set()

    def remove(self, table: FollowedTable) -> None:
        """Blocks until the thread no longer uses the table."""
        gone = threading.Event()
        with self._lock:
            self._changes.append((table, gone))
        self._wake.set()
        while self._thread.is_alive() and not gone.wait(WAIT_MS / 1000):
            pass

    # ------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        cluster = Cluster(self._config)
        try:
            while not self._stopping.is_set():
                self._take_changes()
                now = time.monotonic()
                ready = [table for table in self._tables if table.not_before <= now]
                if not ready:
                    self._wake.wait(PAUSE_S if self._tables else None)
                    self._wake.clear()
                    continue
                try:
                    self._poll(cluster, ready)
                except (KafkaError, ClientError) as error:
                    self._all_failed(ready, error)
                    cluster.renew()
                except Exception as error:
                    # A mistake of ours must not end the thread: no view would go on, nor say so.
                    log.exception("error while views are fed")
                    self._all_failed(ready, error)
        finally:
            cluster.close()
            self._take_changes()

    def _take_changes(self) -> None:
        with self._lock:
            changes, self._changes = self._changes, []
        for table, gone in changes:
            if gone is None:
                self._tables.append(table)
                continue
            self._tables = [each for each in self._tables if each is not table]
            gone.set()

    def _all_failed(self, tables: Sequence[FollowedTable], error: Exception) -> None:
        pause_s = self._config.retry_backoff_s if is_retriable(error) else PAUSE_S
        for table in tables:
            self._failed(table, str(error), pause_s)

    def _failed(self, table: FollowedTable, sentence: str, pause_s: float = PAUSE_S) -> None:
        log.warning("the table's topic %s cannot be read: %s", table.topic, sentence)
        table.not_before = time.monotonic() + pause_s
        table.is_new = True
        table.checked_at = None
        table.observer.failed(sentence)

    def _poll(self, cluster: Cluster, tables: Sequence[FollowedTable]) -> None:
        self._compare(cluster, tables)
        by_topic: dict[str, list[FollowedTable]] = {}
        wanted: dict[TopicPartition, int] = {}
        for table in tables:
            if table.checked_at is None:
                continue
            by_topic.setdefault(table.topic, []).append(table)
            for number, offset in table.positions.items():
                partition = TopicPartition(table.topic, number)
                wanted[partition] = min(offset, wanted.get(partition, offset))
        leaders = cluster.by_leader(self._rotated(wanted))
        for broker, topics in leaders.items():
            some = {each: wanted[each] for parts in topics.values() for each in parts}
            least, most = PARTITION_BYTES
            size = max(least, min(most, FETCH_BYTES // len(some)))
            wait_ms = WAIT_MS // len(leaders)
            found = fetch_partitions(cluster, broker, some, size, COMMITTED, wait_ms)
            for topic in topics:
                of_topic = {
                    each.partition: answer for each, answer in found.items() if each.topic == topic
                }
                for table in by_topic[topic]:
                    try:
                        self._apply(cluster, table, of_topic, some)
                    except (KafkaError, ClientError, sqlite3.Error) as error:
                        self._failed(table, str(error))

    def _rotated(self, wanted: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """The partitions, beginning with another one each time: only the first one of a request
        gets a batch that is larger than the limit."""
        partitions = list(wanted)
        self._turn += 1
        at = self._turn % len(partitions) if partitions else 0
        return [*partitions[at:], *partitions[:at]]

    # ----------------------------------------------------------------------------- one table

    def _compare(self, cluster: Cluster, tables: Sequence[FollowedTable]) -> None:
        """Compare topics with what the files are from, now and then."""
        now = time.monotonic()
        due = [
            table
            for table in tables
            if table.checked_at is None or table.checked_at + METADATA_S <= now
        ]
        for table in due:
            try:
                self._compare_one(cluster, table)
            except Unreachable:
                raise
            except (KafkaError, ClientError, sqlite3.Error) as error:
                self._failed(table, str(error))
            else:
                table.checked_at = now

    def _compare_one(self, cluster: Cluster, table: FollowedTable) -> None:
        topic = cluster.topics([table.topic]).get(table.topic)
        if topic is None:
            raise ClientError(f"topic {table.topic} does not exist")
        topic_id = "" if topic.topic_id is None else encode_uuid(topic.topic_id)
        known = table.file.topic_id()
        if known != topic_id:
            if known is not None:
                log.info("topic %s was created again: its view is rebuilt", table.topic)
            table.file.begin_again(topic_id)
            table.positions.clear()
        elif not table.positions:
            table.positions = table.file.positions()
        missing = [
            TopicPartition(table.topic, number)
            for number in range(len(topic.leaders))
            if number not in table.positions
        ]
        starts = available_offsets(cluster, dict.fromkeys(missing, EARLIEST)) if missing else {}
        if len(starts) < len(missing):
            raise ClientError(f"a partition of {table.topic} has no leader at present")
        table.positions |= {each.partition: start.offset for each, start in starts.items()}

    def _apply(
        self,
        cluster: Cluster,
        table: FollowedTable,
        answers: Mapping[int, FirstBatches],
        asked: Mapping[TopicPartition, int],
    ) -> None:
        rows: list[Row] = []
        bad: list[BadRow] = []
        reached: dict[int, int] = {}
        ends = dict(table.ends)
        for number, answer in answers.items():
            if answer.error is not None:
                self._refused(cluster, table, number, answer)
                return
            start = table.positions[number]
            ends[number] = answer.last_stable
            records, following = committed_of(answer, start)
            if following > start:
                table.empty.pop(number, None)
            elif answer.last_stable > start == asked[TopicPartition(table.topic, number)]:
                following = self._after_gap(table, number, answer.last_stable)
            good, unreadable = table.reader.read_many(records, number)
            rows += good
            bad += unreadable
            if following != start:
                reached[number] = following
        if reached:
            table.file.apply(rows, reached)
            table.positions |= reached
        if bad:
            table.observer.met(bad)
        if reached or ends != table.ends or table.is_new:
            table.is_new = False
            table.ends = ends
            table.observer.reached(dict(table.positions), ends)
        if rows and table.retention_ms is not None:
            self._expire(table, max(row.rowtime for row in rows))

    def _refused(
        self, cluster: Cluster, table: FollowedTable, number: int, answer: FirstBatches
    ) -> None:
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            # Records that were not read are gone, or were replaced: begin with what is there.
            log.warning(
                "%s-%d has no records at offset %d: its view is rebuilt",
                *(table.topic, number, table.positions[number]),
            )
            table.file.begin_again(table.file.topic_id() or "")
            table.positions.clear()
            table.checked_at = None
            return
        cluster.forget()
        assert answer.error is not None, "called for errors"
        self._failed(
            table,
            f"{answer.error.name} from {table.topic}-{number}",
            self._config.retry_backoff_s,
        )

    @staticmethod
    def _after_gap(table: FollowedTable, number: int, last_stable: int) -> int:
        """Where to go on after a response without records, though there should be some."""
        times = table.empty.get(number, 0) + 1
        if times < EMPTY_RESPONSES:
            table.empty[number] = times
            return table.positions[number]
        table.empty.pop(number, None)
        return last_stable

    @staticmethod
    def _expire(table: FollowedTable, latest: int) -> None:
        table.stream_time = max(latest, table.stream_time or latest)
        now = time.monotonic()
        if table.retention_ms is not None and now >= table.expired_at + EXPIRY_S:
            table.file.expire(table.stream_time - table.retention_ms)
            table.expired_at = now
