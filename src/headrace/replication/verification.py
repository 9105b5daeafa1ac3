"""The verification of transactional batches with the transaction coordinator (KIP-890)."""

from weakref import WeakValueDictionary

from headrace.errors import ErrorCode, KafkaError
from headrace.replication.replica import LocalReplica
from headrace.types import TopicPartition
from headrace.wire.batch import HeaderFields


class VerificationGuard:
    """A producer's permission to open a transaction in one partition, until the next marker comes.

    It is created before the coordinator is asked, so that a marker that arrives before the
    coordinator's answer invalidates it: otherwise a late batch would open a transaction that never
    ends (a hanging transaction).
    """

    __slots__ = ("__weakref__", "needed")

    def __init__(self, needed: bool) -> None:
        self.needed = needed
        """Whether the coordinator must be asked; false if the transaction is open already."""


class Verifications:
    """The guards of one partition."""

    __slots__ = ("_guards", "_replica")

    def __init__(self, replica: LocalReplica) -> None:
        self._replica = replica
        # By producer id; an entry lives as long as a request that refers to it.
        self._guards: WeakValueDictionary[int, VerificationGuard] | None = None

    def begin(self, producer_id: int, producer_epoch: int) -> VerificationGuard:
        """Begin the verification of a transactional batch, before the coordinator is asked."""
        if self._replica.log.producers.is_open(producer_id, producer_epoch):
            return VerificationGuard(needed=False)
        if self._guards is None:
            self._guards = WeakValueDictionary()
        guard = self._guards.get(producer_id)
        if guard is None:
            guard = self._guards[producer_id] = VerificationGuard(needed=True)
        return guard

    def end(self, producer_id: int) -> None:
        """A marker of the producer was appended: invalidate its guard."""
        if self._guards is not None:
            self._guards.pop(producer_id, None)

    def clear(self) -> None:
        """Invalidate all guards: this broker leads the partition no more."""
        self._guards = None

    def is_verified(self, producer_id: int, guard: VerificationGuard) -> bool:
        """Whether no marker of the producer was appended since `begin`."""
        if not guard.needed:
            return producer_id in self._replica.log.producers.open_transactions
        return self._holds(producer_id, guard)

    def check(
        self, header: HeaderFields, guard: VerificationGuard | None, partition: TopicPartition
    ) -> None:
        """Refuse a transactional batch without an open transaction or a valid guard."""
        _, _, _, _, _, _, _, _, _, producer_id, producer_epoch, sequence, _ = header
        if guard is None:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "transactional records need a request with a transactional id",
            )
        if producer_id < 0 or sequence < 0:
            raise KafkaError(
                ErrorCode.INVALID_RECORD, "transactional records need a producer id and a sequence"
            )
        producers = self._replica.log.producers
        if (
            not producers.is_open(producer_id, producer_epoch)
            and not self._holds(producer_id, guard)
            and producers.duplicate_of(header) < 0
        ):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} has no transaction open in {partition}",
            )

    def _holds(self, producer_id: int, guard: VerificationGuard) -> bool:
        return self._guards is not None and self._guards.get(producer_id) is guard
