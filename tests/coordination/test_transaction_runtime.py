"""The coordinator of transactions where things take time: disks that are waited for, retries."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest

from headrace.cluster.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from headrace.coordination import transaction_runtime
from headrace.coordination.group_runtime import GroupCoordinator
from headrace.coordination.groups.group import Committer
from headrace.coordination.groups.registry import Groups
from headrace.coordination.offsets import OffsetToCommit
from headrace.coordination.outcome import Outcome, Reply, Token
from headrace.coordination.transaction_records import TransactionState
from headrace.coordination.transactions import NO_PRODUCER, Identity
from headrace.errors import ErrorCode, KafkaError
from headrace.replication.partition import Partition
from headrace.types import TopicPartition
from headrace.wire.batch import TRANSACTIONAL
from headrace.wire.records import Record, encode_batch
from tests.apis.one_broker import NOW, OneBroker
from tests.coordination.replies import itself

T = TypeVar("T")
NAME = "copier"
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    one = OneBroker(
        tmp_path,
        {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"},
    )
    one.create("orders", 2)
    yield one
    one.close()


async def value(result: T | Awaitable[T]) -> T:
    return await result if isinstance(result, Awaitable) else result


async def begin(broker: OneBroker, *partitions: TopicPartition) -> Identity:
    """A producer with a record in each of these partitions."""
    transactions = broker.transactions
    who = await value(
        transactions.run(
            NAME,
            lambda state, token, _: state.init(NAME, 60_000, NO_PRODUCER, token),
            itself(Identity),
        )
    )
    await value(transactions.enlist(NAME, who, frozenset(partitions), add=True))
    for where in partitions:
        if where.topic == OFFSETS_TOPIC:
            continue
        partition = broker.replicas.partition(*where)
        batch = encode_batch(
            [Record(0, NOW, b"k", b"v")], 0, 0, who.producer_id, who.epoch, 0, TRANSACTIONAL
        )
        guard = partition.verifications.begin(who.producer_id, who.epoch)
        partition.append(batch, memoryview(batch), 0, len(batch), -1, NOW, guard)
    return who


async def end(broker: OneBroker, who: Identity, commit: bool = True) -> Identity:
    return await value(
        broker.transactions.run(
            NAME,
            lambda state, token, _: state.end(NAME, who, commit, 2, token),
            itself(Identity),
        )
    )


def state(broker: OneBroker) -> TransactionState:
    (shard,) = broker.transactions.shards.states()
    return shard.ids[NAME].state


async def until(true: Callable[[], bool]) -> None:
    for _ in range(1000):
        if true():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come true")


def test_a_transaction_is_complete_when_its_markers_are_on_the_disk(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        broker.transactions.start()
        who = await begin(broker, ORDERS)
        partition = broker.replicas.partition(*ORDERS)
        flushed: list[object] = []
        partition.use_settings(replace(partition.settings, flush_messages=1))
        monkeypatch.setattr(broker.replicas.flusher, "request", flushed.append)
        later = await end(broker, who)
        await asyncio.sleep(0)
        assert flushed, "nobody asked for the disk"
        assert state(broker) is TransactionState.PREPARE_COMMIT
        assert partition.replica.last_stable_offset == 0
        with pytest.raises(KafkaError) as refused:
            await value(broker.transactions.enlist(NAME, later, frozenset({ORDERS}), add=True))
        assert refused.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
        partition.replica.advance(partition.replica.log.end_offset)
        await until(lambda: state(broker) is TransactionState.COMPLETE_COMMIT)
        assert partition.replica.last_stable_offset == 2
        broker.transactions.stop()

    asyncio.run(run())


def test_a_coordinator_that_stepped_down_in_between_completes_it_when_it_leads_again(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its epoch is the same: nobody has led meanwhile, and nobody asks anything either."""

    async def run() -> None:
        broker.transactions.start()
        who = await begin(broker, ORDERS)
        partition = broker.replicas.partition(*ORDERS)
        partition.use_settings(replace(partition.settings, flush_messages=1))
        monkeypatch.setattr(broker.replicas.flusher, "request", lambda _: None)
        await end(broker, who)
        broker.replicas.partition(TRANSACTIONS_TOPIC, 0).step_down()
        partition.replica.advance(
            partition.replica.log.end_offset
        )  # the markers of others are written
        await asyncio.sleep(0.01)
        broker.replicas.apply_again(broker.metadata.image)
        log = broker.replicas.partition(TRANSACTIONS_TOPIC, 0).replica.log
        written = log.end_offset
        await until(lambda: log.end_offset == written + 1)
        assert state(broker) is TransactionState.COMPLETE_COMMIT
        broker.transactions.stop()

    asyncio.run(run())


def test_a_marker_that_cannot_be_written_is_tried_again(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = GroupCoordinator.append_marker
    failures = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS]

    def sometimes(self: GroupCoordinator, *args: Any) -> int:
        if failures:
            raise KafkaError(failures.pop())
        return written(self, *args)

    monkeypatch.setattr(GroupCoordinator, "append_marker", sometimes)
    offsets = TopicPartition(OFFSETS_TOPIC, 0)

    async def run() -> None:
        broker.transactions.start()
        broker.groups.topic.partition_of("g")
        who = await begin(broker, ORDERS, offsets)
        await commit_offset(broker, who)
        await end(broker, who)
        orders = broker.replicas.partition(*ORDERS)
        assert orders.replica.last_stable_offset == 2
        assert state(broker) is TransactionState.PREPARE_COMMIT
        await until(lambda: state(broker) is TransactionState.COMPLETE_COMMIT)
        assert orders.replica.log.end_offset == 2, "a partition that had its marker got another one"
        broker.transactions.stop()

    asyncio.run(run())
    assert failures == []


def test_a_completion_that_the_log_refuses_is_written_later(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, attempts = Partition.append_own, 0

    def all_but_the_second(self: Partition, *args: Any) -> int:
        nonlocal attempts
        if self.name.topic == TRANSACTIONS_TOPIC:
            attempts += 1
            if attempts == 2:
                raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        return written(self, *args)

    async def run() -> None:
        broker.transactions.start()
        who = await begin(broker, ORDERS)
        monkeypatch.setattr(Partition, "append_own", all_but_the_second)
        await end(broker, who)
        assert state(broker) is TransactionState.PREPARE_COMMIT
        await until(lambda: state(broker) is TransactionState.COMPLETE_COMMIT)
        broker.transactions.stop()

    asyncio.run(run())


def test_a_decision_whose_commit_failed_is_carried_out_without_another_request(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replicas that were missing come back, and the log still has the decision."""

    async def run() -> None:
        broker.transactions.start()
        who = await begin(broker, ORDERS)
        log_of_ids = broker.replicas.partition(TRANSACTIONS_TOPIC, 0)
        log_of_ids.use_settings(replace(log_of_ids.settings, flush_messages=1))
        monkeypatch.setattr(broker.replicas.flusher, "request", lambda _: None)
        asked = asyncio.ensure_future(end(broker, who))
        await asyncio.sleep(0)
        log_of_ids.replica.waiters.fail(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        with pytest.raises(KafkaError) as refused:
            await asked
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        log_of_ids.replica.advance(log_of_ids.replica.log.end_offset)
        orders = broker.replicas.partition(*ORDERS)
        await until(lambda: orders.replica.last_stable_offset == 2)
        broker.transactions.stop()

    asyncio.run(run())


async def commit_offset(broker: OneBroker, who: Identity) -> None:
    wanted = [OffsetToCommit("orders", 0, 7, 0, "")]
    producer = (who.producer_id, who.epoch)

    def operation(groups: Groups, token: Token[None], now_ms: int) -> Outcome:
        committer = Committer("", None, -1, 9)
        outcome = groups.commit_in_transaction("g", committer, wanted, producer, now_ms)
        outcome.replies.append(Reply(token, None))
        return outcome

    await value(broker.groups.run("g", operation, itself(type(None))))


def test_sweeps_abort_expired_transactions_and_remove_unused_ids(broker: OneBroker) -> None:
    async def run() -> None:
        await begin(broker, ORDERS)
        clock = broker.services.clock
        clock.advance(60_000)  # type: ignore[attr-defined]
        broker.transactions.abort_timed_out()
        assert state(broker) is TransactionState.COMPLETE_ABORT
        clock.advance(7 * 86_400_000)  # type: ignore[attr-defined]
        broker.transactions.forget_expired()
        (shard,) = broker.transactions.shards.states()
        assert shard.ids == {}

    asyncio.run(run())


def test_the_markers_of_a_large_transaction_are_written_beside_other_requests(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction with thousands of partitions would stop the broker for seconds."""
    monkeypatch.setattr(transaction_runtime, "MARKERS_AT_ONCE", 3)
    broker.create("many", 10)
    partitions = [TopicPartition("many", index) for index in range(10)]

    def ended() -> int:
        found = [broker.replicas.partition(*one) for one in partitions]
        return sum(one.replica.log.end_offset == 2 for one in found)

    async def run() -> None:
        broker.transactions.start()
        who = await begin(broker, *partitions)
        await end(broker, who)
        seen = [ended()]
        while seen[-1] < 10:
            await asyncio.sleep(0)
            seen.append(ended())
        assert max(after - before for before, after in pairwise([0, *seen])) == 3
        await until(lambda: state(broker) is TransactionState.COMPLETE_COMMIT)
        broker.transactions.stop()

    asyncio.run(run())
