"""The coordinator of this broker's transactional ids, and the markers that end transactions.

It runs operations on `transactions.py` with `runtime.py`. When the record that decides a
transaction is committed, every partition of it gets its marker, from this broker or from the one
that leads it, and when those are committed the transaction is complete.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence

from headrace.clock import Clock
from headrace.cluster.controller import NewTopic
from headrace.cluster.image import NO_LEADER, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from headrace.cluster.metadata import Metadata
from headrace.coordination import remote_transactions
from headrace.coordination.group_runtime import GroupCoordinator
from headrace.coordination.load import Latest, replay_transactions
from headrace.coordination.outcome import Outcome, Token, answer
from headrace.coordination.runtime import Runtime
from headrace.coordination.shards import Shard
from headrace.coordination.transaction_records import Transaction, TransactionState
from headrace.coordination.transactions import AT_REST, BUMPS_AT_END, Identity, Transactions
from headrace.errors import ErrorCode, KafkaError
from headrace.replication.partition import Partition
from headrace.replication.peers import Peers
from headrace.replication.replicas import Replicas
from headrace.settings import Settings
from headrace.types import BrokerId, TopicPartition
from headrace.wire.steps import Steps

logger = logging.getLogger(__name__)

_STRIDE = 256
"""Transactional ids between two yields."""
MARKERS_AT_ONCE = 200
"""Markers of a transaction that are written in one step of the event loop: some milliseconds."""
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
"""How long to wait before a failed marker is retried; the wait doubles each time."""

_NOTHING_TO_END = (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH)
"""The marker is written, or a newer epoch has ended the transaction there."""


class TransactionCoordinator(Runtime[Transactions]):
    """The transactional ids that this broker coordinates."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        metadata: Metadata,
        replicas: Replicas,
        groups: Callable[[], GroupCoordinator],
        peers: Peers,
    ) -> None:
        super().__init__(TRANSACTIONS_TOPIC, settings, clock, metadata, replicas, 0)
        self._groups = groups
        self._peers = peers

    def start(self) -> None:
        """Begin to read the logs, and to expire transactions and transactional ids."""
        super().start()
        for setting, work in (
            ("transaction.abort.timed.out.transaction.cleanup.interval.ms", self.abort_timed_out),
            ("transaction.remove.expired.transaction.cleanup.interval.ms", self.forget_expired),
        ):
            self._tasks.repeat(self._settings.integer(setting), work)

    def abort_timed_out(self) -> None:
        """Abort transactions that have timed out."""
        self._sweep(Transactions.abort_timed_out)

    def count_open_steps(self) -> Steps[tuple[int, float]]:
        """How many transactions are open here, and the age of the oldest in seconds."""
        count, now_ms = 0, self._clock.now_ms()
        oldest_ms = now_ms
        for shard in self.shards.ready():
            for number, one in enumerate([*shard.state.ids.values()]):
                if one.state not in AT_REST:
                    count += 1
                    oldest_ms = min(oldest_ms, one.start_ms)
                if not number % _STRIDE:
                    yield
        return count, (now_ms - oldest_ms) / 1000

    def forget_expired(self) -> None:
        """Expire unused transactional ids."""
        self._sweep(Transactions.forget_expired)

    def _new_state(self) -> Transactions:
        return Transactions(
            self._settings.integer("transaction.max.timeout.ms"),
            self._settings.integer("transactional.id.expiration.ms"),
            self._metadata.producer_ids.next,
        )

    def _new_topic(self) -> NewTopic:
        settings = self._settings
        factor = min(
            settings.integer("transaction.state.log.replication.factor"),
            len(self._metadata.image.brokers),
        )
        in_sync = min(settings.integer("transaction.state.log.min.isr"), factor)
        return NewTopic(
            TRANSACTIONS_TOPIC,
            settings.integer("transaction.state.log.num.partitions"),
            factor,
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "uncompressed"),
                ("min.insync.replicas", str(in_sync)),
                ("segment.bytes", str(settings.integer("transaction.state.log.segment.bytes"))),
            ),
        )

    def _replay_steps(self, state: Transactions, latest: Latest) -> Iterator[None]:
        return replay_transactions(state, latest)

    # -------------------------------------------------------------- partitions of a transaction

    def enlist(
        self, name: str, who: Identity, partitions: frozenset[TopicPartition], add: bool
    ) -> frozenset[TopicPartition] | Coroutine[None, None, frozenset[TopicPartition]]:
        """Check partitions that a producer is about to write to; returns those it may not write to.

        With `add` they are added to its transaction, as for clients of transaction version 2;
        otherwise they must be in it already. KafkaError if the producer may not write at all.
        """

        def operation(
            state: Transactions, token: Token[frozenset[TopicPartition]], _now_ms: int
        ) -> Outcome:
            if add:
                return state.add(name, who, partitions, BUMPS_AT_END, token)
            return answer(token, state.missing(name, who, partitions))

        coordinator = self.topic.leader_of(name)
        if coordinator not in (self._replicas.node_id, NO_LEADER):
            return remote_transactions.enlist(self._peers, coordinator, name, who, partitions, add)
        return self.run(name, operation, frozenset)

    # ----------------------------------------------------------------------- ending transactions

    def _settled(self, shard: Shard[Transactions], outcome: Outcome) -> None:
        for name in outcome.ended:
            prepared = shard.state.ids.get(name)
            if prepared is not None:
                self._finish(shard, name, prepared, sorted(prepared.partitions))

    def _finish(
        self,
        shard: Shard[Transactions],
        name: str,
        prepared: Transaction,
        left: Sequence[TopicPartition],
        failed: Iterable[TopicPartition] = (),
        pause: float = _FIRST_PAUSE_SECONDS,
    ) -> None:
        """Write the markers that are left, and complete the transaction once they are committed.

        `failed` are partitions whose markers could not be written before: they are tried again
        after a pause.
        """
        commit = prepared.state is TransactionState.PREPARE_COMMIT
        epoch = shard.partition.leader_epoch
        waiting: list[asyncio.Future[None]] = []
        failures = set(failed)
        later = left[MARKERS_AT_ONCE:]
        elsewhere: dict[BrokerId, list[TopicPartition]] = {}
        for where in left[:MARKERS_AT_ONCE]:
            leader = self._leader(where)
            if leader is None:
                continue  # the topic was deleted
            if leader != self._replicas.node_id:
                elsewhere.setdefault(leader, []).append(where)
                continue
            try:
                partition = self._replicas.partition(*where)
                offset = self.write_marker(
                    where, prepared.producer_id, prepared.epoch, commit, epoch
                )
            except KafkaError as error:
                if error.code in _NOTHING_TO_END:
                    continue
                logger.warning(
                    "cannot write the marker of a transaction of %s to %s: %s; retrying",
                    name,
                    where,
                    error,
                )
                failures.add(where)
                continue
            if not partition.replica.is_committed(offset + 1):
                waiting.append(partition.wait_committed(offset + 1))
        if not failures and not waiting and not elsewhere and not later:
            if not self._complete(shard, name, prepared) and self._tasks.are_running:
                self._tasks.spawn(self._complete_later(shard, name, prepared, pause))
        elif self._tasks.are_running:
            asked = [
                self._write_elsewhere(leader, partitions, prepared, commit, epoch)
                for leader, partitions in elsewhere.items()
            ]
            self._tasks.spawn(
                self._finish_later(shard, name, prepared, later, failures, waiting, asked, pause)
            )

    def _leader(self, where: TopicPartition) -> BrokerId | None:
        """The leader of a partition, -1 if it has none; None if the partition does not exist."""
        topic = self._metadata.image.topics.get(where.topic)
        if topic is None or where.partition >= len(topic.partitions):
            return None
        return topic.partitions[where.partition].leader

    async def _write_elsewhere(
        self,
        leader: BrokerId,
        partitions: list[TopicPartition],
        prepared: Transaction,
        commit: bool,
        epoch: int,
    ) -> set[TopicPartition]:
        """Have another broker write markers; returns the partitions that still lack theirs."""
        who = Identity(prepared.producer_id, prepared.epoch)
        try:
            codes = await remote_transactions.write_markers(
                self._peers, leader, partitions, who, commit, epoch, prepared.version
            )
        except KafkaError as error:
            logger.warning(
                "cannot write markers of a transaction on broker %d: %s; retrying",
                leader,
                error.message,
            )
            return set(partitions)
        return {one for one in partitions if codes.get(one) not in _NOTHING_TO_END}

    async def _finish_later(
        self,
        shard: Shard[Transactions],
        name: str,
        prepared: Transaction,
        later: Sequence[TopicPartition],
        failures: set[TopicPartition],
        waiting: list[asyncio.Future[None]],
        asked: list[Coroutine[None, None, set[TopicPartition]]],
        pause: float,
    ) -> None:
        for lacking in await asyncio.gather(*asked):
            failures |= lacking
        lost = False
        for result in await asyncio.gather(*waiting, return_exceptions=True):
            lost = lost or isinstance(result, BaseException)
        if later and not lost:
            await asyncio.sleep(0)
            if self.shards.holds(shard):
                self._finish(shard, name, prepared, later, failures, pause)
            return
        if lost or failures:
            await asyncio.sleep(pause)
        if self.shards.holds(shard):
            left = sorted(prepared.partitions if lost else failures)
            longer = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            self._finish(shard, name, prepared, left, pause=longer)

    def _complete(self, shard: Shard[Transactions], name: str, prepared: Transaction) -> bool:
        shard.state.wall.ms = self._clock.now_ms()
        return self._apply(shard, shard.state.complete(name, prepared))

    async def _complete_later(
        self, shard: Shard[Transactions], name: str, prepared: Transaction, pause: float
    ) -> None:
        """The append failed: too few replicas, or this broker has stepped down for a moment."""
        await asyncio.sleep(pause)
        if self.shards.holds(shard):
            longer = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            self._finish(shard, name, prepared, (), pause=longer)

    def write_marker(
        self, where: TopicPartition, producer_id: int, epoch: int, commit: bool, coordinator: int
    ) -> int:
        """End a producer's transaction in one partition; the marker's offset.

        Offsets in the transaction are then committed or discarded.
        """
        if where.topic == OFFSETS_TOPIC:
            return self._groups().append_marker(
                where.partition, producer_id, epoch, commit, coordinator
            )
        partition: Partition = self._replicas.partition(*where)
        return partition.append_marker(
            producer_id, epoch, commit, coordinator, self._clock.now_ms()
        )
