"""Transactional Produce requests: the coordinator's permission before the append.

From Produce v12 on a write adds its partition to the transaction; before v12 the partition must be
in it already. Only the first batch of a transaction in a partition asks the coordinator: while the
transaction is open there, the producer has the permission.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial

from headrace.apis.context import Services
from headrace.apis.transactions.transaction_errors import when_writing
from headrace.coordination.transactions import Identity
from headrace.errors import ErrorCode, KafkaError
from headrace.replication.partition import Partition
from headrace.replication.verification import VerificationGuard
from headrace.types import TopicPartition
from headrace.wire import batch
from headrace.wire.fast import ProduceRequest

ABORTABLE_FROM = 11
ADDS_FROM = 12


class WritePermission:
    """Which partitions a request may write to in its transaction, and the errors of the others."""

    __slots__ = ("_refused", "_verifications", "end_turn")

    def __init__(self) -> None:
        self.end_turn: Callable[[], None] = _nothing
        """Called when the batches of a request that waited for its turn are appended."""
        self._verifications: dict[Partition, VerificationGuard] = {}
        self._refused: dict[Partition, KafkaError] = {}

    def of(self, partition: Partition) -> VerificationGuard | None:
        """The guard for `Partition.append`; KafkaError if the coordinator refused."""
        if partition in self._refused:
            raise self._refused[partition]
        return self._verifications.get(partition)

    def begin(self, partition: Partition, who: Identity) -> bool:
        """Whether the coordinator has to be asked about this partition."""
        verification = partition.verifications.begin(who.producer_id, who.epoch)
        self._verifications[partition] = verification
        return verification.needed

    def refuse(self, partition: Partition, error: KafkaError) -> None:
        """Record the coordinator's refusal."""
        self._refused[partition] = error


class WritePermissions:
    """Asks the coordinator, for one Produce of a transactional id after the other."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._by_key = services.replicas.by_key
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}
        """By transactional id: a lock that keeps its batches in order, and the waiters."""

    def ask(
        self, request: ProduceRequest, buf: bytearray, version: int
    ) -> WritePermission | Coroutine[None, None, WritePermission]:
        """The permission for the transactional batches, or a coroutine that returns it."""
        name = request.transactional_id
        assert name is not None
        permission = WritePermission()
        asked: list[tuple[Partition, Identity]] = []
        for partition, who in self._batches(request, buf):
            if permission.begin(partition, who):
                asked.append((partition, who))
        answer = None
        if name not in self._turns:
            if not asked:
                return permission
            answer = self._enlist(name, asked, permission, version)
            if answer is None:
                return permission
        turn, count = self._turns.get(name, (asyncio.Lock(), 0))
        self._turns[name] = (turn, count + 1)
        return self._in_turn(name, turn, asked, permission, version, answer)

    def _batches(self, request: ProduceRequest, buf: bytearray) -> list[tuple[Partition, Identity]]:
        found: list[tuple[Partition, Identity]] = []
        for key, batches in request.topics:
            partitions = self._by_key.get(key)
            for index, start, end in batches:
                if partitions is None or not 0 <= index < len(partitions):
                    continue
                if end - start < batch.HEADER_BYTES or not partitions[index].leads:
                    continue  # `Partition.append` reports the error
                header = batch.read_header(buf, start)
                if header.attributes & batch.TRANSACTIONAL:
                    found.append(
                        (partitions[index], Identity(header.producer_id, header.producer_epoch))
                    )
        return found

    def _enlist(
        self,
        name: str,
        asked: list[tuple[Partition, Identity]],
        permission: WritePermission,
        version: int,
    ) -> Coroutine[None, None, frozenset[TopicPartition]] | None:
        """Send the question; a coroutine for the answer, or None if `permission` is complete."""
        settings = self._services.replicas.settings_now
        if version < ADDS_FROM and not settings.boolean(
            "transaction.partition.verification.enable"
        ):
            return None
        try:
            (who,) = {who for _, who in asked}
        except ValueError:
            several = KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                "one request has transactional batches of several producers",
            )
            for partition, _ in asked:
                permission.refuse(partition, several)
            return None
        names = frozenset(partition.name for partition, _ in asked)
        try:
            answer = self._services.transactions.enlist(name, who, names, version >= ADDS_FROM)
        except KafkaError as error:
            _refuse_all(asked, permission, error)
            return None
        if not isinstance(answer, frozenset):
            return answer
        _refuse_missing(asked, permission, answer, version)
        return None

    async def _in_turn(
        self,
        name: str,
        turn: asyncio.Lock,
        asked: list[tuple[Partition, Identity]],
        permission: WritePermission,
        version: int,
        answer: Coroutine[None, None, frozenset[TopicPartition]] | None,
    ) -> WritePermission:
        """Wait for the earlier requests of this transactional id, and for the coordinator.

        The turn lasts until the caller has appended its batches, which may take long.
        """
        end_turn = self._leave_queue
        try:
            await turn.acquire()
            end_turn = self._end_turn
            if answer is None and asked:
                answer = self._enlist(name, asked, permission, version)
            if answer is not None:
                try:
                    _refuse_missing(asked, permission, await answer, version)
                except KafkaError as error:
                    _refuse_all(asked, permission, error)
        except BaseException:
            end_turn(name)
            raise
        permission.end_turn = partial(self._end_turn, name)
        return permission

    def _end_turn(self, name: str) -> None:
        self._turns[name][0].release()
        self._leave_queue(name)

    def _leave_queue(self, name: str) -> None:
        turn, count = self._turns[name]
        if count == 1:
            del self._turns[name]
        else:
            self._turns[name] = (turn, count - 1)


def _nothing() -> None:
    """Ends the turn of a request that did not wait for one."""


def _refuse_all(
    asked: list[tuple[Partition, Identity]], permission: WritePermission, error: KafkaError
) -> None:
    refusal = KafkaError(when_writing(error.code), error.message)
    for partition, _ in asked:
        permission.refuse(partition, refusal)


def _refuse_missing(
    asked: list[tuple[Partition, Identity]],
    permission: WritePermission,
    missing: frozenset[TopicPartition],
    version: int,
) -> None:
    code = (
        ErrorCode.TRANSACTION_ABORTABLE
        if version >= ABORTABLE_FROM
        else ErrorCode.INVALID_TXN_STATE
    )
    for partition, _ in asked:
        if partition.name in missing:
            permission.refuse(
                partition, KafkaError(code, f"{partition.name} is not in the transaction")
            )
