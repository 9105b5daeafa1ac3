"""Fetch (1), versions 4-18.

Returns batches as they are stored on disk. Waits until `min_bytes` are available, a partition has
an error, or `max_wait_ms` have passed. The first batch is sent whole even if it exceeds every
limit, so that a consumer always makes progress; for the others the limits of partition and request
apply. With the isolation level `read_committed` a consumer reads up to the last stable offset, and
gets the list of aborted transactions in that range, whose records it skips.

A follower sends its replica id and reads up to the log end offset; its fetch offset acknowledges
everything below it.

v7 incremental sessions; v12 flexible; v13 topics by id instead of by name; v15 the replica id
moves into a tagged field.

A consumer that sends its rack (v11) may be directed to a follower in that rack, which serves it up
to the high watermark that the follower has (KIP-392, `replica.selector.class`).
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeAlias

from headrace.apis.context import Caller, Services
from headrace.apis.hot import LongRequest
from headrace.apis.records.fetch_sessions import FetchSession, SessionCache, SessionPartition
from headrace.apis.records.waiting_fetches import WaitingFetch, WaitingFetches
from headrace.apis.request_errors import RequestErrors
from headrace.apis.routes import FETCH
from headrace.clock import Clock
from headrace.errors import ErrorCode, KafkaError
from headrace.log.slices import Slice
from headrace.replication.nearest import Nearest
from headrace.replication.partition import Partition
from headrace.replication.replicas import Replicas
from headrace.replication.throttle import LeaderThrottle
from headrace.replication.traffic import TopicTraffic
from headrace.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from headrace.types import BrokerId, Offset
from headrace.wire.fast import (
    FETCH_TOPIC_IDS_FROM,
    FETCH_VERSIONS,
    Chunk,
    FetchRequest,
    ManyPartitions,
    TopicKey,
    fetch_response,
    parse_fetch,
)
from headrace.wire.results import NO_REPLICA, FetchResult, Records
from headrace.wire.usual_fetch import USUAL_FROM, parse_usual_fetch, usual_fetch_response

READ_COMMITTED = 1
_KEY = FETCH.key

FindNearest: TypeAlias = Callable[[Partition, str, Offset], BrokerId]
"""The replica in a rack that has the records from an offset on; NO_REPLICA: fetch here."""

_Topics = list[tuple[TopicKey, list[FetchResult]]]


class Fetch:
    """Answers Fetch requests from the partitions of this broker."""

    versions = FETCH_VERSIONS

    def __init__(
        self,
        replicas: Replicas,
        sessions: SessionCache,
        waiting: WaitingFetches,
        max_bytes: int,
        clock: Clock,
        errors: RequestErrors,
        nearest: FindNearest | None = None,
    ) -> None:
        """`nearest` finds the replica for a rack; None if consumers fetch from leaders only."""
        self._throttle = LeaderThrottle(replicas, clock)
        self._replicas = replicas
        self._by_key = replicas.by_key
        self.sessions = sessions
        self._waiting = waiting
        self._max_bytes = max_bytes
        self._errors = errors
        self._nearest = nearest

    def __call__(
        self,
        caller: Caller,
        buf: bytearray,
        view: memoryview,
        pos: int,
        end: int,
        version: int,
        correlation_id: int,
    ) -> list[Chunk] | WaitingFetch:
        """The response, or the fetch that waits."""
        if version >= USUAL_FROM and caller.fetch_quota is None:
            usual = self._at_once(caller, buf, pos, end, version, correlation_id)
            if usual is not None:
                return usual
        try:
            request = parse_fetch(buf, view, pos, end, version)
        except ManyPartitions:
            # Imported here, because it is rare.
            from headrace.apis.records.large_fetch import LargeFetch

            raise LongRequest(LargeFetch(self), waits=True) from None
        return self.answer(caller, request, version, correlation_id)

    def _at_once(
        self, caller: Caller, buf: bytearray, pos: int, end: int, version: int, correlation_id: int
    ) -> list[Chunk] | None:
        """The response to a request of the usual form, if enough records are available.

        None in all other cases: another form, an error, too few bytes.
        """
        usual = parse_usual_fetch(buf, pos, end, version)
        if usual is None:
            return None
        least, most, isolation, key, index, epoch, offset, limit = usual
        partitions = self._by_key.get(key)
        if partitions is None or not 0 <= index < len(partitions):
            return None
        partition = partitions[index]
        permissions = caller.permissions
        if permissions is not None and not permissions.may_read(partition.name.topic):
            return None
        if most < limit:
            limit = most
        if self._max_bytes < limit:
            limit = self._max_bytes
        replica = partition.replica
        try:
            if epoch >= 0:
                partition.check_epoch(epoch)
            if isolation == READ_COMMITTED:
                records, aborted = replica.read_committed(offset, limit, True)
                if aborted:
                    return None
            else:
                records = replica.read(offset, limit, True)
        except KafkaError:
            return None
        if records is None or records.length < least:
            return None
        traffic = partition.traffic
        traffic.bytes_out += records.length
        following = records.following
        if following > offset:
            traffic.records_out += following - offset
        log, high_watermark = replica.opened or replica.log, replica.committed
        stable, start = log.last_stable_offset(high_watermark), log.start_offset
        return usual_fetch_response(
            version, correlation_id, caller.throttle_ms, key, index, high_watermark, stable, start,
            isolation == READ_COMMITTED, records,
        )  # fmt: skip

    def answer(
        self, caller: Caller, request: FetchRequest, version: int, correlation_id: int
    ) -> list[Chunk] | WaitingFetch:
        """The response to a decoded request, or the fetch that waits."""
        if caller.fetch_quota is not None and request.replica_id < 0:
            request = caller.fetch_quota.cap(request)
        try:
            session, incremental = self.sessions.session_for(
                request, version >= FETCH_TOPIC_IDS_FROM
            )
        except KafkaError as error:
            self._errors.add(_KEY, error.code)
            return fetch_response(version, correlation_id, caller.throttle_ms, error.code, 0, [])
        topics, ready = self.read(caller, session, request, incremental)
        if ready or request.max_wait_ms <= 0 or not session.entries:
            return self._respond(
                caller, session, request, incremental, topics, version, correlation_id
            )
        read = partial(
            self._read_again, caller, session, request, incremental, version, correlation_id
        )
        return self._waiting.wait(session, read, request.max_wait_ms)

    def _read_again(
        self,
        caller: Caller,
        session: FetchSession,
        request: FetchRequest,
        incremental: bool,
        version: int,
        correlation_id: int,
        expired: bool,
    ) -> list[Chunk] | None:
        """The response to a fetch that waits, or None to continue waiting."""
        topics, ready = self.read(caller, session, request, incremental)
        if not (ready or expired):
            return None
        return self._respond(caller, session, request, incremental, topics, version, correlation_id)

    def _respond(
        self,
        caller: Caller,
        session: FetchSession,
        request: FetchRequest,
        incremental: bool,
        topics: _Topics,
        version: int,
        correlation_id: int,
    ) -> list[Chunk]:
        """The response with the records, or without them if the client is over its quota."""
        quota, session_id = caller.fetch_quota, session.id
        if quota is not None and request.replica_id < 0 and quota.withholds(_size(topics)):
            topics = []
            if not incremental:  # an empty response would look like one without a session
                self.sessions.drop(session_id)
                session_id = 0
        else:
            self.sent(session, topics, to_follower=request.replica_id >= 0)
        return fetch_response(version, correlation_id, caller.throttle_ms, 0, session_id, topics)

    def read(
        self,
        caller: Caller,
        session: FetchSession,
        request: FetchRequest,
        incremental: bool,
        entries: Iterable[SessionPartition] | None = None,
        total: int = 0,
    ) -> tuple[_Topics, bool]:
        """The results of the partitions, and whether to respond before the deadline.

        `entries` are the entries of the session to read, by default all; `total` is the number of
        bytes that were read for other entries.
        """
        left = min(request.max_bytes, self._max_bytes)
        if entries is None:
            entries = session.dirty if incremental else session.entries.values()
        failed = False
        grouped: dict[TopicKey, list[FetchResult]] = {}
        quiet: list[SessionPartition] = []
        committed = request.isolation == READ_COMMITTED
        for entry in entries:
            if caller.permissions is not None and self._is_denied(caller, entry, request):
                result, end = _forbidden(entry), -1
            elif request.replica_id >= 0:
                result, end = self._read_for_follower(
                    entry, min(entry.max_bytes, left), total == 0, request
                )
            else:
                result = self._read_entry(
                    entry, min(entry.max_bytes, left), total == 0, committed, request.rack
                )
                end = result.last_stable_offset if committed else result.high_watermark
                failed = failed or result.preferred_replica != NO_REPLICA
            records = result.records
            if records is not None:
                total += records.length
                left = max(left - records.length, 0)
            elif result.error_code:
                failed = True
                self._errors.add(_KEY, result.error_code)
            elif (
                incremental
                and result.high_watermark == entry.sent_high_watermark
                and result.log_start_offset == entry.sent_start
            ):
                if entry.offset >= end:  # otherwise a limit may have cut off records
                    quiet.append(entry)
                continue
            results = grouped.get(entry.key)
            if results is None:
                grouped[entry.key] = [result]
            else:
                results.append(result)
        for entry in quiet:
            entry.watch()
            del session.dirty[entry]
        return list(grouped.items()), failed or total >= request.min_bytes

    def _read_entry(
        self, entry: SessionPartition, max_bytes: int, whole_first: bool, committed: bool, rack: str
    ) -> FetchResult:
        partition = self._partition(entry)
        if not isinstance(partition, Partition):
            return FetchResult(entry.index, partition)
        replica = partition.replica
        try:
            if entry.epoch >= 0:
                partition.check_epoch(entry.epoch)
            records, aborted, preferred = None, None, NO_REPLICA
            if rack and self._nearest is not None:
                preferred = self._nearest(partition, rack, entry.offset)
            if preferred == NO_REPLICA:
                if committed:
                    records, aborted = replica.read_committed(entry.offset, max_bytes, whole_first)
                else:
                    records = replica.read(entry.offset, max_bytes, whole_first)
        except KafkaError as error:
            if error.code is ErrorCode.CORRUPT_MESSAGE:
                self._replicas.damaged.add(partition, entry.offset)
            return FetchResult(entry.index, error.code)
        return FetchResult(
            entry.index, 0, replica.high_watermark, replica.last_stable_offset,
            replica.log.start_offset, records, aborted, preferred,
        )  # fmt: skip

    def _read_for_follower(
        self, entry: SessionPartition, max_bytes: int, whole_first: bool, request: FetchRequest
    ) -> tuple[FetchResult, int]:
        """The records for a follower, and the log end offset."""
        partition = self._partition(entry)
        if not isinstance(partition, Partition):
            return FetchResult(entry.index, partition), -1
        code, start, end = ErrorCode.NONE, -1, -1
        records = None
        try:
            partition.check_epoch(entry.epoch)
            partition.fetched_by(request.replica_id, request.replica_epoch, entry.offset)
            log = partition.replica.log
            start, end = log.start_offset, log.end_offset
            if partition.settings.leader_replication_throttled_replicas:
                records = self._read_throttled(partition, entry, max_bytes, whole_first, request)
            else:
                records = partition.replica.read_to_end(entry.offset, max_bytes, whole_first)
        except KafkaError as error:
            code = error.code
            if code is ErrorCode.CORRUPT_MESSAGE:
                self._replicas.damaged.add(partition, entry.offset)
        high_watermark = partition.replica.high_watermark if end >= 0 else -1
        return FetchResult(entry.index, code, high_watermark, -1, start, records), end

    def _read_throttled(
        self,
        partition: Partition,
        entry: SessionPartition,
        max_bytes: int,
        whole_first: bool,
        request: FetchRequest,
    ) -> Slice | None:
        """The records for a follower; None while it is throttled, as at the end of the log."""
        throttle = self._throttle
        if not throttle.applies_to(partition):
            return partition.replica.read_to_end(entry.offset, max_bytes, whole_first)
        if throttle.delays(partition, request.replica_id):
            return None
        records = partition.replica.read_to_end(entry.offset, max_bytes, whole_first)
        if records is not None:
            throttle.copied(records.length)
        return records

    def _is_denied(self, caller: Caller, entry: SessionPartition, request: FetchRequest) -> bool:
        """Whether the client may not read the topic; a follower needs CLUSTER_ACTION."""
        if request.replica_id >= 0:
            return not caller.may(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        permissions, partitions = caller.permissions, self._by_key.get(entry.key)
        if permissions is None:
            return False
        if partitions:
            return not permissions.may_read(partitions[0].name.topic)
        return not entry.session.by_ids and not permissions.may_read(entry.key.decode())

    def _partition(self, entry: SessionPartition) -> Partition | ErrorCode:
        """The partition that the entry follows, found again if it was closed."""
        partition = entry.partition
        if partition is not None and not partition.closed:
            return partition
        entry.unwatch()
        found = self._find(entry)
        if isinstance(found, Partition):
            entry.partition = found
        return found

    def _find(self, entry: SessionPartition) -> Partition | ErrorCode:
        partitions = self._by_key.get(entry.key)
        if partitions is None:
            if entry.session.by_ids:
                return ErrorCode.UNKNOWN_TOPIC_ID
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not 0 <= entry.index < len(partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return partitions[entry.index]

    def sent(self, session: FetchSession, topics: _Topics, *, to_follower: bool) -> None:
        """Count what was sent to the client, and record it in the session.

        Partitions with data move to the end of the queue.
        """
        for key, results in topics:
            for result in results:
                records = result.records
                if records is None and not session.id:
                    continue
                entry = session.entries[key, result.partition_index]
                if records is not None and entry.partition is not None:
                    _count_sent(entry.partition.traffic, records, entry.offset, to_follower)
                if session.id:
                    entry.sent_high_watermark = result.high_watermark
                    entry.sent_start = result.log_start_offset
                    if records is not None and entry in session.dirty:
                        del session.dirty[entry]
                        session.dirty[entry] = None


def _count_sent(traffic: TopicTraffic, records: Records, offset: Offset, to_follower: bool) -> None:
    if to_follower:
        traffic.replication_bytes_out += records.length
    else:
        traffic.bytes_out += records.length
        traffic.records_out += max(records.following - offset, 0)


def _forbidden(entry: SessionPartition) -> FetchResult:
    return FetchResult(entry.index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def make_fetch(services: Services) -> Fetch:
    """The handler of this broker."""
    settings, replicas, clock = services.settings, services.replicas, services.clock
    slots = settings.integer("max.incremental.fetch.session.cache.slots")
    max_bytes = settings.integer("fetch.max.bytes")
    nearest = Nearest(services.metadata, services.node_id) if replicas.followers_serve else None
    sessions = SessionCache(slots, clock)
    return Fetch(
        replicas, sessions, services.waiting_fetches, max_bytes, clock, services.errors, nearest
    )


def _size(topics: _Topics) -> int:
    """How many bytes of records were read."""
    return sum(
        result.records.length
        for _, results in topics
        for result in results
        if result.records is not None
    )
