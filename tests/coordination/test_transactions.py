"""Transactional ids: valid operations, fencing, and the end of transactions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest

from headrace.coordination.load import Latest, replay_transactions
from headrace.coordination.outcome import Outcome, Token
from headrace.coordination.transaction_records import Transaction, TransactionState
from headrace.coordination.transactions import LAST_EPOCH, NO_PRODUCER, Identity, Transactions
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition

T = TypeVar("T")
NAME = "copier"
ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 3)
TIMEOUT_MS = 60_000
DAY_MS = 86_400_000
V1, V2 = 0, 2


class Shard:
    """Runs operations as the runtime does; markers are written at once unless they are held."""

    def __init__(self) -> None:
        self.log: list[tuple[bytes, bytes | None]] = []
        self.markers: list[tuple[TopicPartition, int, int, bool]] = []
        self.held = False
        self._next_id = 1000
        self.state = self._new()

    def _new(self) -> Transactions:
        return Transactions(900_000, 7 * DAY_MS, self._new_id)

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def apply(self, outcome: Outcome) -> None:
        for key, value in outcome.records:
            self.log.append((key.encode(), None if value is None else value.encode()))
            self.state.replay(key, value)
        for name in outcome.ended if not self.held else ():
            self._finish(name)
        for reply in outcome.replies:
            reply.send()

    def ask(self, operation: Callable[[Token[T]], Outcome]) -> T:
        """The reply to an operation; its KafkaError is raised."""
        token: Token[T] = Token()
        self.apply(operation(token))
        if isinstance(token.response, KafkaError):
            raise token.response
        return token.response

    def _finish(self, name: str) -> None:
        one = self.state.ids[name]
        commit = one.state is TransactionState.PREPARE_COMMIT
        self.markers += [
            (where, one.producer_id, one.epoch, commit) for where in sorted(one.partitions)
        ]
        self.apply(self.state.complete(name, one))

    def restart(self) -> None:
        """Forget everything but the log."""
        self.state = self._new()
        latest = Latest()
        for key, value in self.log:
            latest.put(key, value)
        for _ in replay_transactions(self.state, latest):
            pass
        self.held = False
        self.apply(self.state.loaded(0))

    # ------------------------------------------------------------------------ the clients' side

    def init(self, given: Identity = NO_PRODUCER, timeout_ms: int = TIMEOUT_MS) -> Identity:
        return self.ask(partial(self.state.init, NAME, timeout_ms, given))

    def add(self, who: Identity, *partitions: TopicPartition, version: int = V2) -> None:
        self.ask(partial(self.state.add, NAME, who, frozenset(partitions), version))

    def end(self, who: Identity, commit: bool = True, version: int = V2) -> Identity:
        return self.ask(partial(self.state.end, NAME, who, commit, version))

    @property
    def one(self) -> Transaction:
        return self.state.ids[NAME]


def refused(code: ErrorCode, work: Callable[..., object], *args: object, **named: object) -> None:
    with pytest.raises(KafkaError) as error:
        work(*args, **named)
    assert error.value.code is code


@pytest.fixture
def shard() -> Shard:
    return Shard()


# ------------------------------------------------------------------------------ InitProducerId


def test_a_new_producer_with_the_same_id_fences_the_old_one(shard: Shard) -> None:
    old = shard.init()
    new = shard.init()
    assert (new.producer_id, new.epoch) == (old.producer_id, old.epoch + 1)
    refused(ErrorCode.PRODUCER_FENCED, shard.add, old, ORDERS)
    shard.add(new, ORDERS)


def test_what_the_old_producer_left_open_is_aborted_first(shard: Shard) -> None:
    old = shard.init()
    shard.add(old, ORDERS)
    refused(ErrorCode.CONCURRENT_TRANSACTIONS, shard.init)
    assert shard.markers == [(ORDERS, old.producer_id, old.epoch + 1, False)]
    new = shard.init()
    assert new.epoch > old.epoch + 1
    refused(ErrorCode.PRODUCER_FENCED, shard.end, old)


def test_a_producer_that_names_itself_goes_on_with_the_next_epoch(shard: Shard) -> None:
    first = shard.init()
    second = shard.init(first)
    assert second == Identity(first.producer_id, 1)
    # The answer was lost: it asks with the old epoch once more.
    assert shard.init(first) == second
    third = shard.init(second)
    refused(ErrorCode.PRODUCER_FENCED, shard.init, first)
    refused(ErrorCode.PRODUCER_FENCED, shard.init, Identity(5, 0))
    assert third.epoch == 2


def test_used_up_epochs_bring_a_new_producer_id(shard: Shard) -> None:
    first = shard.init()
    shard.state.ids[NAME] = Transaction(first.producer_id, LAST_EPOCH, TIMEOUT_MS)
    last = Identity(first.producer_id, LAST_EPOCH)
    new = shard.init(last)
    assert new.epoch == 0
    assert new.producer_id != first.producer_id
    assert shard.init(last) == new
    refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, shard.add, first, ORDERS)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_that_is_not_allowed_is_refused(shard: Shard, timeout_ms: int) -> None:
    refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT, shard.init, NO_PRODUCER, timeout_ms)


# ---------------------------------------------------------------- partitions, commits, aborts


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [V1, V2])
def test_every_partition_gets_a_marker_and_the_transaction_is_complete(
    shard: Shard, commit: bool, version: int
) -> None:
    who = shard.init()
    shard.add(who, ORDERS, version=version)
    shard.add(who, PAYMENTS, version=version)
    assert shard.end(who, commit, version) == Identity(who.producer_id, who.epoch + (version == V2))
    epoch = who.epoch + (version == V2)
    assert shard.markers == [
        (ORDERS, who.producer_id, epoch, commit),
        (PAYMENTS, who.producer_id, epoch, commit),
    ]
    assert shard.one.state is (
        TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    )
    assert shard.one.partitions == frozenset()


def test_adding_what_is_there_already_writes_nothing(shard: Shard) -> None:
    who = shard.init()
    shard.add(who, ORDERS, PAYMENTS)
    written = len(shard.log)
    shard.add(who, ORDERS)
    assert len(shard.log) == written
    assert shard.state.missing(NAME, who, frozenset({ORDERS})) == frozenset()


def test_a_partition_that_was_not_added_is_missing(shard: Shard) -> None:
    who = shard.init()
    both = frozenset({ORDERS, PAYMENTS})
    assert shard.state.missing(NAME, who, both) == both
    shard.add(who, ORDERS, version=V1)
    assert shard.state.missing(NAME, who, both) == {PAYMENTS}
    shard.end(who, version=V1)
    assert shard.state.missing(NAME, who, both) == both


def test_while_a_transaction_ends_its_producer_waits(shard: Shard) -> None:
    who = shard.init()
    shard.add(who, ORDERS)
    shard.held = True
    later = shard.end(who)
    refused(ErrorCode.CONCURRENT_TRANSACTIONS, shard.add, later, ORDERS)
    refused(ErrorCode.CONCURRENT_TRANSACTIONS, shard.init)
    refused(ErrorCode.CONCURRENT_TRANSACTIONS, shard.end, who)
    refused(ErrorCode.INVALID_TXN_STATE, shard.end, who, False)
    refused(ErrorCode.CONCURRENT_TRANSACTIONS, shard.end, later, False)


def test_what_was_decided_is_finished_after_a_restart(shard: Shard) -> None:
    who = shard.init()
    shard.add(who, ORDERS, PAYMENTS)
    shard.held = True
    later = shard.end(who)
    assert shard.markers == []
    shard.restart()
    assert shard.markers == [
        (ORDERS, who.producer_id, later.epoch, True),
        (PAYMENTS, who.producer_id, later.epoch, True),
    ]
    assert shard.one.state is TransactionState.COMPLETE_COMMIT
    shard.add(later, ORDERS)


def test_an_open_transaction_is_open_after_a_restart(shard: Shard) -> None:
    who = shard.init()
    shard.add(who, ORDERS)
    shard.restart()
    shard.add(who, PAYMENTS)
    shard.end(who)
    assert [where for where, *_ in shard.markers] == [ORDERS, PAYMENTS]


def test_an_end_whose_answer_was_lost_may_be_repeated(shard: Shard) -> None:
    who = shard.init()
    shard.add(who, ORDERS)
    later = shard.end(who)
    assert shard.end(who) == later
    shard.restart()
    assert shard.end(who) == later
    refused(ErrorCode.INVALID_TXN_STATE, shard.end, who, False)
    assert len(shard.markers) == 1


def test_an_end_that_arrives_in_the_next_transaction_is_refused(shard: Shard) -> None:
    who = shard.init()
    shard.add(who, ORDERS)
    later = shard.end(who)
    shard.add(later, ORDERS)
    refused(ErrorCode.PRODUCER_FENCED, shard.end, who)
    assert shard.one.state is TransactionState.ONGOING
    last = shard.end(later)
    shard.add(last, ORDERS)
    refused(ErrorCode.PRODUCER_FENCED, shard.end, who)


def test_an_older_client_may_repeat_its_end_and_not_change_its_mind(shard: Shard) -> None:
    who = shard.init()
    refused(ErrorCode.INVALID_TXN_STATE, shard.end, who, True, V1)
    shard.add(who, ORDERS, version=V1)
    shard.end(who, True, V1)
    assert shard.end(who, True, V1) == who
    refused(ErrorCode.INVALID_TXN_STATE, shard.end, who, False, V1)


def test_an_abort_of_nothing_bumps_the_epoch_and_a_commit_of_nothing_is_refused(
    shard: Shard,
) -> None:
    who = shard.init()
    refused(ErrorCode.INVALID_TXN_STATE, shard.end, who, True)
    assert shard.end(who, False) == Identity(who.producer_id, who.epoch + 1)
    assert shard.one.state is TransactionState.COMPLETE_ABORT
    assert shard.markers == []


def test_an_end_with_the_last_epoch_moves_to_a_new_producer_id(shard: Shard) -> None:
    first = shard.init()
    last = Identity(first.producer_id, LAST_EPOCH)
    shard.state.ids[NAME] = Transaction(*_fields(last), TIMEOUT_MS)
    shard.add(last, ORDERS)
    new = shard.end(last)
    assert new.epoch == 0
    assert new.producer_id != last.producer_id
    assert shard.markers == [(ORDERS, last.producer_id, LAST_EPOCH + 1, True)]
    assert shard.end(last) == new
    shard.restart()
    assert shard.end(last) == new
    shard.add(new, ORDERS)
    refused(ErrorCode.PRODUCER_FENCED, shard.end, last)


def _fields(who: Identity) -> tuple[int, int]:
    return who.producer_id, who.epoch


def test_another_producer_gets_an_error_for_the_id(shard: Shard) -> None:
    stranger = Identity(5, 0)
    for work in (shard.add, shard.end):
        refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, work, stranger)
    shard.init()
    for work in (shard.add, shard.end):
        refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, work, stranger)


# ----------------------------------------------------------------------------- time and lists


@pytest.mark.parametrize("version", [V1, V2])
def test_a_transaction_that_is_open_for_too_long_is_aborted(shard: Shard, version: int) -> None:
    who = shard.init()
    shard.add(who, ORDERS, version=version)
    shard.state.wall.ms = TIMEOUT_MS - 1
    shard.apply(shard.state.abort_timed_out())
    assert shard.one.state is TransactionState.ONGOING
    shard.state.wall.ms = TIMEOUT_MS
    shard.apply(shard.state.abort_timed_out())
    assert shard.markers == [(ORDERS, who.producer_id, who.epoch + 1, False)]
    refused(ErrorCode.PRODUCER_FENCED, shard.add, who, ORDERS, version=version)
    wanted = ErrorCode.PRODUCER_FENCED if version == V1 else ErrorCode.INVALID_TXN_STATE
    refused(wanted, shard.end, who, True, version)


def test_unused_ids_expire_unless_a_transaction_is_open(shard: Shard) -> None:
    who = shard.init()
    shard.add(who, ORDERS)
    shard.state.wall.ms = 8 * DAY_MS
    shard.apply(shard.state.forget_expired())
    assert NAME in shard.state.ids
    shard.end(who)
    shard.state.wall.ms = 16 * DAY_MS
    shard.apply(shard.state.forget_expired())
    assert NAME not in shard.state.ids
    shard.restart()
    assert NAME not in shard.state.ids


def test_lists_can_be_filtered(shard: Shard) -> None:
    who = shard.init()

    def names(**filters: object) -> list[str]:
        wanted: dict[str, object] = {"states": (), "producer_ids": (), "longer_than_ms": -1}
        return [name for name, _ in shard.state.listed(**{**wanted, **filters})]  # type: ignore[arg-type]

    assert names() == names(states=("Empty",)) == names(producer_ids=(who.producer_id,)) == [NAME]
    assert names(states=("Ongoing",)) == names(producer_ids=(5,)) == names(longer_than_ms=0) == []
    shard.add(who, ORDERS)
    shard.state.wall.ms = 1000
    assert names(states=("Ongoing",), longer_than_ms=999) == [NAME]
    assert names(longer_than_ms=1000) == []
    assert shard.state.described(NAME).partitions == {ORDERS}
    refused(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, shard.state.described, "nobody")
