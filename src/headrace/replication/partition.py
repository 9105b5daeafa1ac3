"""One partition of which this broker has a replica: leadership, high watermark, waiting requests.

The log below handles bytes and offsets; the handlers above handle requests. This module has the
rules of a leader: its epoch, what a client may append, up to where a consumer may read, and what
is committed. A leader with followers has a `Leadership`; one without followers commits as it
appends. `fetcher.py` appends what a follower fetched.
"""

import asyncio
from typing import Protocol
from uuid import UUID
from weakref import WeakValueDictionary

from headrace.cluster.image import INTERNAL_TOPICS, NO_LEADER, PartitionState
from headrace.errors import ErrorCode, KafkaError
from headrace.log.log import Log
from headrace.log.retention import LogView
from headrace.log.slices import Slice
from headrace.replication.batch_rules import check_attributes, check_packed_count
from headrace.replication.examination import Examination, Examined
from headrace.replication.leadership import Leadership
from headrace.replication.schema_ids import SchemaIds
from headrace.replication.traffic import Traffic
from headrace.replication.verification import VerificationGuard
from headrace.replication.waiters import CommitWaiters
from headrace.settings import LONG_MAX, LogSettings
from headrace.types import BrokerId, Epoch, Offset, TopicPartition
from headrace.wire import batch
from headrace.wire.compression import CODECS
from headrace.wire.markers import encode_marker
from headrace.wire.record_checks import SMALL_RECORDS, check_fields, check_lengths


class WaitingReader(Protocol):
    """A fetch that waits for changes of partitions."""

    def read_again(self) -> None: ...


class Watcher(Protocol):
    """A fetch session that is notified when a partition changes."""

    def changed(self) -> WaitingReader | None:
        """Note the change; returns the fetch that waits for it, if any."""


class Shared(Protocol):
    """What all partitions of a broker share."""

    node_id: BrokerId
    followers_serve: bool
    changed: list["Partition"]
    max_decompressed_bytes: int
    schema_ids: SchemaIds
    traffic: Traffic

    def open_log(self, partition: "Partition") -> Log: ...

    def known_high_watermark(self, partition: "Partition") -> Offset: ...

    def now_ms(self) -> int: ...

    def isr_due(self, partition: "Partition") -> None: ...

    def cannot_serve(self, partition: "Partition") -> None: ...

    def found_damaged(self, partition: "Partition", offset: Offset) -> None: ...

    def flush_later(self, partition: "Partition") -> None: ...


class Partition:
    """A partition that this broker leads, follows, or only knows the leader of.

    A replica opens its log at first use.
    """

    __slots__ = (
        "_checks_each_record", "_flushed", "_high_watermark", "_log", "_rewrites", "_shared",
        "_state", "_waiters", "closed", "flushes_first", "held", "hosted", "isr", "leader",
        "leader_epoch", "leadership", "leads", "name", "replicas", "serves", "settings", "topic_id",
        "traffic", "verifications", "watchers",
    )  # fmt: skip

    def __init__(
        self,
        name: TopicPartition,
        topic_id: UUID,
        settings: LogSettings,
        state: PartitionState,
        shared: Shared,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.leader: BrokerId = NO_LEADER
        self.leader_epoch: Epoch = -1
        self.leadership: Leadership | None = None
        """The followers' progress, if this broker leads and has followers."""
        self.leads = False
        self.hosted = False
        """Whether this broker has a replica of it."""
        self.serves = False
        """Whether consumers may read it here."""
        self.isr = 0
        self.replicas = 0
        self.closed = False
        self.flushes_first = self.held = False
        self.watchers: dict[Watcher, None] = {}
        # By producer id; an entry lives as long as a request that refers to it.
        self.verifications: WeakValueDictionary[int, VerificationGuard] | None = None
        self._waiters = CommitWaiters()
        self._high_watermark = 0
        self._flushed = 0
        self._state: PartitionState | None = None
        self._log: Log | None = None
        self._shared = shared
        self.traffic = shared.traffic.of(name.topic)
        self.use_settings(settings)
        self.use_state(state)

    def use_settings(self, settings: LogSettings) -> None:
        """Apply a topic's settings, at start or when they change."""
        self.settings = settings
        self.flushes_first = settings.flush_messages == 1
        """Whether an acknowledgement waits for the disk."""
        self.held = self.flushes_first or self.leadership is not None
        self._checks_each_record = (
            settings.record_validation == "full"
            or "compact" in settings.cleanup_policy
            # A header has no minimum timestamp.
            or (
                settings.message_timestamp_type == "CreateTime"
                and settings.message_timestamp_before_max_ms != LONG_MAX
            )
        )
        self._rewrites = (
            self._checks_each_record
            or settings.message_timestamp_type == "LogAppendTime"
            or settings.compression_type != "producer"
            or settings.key_schema_validation
            or settings.value_schema_validation
            or self.name.topic in INTERNAL_TOPICS
        )
        if self._log is not None:
            self._log.settings = settings

    def use_state(self, state: PartitionState) -> None:
        """Become leader, follower or neither, according to the cluster's metadata."""
        if state == self._state:
            return
        self._state = state
        me = self._shared.node_id
        self.hosted = me in state.replicas
        self.isr, self.replicas = len(state.isr), len(state.replicas)
        if state.leader == me:
            self._lead(state)
        else:
            self._give_up(state)
        self.held = self.flushes_first or self.leadership is not None
        self.serves = self.leads or (self.hosted and self._shared.followers_serve)
        if self.leadership is not None:
            self.commit_what_all_have()

    def _lead(self, state: PartitionState) -> None:
        now_ms = self._shared.now_ms()
        if self.leads and self.leader_epoch == state.leader_epoch and self.leadership is not None:
            self.leadership.use(state, now_ms)
            if self.isr < min(self.settings.min_insync_replicas, self.replicas):
                self.fail_waiters(
                    KafkaError(
                        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                        f"{self.name} lost in-sync replicas; {self.isr} are left",
                    )
                )
            return
        changed = self.leader_epoch != state.leader_epoch
        self.leads, self.leader, self.leader_epoch = True, state.leader, state.leader_epoch
        if len(state.replicas) > 1 and (changed or self.leadership is None):
            try:
                end = self.log.end_offset
            except KafkaError:
                self.leads = False
                self._state = None  # the same state is then applied again
                self._shared.cannot_serve(self)
                return
            self.leadership = Leadership(state.leader, state, end, now_ms)
            self._flushed = 0 if self.flushes_first else self._flushed
            if self.flushes_first:
                self._shared.flush_later(self)
        elif len(state.replicas) == 1 and self.leadership is not None:  # the others have left
            self.leadership = None
            self.advance(self.log.end_offset)
        if self.watchers:
            self._shared.changed.append(self)

    def _give_up(self, state: PartitionState) -> None:
        self.leads, self.leadership = False, None
        self.leader, self.leader_epoch = state.leader, state.leader_epoch
        self.verifications = None
        self.fail_waiters(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        if not self.hosted:
            self._log = None
        if self.watchers:
            self._shared.changed.append(self)

    def step_down(self) -> None:
        """Stop leading before a new leader is known: this broker may have lost its registration."""
        if self.leads:
            self.leads, self.leadership, self.leader = False, None, NO_LEADER
            self._state, self.serves = None, False
            self.fail_waiters(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            self._shared.changed.append(self)  # consumers then look for the new leader

    @property
    def log(self) -> Log:
        """The log, opened at first use."""
        if self._log is None:
            self._log = self._shared.open_log(self)
            end = self._log.end_offset
            if self.replicas > 1:
                known = self._shared.known_high_watermark(self)
                self._high_watermark = max(min(known, end), self._log.start_offset)
            else:
                self._high_watermark = end
        return self._log

    def check_whole(self) -> None:
        """KafkaError 2 if the log is damaged; the lost records are then fetched from a replica."""
        for first, following in self.log.holes[:1]:
            self._shared.found_damaged(self, first)
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"the replica here is damaged: it lacks the offsets {first} to {following - 1}",
            )

    def replace_log(self, log: Log) -> None:
        """Replace the log by another one with the same records."""
        log.settings = self.settings
        self._log = log

    @property
    def opened(self) -> bool:
        """Whether the log is open."""
        return self._log is not None

    @property
    def high_watermark(self) -> Offset:
        """The offset below which everything is committed and may be read."""
        if self._log is None:
            self.log  # noqa: B018 - opening it finds the high watermark
        return self._high_watermark

    @property
    def knows_what_is_committed(self) -> bool:
        """Whether the high watermark is no older than this leadership."""
        leadership = self.leadership
        return leadership is None or self._high_watermark >= leadership.epoch_start

    def check_epoch(self, current_leader_epoch: Epoch) -> None:
        """Refuse a request whose leader epoch is older or newer than the current one."""
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    # ------------------------------------------------------------------------------- writing

    def append(
        self,
        buf: bytearray,
        view: memoryview,
        pos: int,
        end: int,
        acks: int,
        now_ms: int,
        verification: VerificationGuard | None = None,
        examined: Examined | None = None,
    ) -> tuple[Offset, int, Offset]:
        """Validate and append a client's batch: (base offset, append time or -1, log start).

        A transactional batch needs what `begin_verification` gave for its producer. TakesLong: its
        examination has to be completed first, and its result passed as `examined`.
        """
        if not self.leads:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        header = batch.checked_header(buf, view, pos, end)
        log = self._log or self.log
        settings = self.settings
        if end - pos > settings.max_message_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the batch has {end - pos} bytes; max.message.bytes of topic "
                f"{self.name.topic} is {settings.max_message_bytes}",
            )
        if acks == -1 and self.isr < settings.min_insync_replicas:
            self._check_in_sync()
        _, _, _, _, _, attributes, _, base_timestamp, max_timestamp, _, _, _, count = header
        if attributes:
            check_attributes(attributes)
            if attributes & batch.TRANSACTIONAL:
                self._check_transaction(log, header, verification)
        # librdkafka sends a maximum timestamp of 0 for records without timestamps, which
        # retention would read as 1970: if the header is doubtful, the records decide.
        doubtful = (
            not 0 <= base_timestamp <= max_timestamp
            or max_timestamp - now_ms > settings.message_timestamp_after_max_ms
        )
        if attributes & batch.CODEC_MASK:
            check_packed_count(count, self._shared.max_decompressed_bytes)
        elif count > SMALL_RECORDS:
            check_lengths(buf, pos + batch.HEADER_BYTES, count, end)
        elif base_timestamp + check_fields(buf, pos + batch.HEADER_BYTES, count, end) != (
            max_timestamp
        ):
            doubtful = True
        append_time = -1
        if doubtful or self._rewrites:
            buf, view, pos, end, header, append_time = self._rewrite(
                buf, view, pos, end, header, now_ms, doubtful, examined
            )
        base = log.append(buf, view, pos, end, header, self.leader_epoch, now_ms)
        traffic = self.traffic
        traffic.records_in += count
        traffic.bytes_in += end - pos
        if self.held:
            self._hold()
        else:
            self._high_watermark = log.end_offset
            if self.watchers:
                self._shared.changed.append(self)
        return base, append_time, log.start_offset

    def _hold(self) -> None:
        """Wait for the disk or the followers: the appended batch is not committed yet."""
        if self.flushes_first:
            self._shared.flush_later(self)
        elif self.leadership is not None:
            self.commit_what_all_have()
        if self.watchers:  # waiting fetches of followers read to the log end
            self._shared.changed.append(self)

    def append_own(self, buf: bytearray, now_ms: int) -> Offset:
        """Append a batch that this broker made itself, with acks=all; its base offset."""
        if not self.leads:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self._log or self.log
        self._check_in_sync()
        header = batch.unpack_header(buf, 0)
        base = log.append(buf, memoryview(buf), 0, len(buf), header, self.leader_epoch, now_ms)
        self.traffic.records_in += log.end_offset - base
        self.traffic.bytes_in += len(buf)
        if self.held:
            self._hold()
        else:
            self.advance(log.end_offset)
        return base

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        now_ms: int,
    ) -> Offset:
        """Append a transaction marker; returns its offset.

        It takes effect once it is committed. A second marker is harmless. KafkaError 47 and 52: an
        older epoch of the producer, of the coordinator.
        """
        log = self._log or self.log
        producer = log.producers.producers.get(producer_id)
        if producer is not None and producer.coordinator_epoch > coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"{self.name} has a marker of coordinator epoch {producer.coordinator_epoch}; "
                f"this one has {coordinator_epoch}",
            )
        marker = encode_marker(producer_id, producer_epoch, commit, coordinator_epoch, now_ms)
        offset = self.append_own(marker, now_ms)
        if self.verifications is not None:
            self.verifications.pop(producer_id, None)
        log.transactions.settled_below(self._high_watermark)
        return offset

    def begin_verification(self, producer_id: int, producer_epoch: int) -> VerificationGuard:
        """Begin the verification of a transactional batch, before the coordinator is asked."""
        if (self._log or self.log).producers.is_open(producer_id, producer_epoch):
            return VerificationGuard(needed=False)
        if self.verifications is None:
            self.verifications = WeakValueDictionary()
        verification = self.verifications.get(producer_id)
        if verification is None:
            verification = self.verifications[producer_id] = VerificationGuard(needed=True)
        return verification

    def is_verified(self, producer_id: int, verification: VerificationGuard) -> bool:
        """Whether no marker of the producer was appended since `begin_verification`."""
        if not verification.needed:
            return (self._log or self.log).producers.open_transactions.get(producer_id) is not None
        known = self.verifications
        return known is not None and known.get(producer_id) is verification

    def _check_transaction(
        self, log: Log, header: batch.HeaderFields, verification: VerificationGuard | None
    ) -> None:
        _, _, _, _, _, _, _, _, _, producer_id, producer_epoch, sequence, _ = header
        if verification is None:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "transactional records need a request with a transactional id",
            )
        if producer_id < 0 or sequence < 0:
            raise KafkaError(
                ErrorCode.INVALID_RECORD, "transactional records need a producer id and a sequence"
            )
        if (
            log.producers.is_open(producer_id, producer_epoch)
            or (
                self.verifications is not None
                and self.verifications.get(producer_id) is verification
            )
            or log.producers.duplicate_of(header) >= 0
        ):
            return
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {producer_id} has no transaction open in {self.name}",
        )

    def _check_in_sync(self) -> None:
        needed = min(self.settings.min_insync_replicas, self.replicas)
        if self.isr < needed:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.name} has {self.isr} in-sync replicas; min.insync.replicas needs {needed}",
            )

    def _rewrite(
        self, buf: bytearray, view: memoryview, pos: int, end: int, header: batch.HeaderFields,
        now_ms: int, doubtful: bool, examined: Examined | None,
    ) -> tuple[bytearray, memoryview, int, int, batch.HeaderFields, int]:  # fmt: skip
        """Apply the topic's settings that need more than the batch header.

        `doubtful`: the header does not prove what the timestamps of the records are.
        """
        _, _, _, _, _, attributes, _, _, max_timestamp, _, _, _, _ = header
        settings = self.settings
        if self.name.topic in INTERNAL_TOPICS:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"only brokers write to the internal topic {self.name.topic}",
            )
        by_producer = settings.message_timestamp_type == "CreateTime"
        codec = CODECS.get(settings.compression_type)
        if codec == attributes & batch.CODEC_MASK:
            codec = None
        largest = None
        if (
            self._checks_each_record
            or (by_producer and doubtful)
            or codec is not None
            or settings.key_schema_validation
            or settings.value_schema_validation
        ):
            if examined is None or examined.settings is not settings:
                examined = Examination(
                    self.name.topic, settings, self._shared, view[pos:end],
                    batch.Header._make(header), now_ms,
                    all_records=self._checks_each_record, doubtful=by_producer and doubtful,
                    codec=codec,
                ).at_once()  # fmt: skip
            largest = examined.largest
            if examined.batch is not None:
                buf = examined.batch
                view, pos, end = memoryview(buf), 0, len(buf)
                header = batch.unpack_header(buf, 0)
        if not by_producer:
            batch.stamp_append_time(buf, view, pos, end, now_ms)
            return buf, view, pos, end, batch.unpack_header(buf, pos), now_ms
        if largest is not None and largest != max_timestamp:
            batch.put_max_timestamp(buf, view, pos, end, largest)
            header = batch.unpack_header(buf, pos)
        return buf, view, pos, end, header, -1

    # --------------------------------------------------------------------------- replication

    def fetched_by(self, follower: BrokerId, epoch: int, offset: Offset) -> None:
        """A follower fetched from `offset`: it holds everything below."""
        leadership = self.leadership
        known = None if leadership is None else leadership.followers.get(follower)
        if leadership is None or known is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self._log or self.log
        known.fetched(offset, epoch, log.end_offset, self._shared.now_ms())
        if follower in leadership.isr:
            self.commit_what_all_have()
        elif leadership.joining(self._high_watermark):
            self._shared.isr_due(self)

    def read_to_end(self, offset: Offset, max_bytes: int, whole_first: bool) -> Slice | None:
        """Batches from `offset` on, committed or not: for followers and for the leader itself."""
        log = self._log or self.log
        return log.read(offset, max_bytes, log.end_offset, whole_first)

    def flushed(self, offset: Offset) -> None:
        """Everything below `offset` is on this broker's disk."""
        self._flushed = offset
        if self.leadership is not None:
            self.commit_what_all_have()
        elif self.leads:
            self.advance(offset)

    def follow_to(self, high_watermark: Offset) -> None:
        """Apply the leader's high watermark (follower only)."""
        bound = min(high_watermark, self.log.end_offset)
        if bound > self._high_watermark:
            self.advance(bound)

    def truncate_to(self, offset: Offset) -> None:
        """Truncate the log to what the leader has (follower only)."""
        self.log.truncate_to(offset)
        self._high_watermark = min(self._high_watermark, self.log.end_offset)

    def restart_at(self, offset: Offset) -> None:
        """Empty the log: the leader's log starts after the end of this one (follower only)."""
        self.log.restart_at(offset)
        self._high_watermark = offset

    def commit_what_all_have(self) -> None:
        """Commit what all in-sync replicas have."""
        leadership, log = self.leadership, self._log or self.log
        if leadership is None:
            return
        own_end = self._flushed if self.flushes_first else log.end_offset
        bound = leadership.committed(own_end, self.settings.min_insync_replicas)
        if bound > self._high_watermark:
            self.advance(bound)

    def is_committed(self, offset: Offset) -> bool:
        """Whether everything below `offset` is committed."""
        return self._high_watermark >= offset

    def wait_committed(self, offset: Offset) -> asyncio.Future[None]:
        """Done when everything below `offset` is committed; fails if this broker is not the
        leader.
        """
        return self._waiters.wait(offset, self.leads)

    def advance(self, offset: Offset) -> None:
        """Everything below `offset` is committed now."""
        if offset > self._high_watermark:
            self._high_watermark = offset
        if self.watchers:
            self._shared.changed.append(self)
        self._waiters.reached(offset)

    def fail_waiters(self, error: KafkaError) -> None:
        """Fail all requests that wait for a commit."""
        self._waiters.fail(error)

    def delete_records(self, offset: Offset) -> Offset:
        """Delete records below `offset` (-1: all that is committed); the new low watermark."""
        high_watermark = self.high_watermark
        if offset == -1:
            offset = high_watermark
        if offset < 0 or offset > high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot delete below {offset}: the high watermark of {self.name} is "
                f"{high_watermark}",
            )
        start = self.log.delete_records_before(offset)
        self.advance(self._high_watermark)
        return start

    def retention_view(self) -> LogView:
        """The state that retention uses."""
        log = self.log
        return LogView(log.segments, log.start_offset, log.end_offset, self.high_watermark)

    def delete_segments(self, count: int, now_ms: int) -> None:
        """Delete the oldest segments, all of them committed."""
        self.log.delete_segments(count, now_ms)
        self.advance(self._high_watermark)

    # ------------------------------------------------------------------------------- reading

    @property
    def last_stable_offset(self) -> Offset:
        """The last stable offset, for `read_committed` consumers."""
        log = self._log or self.log
        return log.last_stable_offset(self._high_watermark)

    def read_committed(
        self, offset: Offset, max_bytes: int, whole_first: bool
    ) -> tuple[Slice | None, list[tuple[int, Offset]]]:
        """Batches below the last stable offset, and the aborted transactions among them."""
        if not self.serves:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self._log or self.log
        limit = log.last_stable_offset(self._high_watermark)
        piece = log.read(offset, max_bytes, limit, whole_first)
        if piece is None or not log.transactions:
            return piece, []
        return piece, log.transactions.between(offset, log.end_of(piece, offset))

    def read(self, offset: Offset, max_bytes: int, whole_first: bool) -> Slice | None:
        """Committed batches from `offset` on, or None if there are none yet."""
        if not self.serves:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self._log or self.log
        high_watermark = self._high_watermark
        if offset == high_watermark:
            return None
        return log.read(offset, max_bytes, high_watermark, whole_first)

    def close(self) -> None:
        """The partition was removed from this broker; waiting requests check again."""
        self.closed = True
        self.fail_waiters(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if self.watchers:
            self._shared.changed.append(self)
