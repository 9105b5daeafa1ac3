"""The share partitions of the partitions that this broker leads.

A share partition is read from the share coordinator when a member first fetches from it, and
dropped when no session uses it or another broker leads. Changes of its state
(`share_partition.py`) are stored by one write at a time; changes that come meanwhile are stored
together by the next one. Fetches wait for new records and for released ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

from headrace.clock import Clock
from headrace.cluster.image import Image
from headrace.cluster.metadata import Metadata
from headrace.coordination.coordinator_tasks import CoordinatorTasks
from headrace.coordination.shares.dead_letters import DeadLetters
from headrace.coordination.shares.delivery import (
    Acknowledgement,
    AcknowledgeType,
    Acquired,
    AcquireMode,
)
from headrace.coordination.shares.fetched_batches import acquired_bytes, find_batches
from headrace.coordination.shares.persister import SharePersister
from headrace.coordination.shares.share_group_settings import ShareGroupSettings, duration_ms
from headrace.coordination.shares.share_partition import (
    AcquireLimits,
    SharePartition,
    StateWrite,
)
from headrace.coordination.shares.share_records import SharePartitionKey
from headrace.coordination.shares.share_states import UNINITIALIZED, ShareStateWrite
from headrace.errors import ErrorCode, KafkaError
from headrace.log.timestamps import BatchSearch, LongSearch, SearchKey, TimestampOffset
from headrace.replication.partition import Partition
from headrace.replication.replicas import Replicas
from headrace.settings import Settings
from headrace.types import BrokerId

logger = logging.getLogger(__name__)

Search: TypeAlias = Callable[[BatchSearch], Awaitable[TimestampOffset | None]]
"""Searches a large batch outside of the event loop."""

_CHUNK_BYTES = 256 * 1024
"""How much of a log is read at a time; more only if there are too few records in it."""
_MAX_PARTITION_BYTES = 1024 * 1024
_HIGH_WATERMARK_PAUSE_S = 0.05
_NO_CONFIGS: Mapping[str, str] = {}
_MOST_KNOWN = 1000

_STALE = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors of the share coordinator after which the state must be read again."""


class ShareFetchLimits(NamedTuple):
    """The limits of a ShareFetch for one partition."""

    max_records: int
    max_bytes: int
    batch_size: int
    mode: AcquireMode


class DeliveredRecords(NamedTuple):
    """The batches for a member, and which of their records it has acquired."""

    pieces: list[memoryview]
    acquired: list[Acquired]
    size_bytes: int
    record_count: int


class LedSharePartition:
    """A share partition, as the leader of the partition has it."""

    __slots__ = (
        "acknowledged", "closed", "error", "key", "leader_epoch", "partition", "sessions", "state",
        "state_epoch", "storing", "timer", "waiting",
    )  # fmt: skip

    def __init__(self, key: SharePartitionKey, partition: Partition) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state: SharePartition | None = None
        """None until it is read from the share coordinator."""
        self.state_epoch = -1
        self.error: KafkaError | None = None
        """Why the state could not be read."""
        self.closed = False
        self.sessions: set[object] = set()
        """The share sessions that use it."""
        self.storing = False
        self.acknowledged: list[asyncio.Future[KafkaError | None]] = []
        """Requests that wait until the next write is stored."""
        self.waiting: dict[asyncio.Future[None], None] = {}
        """Fetches that wait for records."""
        self.timer: asyncio.TimerHandle | None = None

    @property
    def is_current(self) -> bool:
        """Whether this broker still leads the partition, in the same epoch."""
        partition = self.partition
        leads = partition.leads and partition.leader_epoch == self.leader_epoch
        return leads and not self.closed and not partition.closed

    # The partition notifies its watchers of new records: see `apis/records/waiting_fetches.py`.

    def changed(self) -> LedSharePartition | None:
        """The partition has changed; returns what reads it again."""
        return self if self.waiting else None

    def read_again(self) -> None:
        """Let the fetch that has waited longest look for records.

        It lets the next one look when it has ended. So a batch does not wake all members.
        """
        for future in self.waiting:
            if not future.done():
                future.set_result(None)
                return

    def wake_all(self) -> None:
        """Let all waiting fetches end or look elsewhere."""
        for future in self.waiting:
            if not future.done():
                future.set_result(None)

    def wait(self, future: asyncio.Future[None]) -> None:
        """Complete this future at the next change."""
        self.waiting[future] = None
        self.partition.replica.watchers[self] = None

    def stop_waiting(self, future: asyncio.Future[None]) -> None:
        """The fetch no longer waits."""
        self.waiting.pop(future, None)
        if not self.waiting:
            self.partition.replica.watchers.pop(self, None)


class SharePartitions:
    """All share partitions that members fetch from this broker."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        metadata: Metadata,
        replicas: Replicas,
        persister: SharePersister,
        dead_letters: DeadLetters,
        search: Search,
        tasks: CoordinatorTasks,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._metadata = metadata
        self._replicas = replicas
        self._persister = persister
        self._dead_letters = dead_letters
        self._search = search
        self._tasks = tasks
        self._led: dict[SharePartitionKey, LedSharePartition] = {}
        self._known_settings: dict[str, tuple[Mapping[str, str], ShareGroupSettings]] = {}
        """Settings of groups, with the configs that they were made from."""
        metadata.listeners.append(self._follow)

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        """The settings of a group."""
        configs = self._metadata.image.group_configs.get(group_id, _NO_CONFIGS)
        known = self._known_settings.get(group_id)
        if known is not None and known[0] is configs:
            return known[1]
        found = ShareGroupSettings.of(self._settings, configs)
        if len(self._known_settings) >= _MOST_KNOWN:
            self._known_settings.clear()
        self._known_settings[group_id] = configs, found
        return found

    # ---------------------------------------------------------------------------------- finding

    def find(self, key: SharePartitionKey) -> LedSharePartition:
        """The share partition, which may not be read yet; KafkaError if this broker has none."""
        partition = self._partition(key.topic_id, key.partition)
        led = self._led.get(key)
        if led is not None and (led.partition is not partition or not led.is_current):
            self._close(led)
            led = None
        if led is None:
            led = self._led[key] = LedSharePartition(key, partition)
            self._tasks.spawn(self._read(led))
        return led

    def _partition(self, topic_id: UUID, index: int) -> Partition:
        partitions = self._replicas.by_key.get(topic_id.bytes)
        if partitions is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if not 0 <= index < len(partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not partitions[index].leads:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partitions[index]

    def leader(self, topic_id: UUID, index: int) -> tuple[BrokerId, int]:
        """The leader of a partition and its epoch, as this broker knows them."""
        partitions = self._replicas.by_key.get(topic_id.bytes)
        if partitions is None or not 0 <= index < len(partitions):
            return -1, -1
        return partitions[index].leader, partitions[index].leader_epoch

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of a topic; None if there is none."""
        partitions = self._replicas.by_key.get(topic_id.bytes)
        return partitions[0].name.topic if partitions else None

    async def _read(self, led: LedSharePartition) -> None:
        """Read the state of a share partition, and choose its start offset if it has none."""
        try:
            stored = await self._persister.read(led.key, led.leader_epoch)
            settings = self.settings_of(led.key.group_id)
            start = stored.start
            if start == UNINITIALIZED:
                start = await self._first_offset(led.partition, settings.reset)
                # Stored at once: after a restart the group begins at the same offset.
                first = ShareStateWrite(stored.state_epoch, led.leader_epoch, start, (), 0)
                await self._persister.write(led.key, first)
            led.state_epoch = stored.state_epoch
            led.state = SharePartition(start, stored.batches, settings.max_deliveries)
        except KafkaError as error:
            logger.warning("cannot read the share state of %s: %s", led.key, error)
            led.error = error
            self._close(led)
        led.read_again()
        self.drop_if_unused(led)

    async def _first_offset(self, partition: Partition, reset: str) -> int:
        while not partition.has_current_high_watermark:
            if not partition.leads:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            await asyncio.sleep(_HIGH_WATERMARK_PAUSE_S)
        replica = partition.replica
        if reset == "earliest":
            return replica.log.start_offset
        if reset == "latest":
            return replica.high_watermark
        since_ms = self._clock.now_ms() - duration_ms(reset.partition(":")[2])
        searched: dict[SearchKey, TimestampOffset | None] = {}
        while True:
            try:
                found = replica.log.find_timestamp(since_ms, searched)
            except LongSearch as long:
                searched[long.search.key] = await self._search(long.search)
                continue
            return replica.high_watermark if found is None else found.offset

    # ---------------------------------------------------------------------------------- fetching

    def fetch(
        self, led: LedSharePartition, member: str, limits: ShareFetchLimits
    ) -> DeliveredRecords | None:
        """Acquire records for a member; None if there are none now."""
        state, replica = led.state, led.partition.replica
        if state is None:
            return None
        settings = self.settings_of(led.key.group_id)
        state.max_deliveries = settings.max_deliveries
        state.log_starts_at(replica.log.start_offset)
        out = DeliveredRecords([], [], 0, 0)
        most_bytes = min(limits.max_bytes, _MAX_PARTITION_BYTES)
        before = -1
        while out.record_count < limits.max_records and out.size_bytes < most_bytes:
            offset = state.next_offset(settings.max_locks)
            if offset is None or offset <= before:
                break
            before = offset
            chunk = min(most_bytes - out.size_bytes, _CHUNK_BYTES)
            read = self._read_chunk(led, offset, chunk, settings.reads_committed)
            if read is None:
                break
            data, aborted = read
            places, fetched = find_batches(data, aborted)
            wanted = AcquireLimits(
                limits.max_records - out.record_count, limits.batch_size, limits.mode,
                settings.max_locks,
            )  # fmt: skip
            acquired = state.acquire(
                member, offset, fetched, wanted, self._now_ms(), settings.lock_ms
            )
            pieces = acquired_bytes(data, places, acquired)
            out = DeliveredRecords(
                out.pieces + pieces,
                out.acquired + acquired,
                out.size_bytes + sum(map(len, pieces)),
                out.record_count + sum(one.last - one.first + 1 for one in acquired),
            )
        if not out.acquired:
            return None
        led.partition.traffic.bytes_out += out.size_bytes
        led.partition.traffic.records_out += out.record_count
        self._arm(led)
        return out

    def _read_chunk(
        self, led: LedSharePartition, offset: int, max_bytes: int, committed: bool
    ) -> tuple[bytes, Sequence[tuple[int, int]]] | None:
        replica = led.partition.replica
        aborted: Sequence[tuple[int, int]] = ()
        try:
            if committed:
                found, aborted = replica.read_committed(offset, max_bytes, True)
            else:
                found = replica.read(offset, max_bytes, True)
            return None if found is None else (replica.read_bytes(found), aborted)
        except KafkaError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                return None  # the log was truncated: new records will come
            if error.code is ErrorCode.CORRUPT_MESSAGE:
                self._replicas.damaged.add(led.partition, offset)
            raise

    # ------------------------------------------------------------------- acknowledging, releasing

    def acknowledge(
        self, led: LedSharePartition, member: str, acks: Sequence[Acknowledgement]
    ) -> asyncio.Future[KafkaError | None] | None:
        """Process acknowledgements; KafkaError if they are refused.

        The future is completed when they are stored, with an error if they could not be. None if
        there is nothing to store.
        """
        if led.state is None:
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "the records are not acquired")
        settings = self.settings_of(led.key.group_id)
        if not settings.renews and any(ack.type is AcknowledgeType.RENEW for ack in acks):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "the group has share.renew.acknowledge.enable=false"
            )
        led.state.acknowledge(member, acks, self._now_ms(), settings.lock_ms)
        self._arm(led)
        if not led.state.must_write:
            return None
        stored: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()
        led.acknowledged.append(stored)
        self._store(led)
        return stored

    def release(self, group_id: str, member: str) -> None:
        """Release all records of a member whose session has ended."""
        for led in list(self._led.values()):
            if led.key.group_id == group_id and led.state is not None:
                led.state.release_member(member)
                self._store(led)

    def _expire(self, led: LedSharePartition) -> None:
        led.timer = None
        if led.state is not None and not led.closed:
            led.state.expire(self._now_ms())
            self._store(led)
            self._arm(led)

    def _arm(self, led: LedSharePartition) -> None:
        """Set the timer for the lock that expires next, unless it is due earlier."""
        deadline_ms = None if led.state is None else led.state.next_deadline_ms()
        if deadline_ms is None or led.closed:
            return
        loop = asyncio.get_running_loop()
        # One millisecond more: the clock is rounded down.
        due = loop.time() + max(deadline_ms - self._now_ms() + 1, 1) / 1000
        if led.timer is not None:
            if led.timer.when() <= due + 0.002:
                return
            led.timer.cancel()
        led.timer = loop.call_at(due, self._expire, led)

    # ------------------------------------------------------------------------------------ storing

    def _store(self, led: LedSharePartition) -> None:
        """Begin to store the changes of a share partition."""
        if led.state is None or led.storing or led.closed or not self._tasks.are_running:
            return
        if led.state.must_write:
            led.storing = True
            self._tasks.spawn(self._store_changes(led, led.state))
        else:
            self.drop_if_unused(led)

    async def _store_changes(self, led: LedSharePartition, state: SharePartition) -> None:
        most = self.settings_of(led.key.group_id).max_locks
        was_full = False
        while state.must_write and not led.closed:
            write = state.begin_write()
            waiting, led.acknowledged = led.acknowledged, []
            error = await self._write(led, write)
            was_full = was_full or state.next_offset(most) is None
            state.end_write(error is None, self._now_ms())
            for future in waiting:
                if not future.done():
                    future.set_result(error)
            if error is not None:
                logger.warning("cannot store the share state of %s: %s", led.key, error)
                if error.code in _STALE:
                    self._close(led)
        led.storing = False
        offset = state.next_offset(most)
        if offset is not None and (was_full or offset < state.end):
            led.read_again()  # accepted records alone give waiting members nothing to do
        self._arm(led)
        self.drop_if_unused(led)

    async def _write(self, led: LedSharePartition, write: StateWrite) -> KafkaError | None:
        try:
            if write.dead_letters:
                settings = self.settings_of(led.key.group_id)
                await self._dead_letters.write(
                    led.key.group_id, led.partition, settings, write.dead_letters
                )
            await self._persister.write(
                led.key,
                ShareStateWrite(
                    led.state_epoch, led.leader_epoch, write.start, write.batches,
                    write.complete_count,
                ),
            )  # fmt: skip
        except KafkaError as error:
            return error
        return None

    # ----------------------------------------------------------------------------------- dropping

    def drop_if_unused(self, led: LedSharePartition) -> None:
        """Drop a share partition that no session uses and of which nothing is locked."""
        state = led.state
        idle = state is not None and not led.storing and not state.members()
        if idle and not led.sessions and not led.closed:
            self._close(led)

    def _close(self, led: LedSharePartition) -> None:
        led.closed = True
        if self._led.get(led.key) is led:
            del self._led[led.key]
        if led.timer is not None:
            led.timer.cancel()
            led.timer = None
        for future in led.acknowledged:
            if not future.done():
                future.set_result(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        led.acknowledged = []
        led.wake_all()

    def _follow(self, _old: Image, _new: Image) -> None:
        """Drop the share partitions that other brokers lead now."""
        for led in list(self._led.values()):
            if not led.is_current:
                self._close(led)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)
