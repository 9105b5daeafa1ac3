"""One partition of which this broker knows: leadership, and the rules of a leader.

The log below handles bytes and offsets; the handlers above handle requests. This module has the
rules of a leader: its epoch, what a client may append, and what is committed. A leader with
followers has a `Leadership`; one without followers commits as it appends. The log and the high
watermark are in `replica.py`; `fetcher.py` appends what a follower fetched.
"""

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.cluster.image import NO_LEADER, PartitionState
from headrace.errors import ErrorCode, KafkaError
from headrace.log.log import Log
from headrace.replication.batch_rules import check_attributes, check_packed_count
from headrace.replication.conversion import BatchConversion
from headrace.replication.examination import Examined
from headrace.replication.forks import ForkInProgress
from headrace.replication.leadership import Leadership
from headrace.replication.replica import LocalReplica
from headrace.replication.verification import VerificationGuard, Verifications
from headrace.settings import LogSettings
from headrace.types import BrokerId, Epoch, Offset, TopicPartition
from headrace.wire import batch
from headrace.wire.markers import encode_marker
from headrace.wire.record_checks import SMALL_RECORDS, check_fields, check_lengths

if TYPE_CHECKING:
    from headrace.replication.replicas import Replicas


class Partition:
    """A partition that this broker leads, follows, or only knows the leader of."""

    __slots__ = (
        "_conversion",
        "_flushed",
        "_shared",
        "_state",
        "closed",
        "commits_later",
        "flushes_first",
        "hosted",
        "isr",
        "leader",
        "leader_epoch",
        "leadership",
        "leads",
        "name",
        "replica",
        "replicas",
        "settings",
        "topic_id",
        "traffic",
        "verifications",
    )  # fmt: skip

    def __init__(
        self,
        name: TopicPartition,
        topic_id: UUID,
        settings: LogSettings,
        state: PartitionState,
        shared: "Replicas",
        conversion: BatchConversion | None = None,
    ) -> None:
        """`shared` is what all partitions of this broker share, `conversion` those of a topic."""
        self.name = name
        self.topic_id = topic_id
        self.leader: BrokerId = NO_LEADER
        self.leader_epoch: Epoch = -1
        self.leadership: Leadership | None = None
        """The followers' progress, if this broker leads and has followers."""
        self.leads = False
        self.hosted = False
        """Whether this broker has a replica of it."""
        self.isr = 0
        """The number of in-sync replicas."""
        self.replicas = 0
        """The number of replicas on all brokers."""
        self.closed = False
        self.flushes_first = False
        """Whether an acknowledgement waits for the disk."""
        self.commits_later = False
        """Whether an appended batch has to reach followers or the disk before it is committed."""
        self.replica = LocalReplica(self, shared.changed)
        self.verifications = Verifications(self.replica)
        self._flushed = 0
        self._state: PartitionState | None = None
        self._shared = shared
        self.traffic = shared.traffic.of(name.topic)
        self.use_settings(settings, conversion)
        self.use_state(state)

    def use_settings(
        self, settings: LogSettings, conversion: BatchConversion | None = None
    ) -> None:
        """Apply a topic's settings, at start or when they change."""
        self.settings = settings
        self.flushes_first = settings.flush_messages == 1
        self.commits_later = self.flushes_first or self.leadership is not None
        self._conversion = conversion or BatchConversion(self.name.topic, settings, self._shared)
        if self.replica.opened is not None:
            self.replica.opened.use_settings(settings)

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
            self._stop_leading(state)
        self.commits_later = self.flushes_first or self.leadership is not None
        self.replica.serves = self.leads or (self.hosted and self._shared.followers_serve)
        if self.leadership is not None:
            self.advance_high_watermark()

    def _lead(self, state: PartitionState) -> None:
        now_ms = self._shared.now_ms()
        if self.leads and self.leader_epoch == state.leader_epoch and self.leadership is not None:
            self.leadership.use(state, now_ms)
            if self.isr < min(self.settings.min_insync_replicas, self.replicas):
                self.replica.waiters.fail(
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
                end = self.replica.log.end_offset
            except ForkInProgress:
                self.leads = False
                self._state = None  # the same state is applied again when the fork is complete
                return
            except KafkaError:
                self.leads = False
                self._state = None  # the same state is then applied again
                self._shared.offline_replicas.add(self)
                return
            self.leadership = Leadership(state.leader, state, end, now_ms)
            self._flushed = 0 if self.flushes_first else self._flushed
            if self.flushes_first:
                self._shared.flusher.request(self)
        elif len(state.replicas) == 1 and self.leadership is not None:  # the others have left
            self.leadership = None
            self.replica.advance(self.replica.log.end_offset)
        self.replica.notify()

    def _stop_leading(self, state: PartitionState) -> None:
        self.leads, self.leadership = False, None
        self.leader, self.leader_epoch = state.leader, state.leader_epoch
        self.verifications.clear()
        self.replica.waiters.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        if not self.hosted:
            self.replica.opened = None
        self.replica.notify()

    def step_down(self) -> None:
        """Stop leading before a new leader is known: this broker may have lost its registration."""
        if self.leads:
            self.leads, self.leadership, self.leader = False, None, NO_LEADER
            self._state, self.replica.serves = None, False
            self.replica.waiters.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            self.replica.notify()  # consumers then look for the new leader

    def open_log(self) -> tuple[Log, Offset]:
        """The log and the high watermark that is known of it; for the local replica."""
        log = self._shared.folders.open_log(self)
        if self.replicas <= 1:
            return log, log.end_offset
        known = self._shared.high_watermarks.saved(self.name)
        return log, max(min(known, log.end_offset), log.start_offset)

    def check_whole(self) -> None:
        """KafkaError 2 if the log is damaged; the lost records are then fetched from a replica."""
        for first, following in self.replica.log.holes[:1]:
            self._shared.damaged.add(self, first)
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"the replica here is damaged: it lacks the offsets {first} to {following - 1}",
            )

    @property
    def has_current_high_watermark(self) -> bool:
        """Whether the high watermark is no older than this leadership."""
        leadership = self.leadership
        return leadership is None or self.replica.committed >= leadership.epoch_start

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

        `verification` is the guard of a transactional batch (`Verifications.begin`). TakesLong: the
        examination of the batch has to be completed first, and its result passed as `examined`.
        """
        if not self.leads:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        header = batch.checked_header(buf, view, pos, end)
        replica = self.replica
        log = replica.opened or replica.log
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
                self.verifications.check(header, verification, self.name)
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
        if doubtful or self._conversion.needed:
            buf, view, pos, end, header, append_time = self._conversion.convert(
                buf, view, pos, end, header, now_ms, doubtful, examined
            )
        base = log.append(buf, view, pos, end, header, self.leader_epoch, now_ms)
        traffic = self.traffic
        traffic.records_in += count
        traffic.bytes_in += end - pos
        if self.commits_later:
            self._commit_later()
        else:
            replica.committed = log.end_offset
            if replica.watchers:
                self._shared.changed.append(replica)
        return base, append_time, log.start_offset

    def _commit_later(self) -> None:
        """Commit the appended batch when the followers or the disk have it."""
        if self.flushes_first:
            self._shared.flusher.request(self)
        elif self.leadership is not None:
            self.advance_high_watermark()
        if self.replica.watchers:  # waiting fetches of followers read to the log end
            self._shared.changed.append(self.replica)

    def append_own(self, buf: bytearray, now_ms: int) -> Offset:
        """Append a batch that this broker made itself, with acks=all; its base offset."""
        if not self.leads:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        replica = self.replica
        log = replica.opened or replica.log
        self._check_in_sync()
        header = batch.unpack_header(buf, 0)
        base = log.append(buf, memoryview(buf), 0, len(buf), header, self.leader_epoch, now_ms)
        self.traffic.records_in += log.end_offset - base
        self.traffic.bytes_in += len(buf)
        if self.commits_later:
            self._commit_later()
        else:
            replica.advance(log.end_offset)
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
        log = self.replica.log
        producer = log.producers.producers.get(producer_id)
        if producer is not None and producer.coordinator_epoch > coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"{self.name} has a marker of coordinator epoch {producer.coordinator_epoch}; "
                f"this one has {coordinator_epoch}",
            )
        marker = encode_marker(producer_id, producer_epoch, commit, coordinator_epoch, now_ms)
        offset = self.append_own(marker, now_ms)
        self.verifications.end(producer_id)
        log.transactions.stable_below(self.replica.committed)
        return offset

    def _check_in_sync(self) -> None:
        needed = min(self.settings.min_insync_replicas, self.replicas)
        if self.isr < needed:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.name} has {self.isr} in-sync replicas; min.insync.replicas needs {needed}",
            )

    # --------------------------------------------------------------------------- replication

    def fetched_by(self, follower: BrokerId, epoch: int, offset: Offset) -> None:
        """A follower fetched from `offset`: it holds everything below."""
        leadership = self.leadership
        known = None if leadership is None else leadership.followers.get(follower)
        if leadership is None or known is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        replica = self.replica
        log = replica.opened or replica.log
        known.fetched(offset, epoch, log.end_offset, self._shared.now_ms())
        if follower in leadership.isr:
            self.advance_high_watermark()
        elif leadership.joining(replica.committed):
            self._shared.isr_expansions.add(self)

    def flushed(self, offset: Offset) -> None:
        """Everything below `offset` is on this broker's disk."""
        self._flushed = offset
        if self.leadership is not None:
            self.advance_high_watermark()
        elif self.leads:
            self.replica.advance(offset)

    def advance_high_watermark(self) -> None:
        """Commit what all in-sync replicas have."""
        leadership, replica = self.leadership, self.replica
        if leadership is None:
            return
        log = replica.opened or replica.log
        own_end = self._flushed if self.flushes_first else log.end_offset
        bound = leadership.committed(own_end, self.settings.min_insync_replicas)
        if bound > replica.committed:
            replica.advance(bound)

    def wait_committed(self, offset: Offset) -> asyncio.Future[None]:
        """Done when everything below `offset` is committed; fails if this broker is not the
        leader.
        """
        return self.replica.waiters.wait(offset, self.leads)

    def close(self) -> None:
        """The partition was removed from this broker; waiting requests check again."""
        self.closed = True
        self.replica.waiters.fail(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        self.replica.notify()
