"""The transactional ids of one shard, as a pure state machine.

A shard is what one partition of `__transaction_state` holds. An operation returns an `Outcome`;
state changes in `replay` only. A transaction ends in two steps: a record that decides to commit or
abort (prepare), and, when every partition of it has its marker, another record (complete). The
decision is final; after a restart `loaded` returns the transactions that are to be completed.

Clients of transaction version 2 (KIP-890) get a new epoch at every end, so that delayed requests of
the previous transaction are refused. The runtime writes the markers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from headrace.coordination.outcome import AnyReply, Key, Outcome, Token, Value, answer
from headrace.coordination.transaction_records import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    Transaction,
    TransactionKey,
    TransactionState,
)
from headrace.coordination.wall_time import WallTime
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition

LAST_EPOCH = 2**15 - 2
"""The highest epoch of a client; the next one is reserved for the last marker."""
BUMPS_AT_END = 2
"""The transaction version from which on every end of a transaction bumps the epoch."""

_PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
AT_REST = (
    TransactionState.EMPTY,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)


@dataclass(frozen=True, slots=True)
class Identity:
    """Producer id and epoch; the reply of operations that change them."""

    producer_id: int
    epoch: int


NO_PRODUCER = Identity(NO_PRODUCER_ID, NO_EPOCH)


class Transactions:
    """The transactional ids of one shard."""

    def __init__(
        self, max_timeout_ms: int, expiration_ms: int, new_producer_id: Callable[[], int]
    ) -> None:
        self.ids: dict[str, Transaction] = {}
        self.wall = WallTime()
        """Set by the runtime before each operation."""
        self._max_timeout_ms = max_timeout_ms
        self._expiration_ms = expiration_ms
        self._new_producer_id = new_producer_id

    # --------------------------------------------------------------------------- life of a shard

    def replay(self, key: Key, value: Value | None) -> None:
        """Apply a record, from the log or from an operation."""
        assert isinstance(key, TransactionKey)
        if value is None:
            self.ids.pop(key.transactional_id, None)
        else:
            assert isinstance(value, Transaction)
            self.ids[key.transactional_id] = value

    def replay_pending(self, _producer_id: int, key: Key, _value: Value | None) -> None:
        raise AssertionError(f"{key}: records of transactional ids are in no transaction")

    def loaded(self, _now_ms: int) -> Outcome:
        """The log has been read: transactions that were decided are to be completed."""
        return Outcome(ended=[name for name, one in self.ids.items() if one.state in _PREPARED])

    def expire(self, _key: tuple[str, ...], _now_ms: int) -> Outcome:
        """There are no timers: the runtime checks periodically, as Kafka does."""
        return Outcome()

    def withdraw(self, _error: ErrorCode) -> list[AnyReply]:
        """No request waits here."""
        return []

    def abort_timed_out(self) -> Outcome:
        """Abort transactions that exceed their timeouts, and fence their producers."""
        outcome = Outcome()
        for name, one in self.ids.items():
            if (
                one.state is TransactionState.ONGOING
                and self.wall.ms - one.start_ms >= one.timeout_ms
            ):
                outcome.merge(self._fence_and_abort(name, one))
        return outcome

    def forget_expired(self) -> Outcome:
        """Delete transactional ids that have expired."""
        return Outcome(
            records=[
                (TransactionKey(name), None)
                for name, one in self.ids.items()
                if one.state in AT_REST and self.wall.ms - one.update_ms >= self._expiration_ms
            ]
        )

    # ---------------------------------------------------------------------------- InitProducerId

    def init(self, name: str, timeout_ms: int, given: Identity, token: Token[Identity]) -> Outcome:
        """InitProducerId; `given` continues a producer (KIP-360). Replies with its Identity."""
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if not 0 < timeout_ms <= self._max_timeout_ms:
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"a transaction timeout of {timeout_ms} ms is not between 1 and "
                f"transaction.max.timeout.ms={self._max_timeout_ms}",
            )
        one = self.ids.get(name)
        if one is None:
            new = Transaction(self._new_producer_id(), 0, timeout_ms, update_ms=self.wall.ms)
            return self._written(name, new, token)
        if given != NO_PRODUCER and not _may_go_on(one, given):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if one.state in _PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if one.state is TransactionState.ONGOING:
            # The epoch of the abort fences the earlier producer. The client retries.
            return self._fence_and_abort(name, one).merge(
                answer(token, KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS))
            )
        return self._written(name, self._next_session(one, timeout_ms, given), token)

    def _next_session(self, one: Transaction, timeout_ms: int, given: Identity) -> Transaction:
        if given == NO_PRODUCER:
            last_epoch = NO_EPOCH
        elif given.epoch == one.epoch and given.producer_id == one.producer_id:
            last_epoch = one.epoch
        elif given.epoch == one.last_epoch:
            # The response to the first attempt was lost: repeat it.
            return replace(
                one, timeout_ms=timeout_ms, state=TransactionState.EMPTY, partitions=frozenset(),
                start_ms=NO_TIME, update_ms=self.wall.ms,
            )  # fmt: skip
        else:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        producer_id, epoch, previous_id = one.producer_id, one.epoch + 1, one.previous_id
        if one.epoch >= LAST_EPOCH:
            producer_id, epoch, previous_id = self._new_producer_id(), 0, one.producer_id
        return Transaction(
            producer_id, epoch, timeout_ms, update_ms=self.wall.ms, previous_id=previous_id,
            version=one.version, last_epoch=last_epoch,
        )  # fmt: skip

    # ----------------------------------------------------------------- partitions of a transaction

    def add(
        self,
        name: str,
        who: Identity,
        partitions: frozenset[TopicPartition],
        version: int,
        token: Token[frozenset[TopicPartition]],
    ) -> Outcome:
        """Add partitions to the transaction; groups are partitions of the offsets topic.

        Replies with those that were refused, which are none.
        """
        one = self._of(name, who)
        if one.state is TransactionState.ONGOING and partitions <= one.partitions:
            return answer(token, frozenset())
        ongoing = one.state is TransactionState.ONGOING
        added = replace(
            one,
            state=TransactionState.ONGOING,
            partitions=one.partitions | partitions if ongoing else partitions,
            start_ms=one.start_ms if ongoing else self.wall.ms,
            update_ms=self.wall.ms,
            version=version,
        )
        outcome = answer(token, frozenset())
        outcome.records.append((TransactionKey(name), added))
        return outcome

    def missing(
        self, name: str, who: Identity, partitions: frozenset[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """The partitions that are not in the producer's open transaction."""
        one = self._of(name, who)
        return partitions - one.partitions if one.state is TransactionState.ONGOING else partitions

    def _of(self, name: str, who: Identity) -> Transaction:
        """The state of the id; KafkaError unless `who` may write in a transaction now."""
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        one = self.ids.get(name)
        if one is None or one.producer_id != who.producer_id:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"the transactional id {name} does not belong to producer {who.producer_id}",
            )
        if one.epoch != who.epoch:
            raise KafkaError(
                ErrorCode.PRODUCER_FENCED,
                f"producer {who.producer_id} of {name} has epoch {one.epoch}, not {who.epoch}",
            )
        if one.state in _PREPARED:
            raise KafkaError(
                ErrorCode.CONCURRENT_TRANSACTIONS,
                f"the previous transaction of {name} is not completed yet",
            )
        return one

    # ------------------------------------------------------------------------ end of a transaction

    def end(
        self, name: str, who: Identity, commit: bool, version: int, token: Token[Identity]
    ) -> Outcome:
        """EndTxn; replies with the producer's new Identity."""
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        one = self.ids.get(name)
        if one is None:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"unknown transactional id {name}"
            )
        again = version >= BUMPS_AT_END and _ended_before(one, who)
        if not again:
            if one.producer_id != who.producer_id:
                raise KafkaError(
                    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                    f"the transactional id {name} does not belong to producer {who.producer_id}",
                )
            if one.epoch != who.epoch:
                raise KafkaError(
                    ErrorCode.PRODUCER_FENCED,
                    f"producer {who.producer_id} of {name} has epoch {one.epoch}, not {who.epoch}",
                )
        if again and one.state in (TransactionState.ONGOING, TransactionState.EMPTY):
            # A delayed request of the previous transaction.
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if one.state is TransactionState.ONGOING:
            return self._prepare(name, one, commit, version, token)
        if self._already_so(name, one, commit, version, again):
            return answer(token, Identity(one.producer_id, one.epoch))
        # An abort without partitions: a Produce of the client may be in flight.
        empty = replace(one, start_ms=self.wall.ms, partitions=frozenset())
        return self._prepare(name, empty, False, version, token)

    def _already_so(
        self, name: str, one: Transaction, commit: bool, version: int, again: bool
    ) -> bool:
        """Whether this EndTxn is a retry, which succeeds; False for an abort without partitions."""
        wanted_prepare = (
            TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        )
        wanted = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        # The transaction that is ending may be this one, or the previous one.
        if one.state is wanted_prepare or (
            one.state in _PREPARED and version >= BUMPS_AT_END and not again
        ):
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if one.state is wanted and (again or version < BUMPS_AT_END):
            return True
        if version >= BUMPS_AT_END and not commit and not again and one.state in AT_REST:
            return False
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"{name} has no transaction to {'commit' if commit else 'abort'}: "
            f"its state is {one.state.title}",
        )

    def _prepare(
        self, name: str, one: Transaction, commit: bool, version: int, token: Token[Identity]
    ) -> Outcome:
        prepared = replace(
            one,
            state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            update_ms=self.wall.ms,
            version=version,
        )
        identity = Identity(one.producer_id, one.epoch)
        if version >= BUMPS_AT_END:
            prepared = replace(prepared, epoch=one.epoch + 1, last_epoch=one.epoch)
            identity = Identity(one.producer_id, one.epoch + 1)
            if one.epoch >= LAST_EPOCH:
                prepared = replace(prepared, next_id=self._new_producer_id())
                identity = Identity(prepared.next_id, 0)
        outcome = answer(token, identity)
        outcome.records.append((TransactionKey(name), prepared))
        outcome.ended.append(name)
        return outcome

    def _fence_and_abort(self, name: str, one: Transaction) -> Outcome:
        """Abort with a new epoch, which fences the producer."""
        aborted = replace(
            one,
            state=TransactionState.PREPARE_ABORT,
            epoch=one.epoch + 1,
            last_epoch=NO_EPOCH,
            update_ms=self.wall.ms,
        )
        if one.version >= BUMPS_AT_END and one.epoch >= LAST_EPOCH:
            aborted = replace(aborted, next_id=self._new_producer_id())
        return Outcome(records=[(TransactionKey(name), aborted)], ended=[name])

    def complete(self, name: str, prepared: Transaction) -> Outcome:
        """Complete a transaction, whose markers are written; does nothing if it has changed."""
        if self.ids.get(name) is not prepared:
            return Outcome()
        commit = prepared.state is TransactionState.PREPARE_COMMIT
        done = replace(
            prepared,
            state=TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT,
            partitions=frozenset(),
            update_ms=self.wall.ms,
        )
        if prepared.next_id != NO_PRODUCER_ID:
            done = replace(
                done, producer_id=prepared.next_id, epoch=0, previous_id=prepared.producer_id,
                next_id=NO_PRODUCER_ID,
            )  # fmt: skip
        return Outcome(records=[(TransactionKey(name), done)])

    # ---------------------------------------------------------------------------- administration

    def described(self, name: str) -> Transaction:
        """DescribeTransactions, for one id."""
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        one = self.ids.get(name)
        if one is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return one

    def listed(
        self, states: frozenset[str], producer_ids: frozenset[int], longer_than_ms: int
    ) -> list[tuple[str, Transaction]]:
        """ListTransactions: filtered by states and producer ids, where given."""
        return [
            (name, one)
            for name, one in self.ids.items()
            if (not states or one.state.title in states)
            and (not producer_ids or one.producer_id in producer_ids)
            and (longer_than_ms < 0 or self._runs_longer(one, longer_than_ms))
        ]

    def _runs_longer(self, one: Transaction, ms: int) -> bool:
        return one.state not in AT_REST and self.wall.ms - one.start_ms > ms

    def _written(self, name: str, new: Transaction, token: Token[Identity]) -> Outcome:
        outcome = answer(token, Identity(new.producer_id, new.epoch))
        outcome.records.append((TransactionKey(name), new))
        return outcome


def _may_go_on(one: Transaction, given: Identity) -> bool:
    """Whether this is the producer of the id, or the previous one, whose epochs are exhausted."""
    return given.producer_id == one.producer_id or (
        given.producer_id == one.previous_id and given.epoch >= LAST_EPOCH
    )


def _ended_before(one: Transaction, who: Identity) -> bool:
    """Whether `who` has the epoch before the last end of a transaction bumped it."""
    if who.producer_id == one.producer_id:
        return who.epoch + 1 == one.epoch
    return who.producer_id == one.previous_id and who.epoch == LAST_EPOCH and one.epoch == 0
