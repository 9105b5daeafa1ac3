"""Transactions as clients of old and new versions see them: real logs, requests in bytes."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import io
import time
import typing
from collections.abc import Iterator
from dataclasses import replace
from inspect import iscoroutine
from pathlib import Path

import pytest
from kio.schema.txn_offset_commit.v5.response import TxnOffsetCommitResponse
from kio.serial import entity_reader, entity_writer

from headrace.apis.records.produce import Produce
from headrace.apis.slices import Slices
from headrace.apis.transactions.add_partitions_to_txn import add_partitions_to_txn
from headrace.apis.transactions.txn_offset_commit import txn_offset_commit
from headrace.clock import ManualClock
from headrace.cluster.image import OFFSETS_TOPIC
from headrace.coordination.group_runtime import GroupCoordinator
from headrace.coordination.transaction_runtime import TransactionCoordinator
from headrace.coordination.transactions import Identity
from headrace.errors import ErrorCode
from headrace.settings import LogSettings
from headrace.types import TopicPartition
from headrace.wire import codec
from headrace.wire.batch import TRANSACTIONAL
from headrace.wire.records import Record, encode_batch
from tests.apis.one_broker import CALLER, NOW, OneBroker, context
from tests.apis.test_groups import ask
from tests.coordination.replies import itself
from tests.support.messages import filled, item, part

PRODUCE, FETCH_OFFSETS, INIT, ADD_PARTITIONS, ADD_OFFSETS, END, COMMIT_OFFSETS = (
    0, 9, 22, 24, 25, 26, 28,
)  # fmt: skip
DESCRIBE, LIST = 65, 66
NONE = ErrorCode.NONE
NAME = "copier"
OLD, NEW = 11, 12
"""Versions of Produce before and from which on partitions need not be added."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    one = OneBroker(
        tmp_path,
        {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"},
    )
    one.create("orders", 2)
    yield one
    one.close()


def init(broker: OneBroker, version: int = 5) -> Identity:
    for _ in range(2):
        answer = ask(
            broker, INIT, version,
            transactional_id=NAME, transaction_timeout=datetime.timedelta(seconds=60),
        )  # fmt: skip
        if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            break
    assert answer.error_code == NONE
    return Identity(answer.producer_id, answer.producer_epoch)


def produce_body(
    who: Identity, sequence: int, version: int, index: int, name: str | None, attributes: int
) -> bytearray:
    """A Produce of one record."""
    batch = encode_batch(
        [Record(0, NOW, b"k", b"v")], 0, 0, who.producer_id, who.epoch, sequence, attributes
    )
    request = codec.request_class(PRODUCE, version)
    topic_class = type(part(PRODUCE, version, "topic_data"))
    partition = item(topic_class, "partition_data", index=index, records=bytes(batch))
    topic = part(PRODUCE, version, "topic_data", name="orders", partition_data=(partition,))
    out = io.BytesIO()
    entity_writer(request)(
        out,
        request(
            transactional_id=name,
            acks=-1,
            timeout=datetime.timedelta(seconds=1),
            topic_data=(topic,),
        ),
    )
    return bytearray(out.getvalue())


def produced(answer: bytes, version: int) -> ErrorCode:
    response: typing.Any
    response, _ = entity_reader(codec.response_class(PRODUCE, version))(answer, 9)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def produce(
    broker: OneBroker,
    who: Identity,
    sequence: int = 0,
    *,
    version: int = NEW,
    index: int = 0,
    name: str | None = NAME,
    attributes: int = TRANSACTIONAL,
) -> ErrorCode:
    body = produce_body(who, sequence, version, index, name, attributes)
    answer = Produce(broker.services)(CALLER, body, memoryview(body), 0, len(body), version, 1)
    if iscoroutine(answer):
        answer = asyncio.run(answer)
    assert isinstance(answer, bytes)
    return produced(answer, version)


def add(broker: OneBroker, who: Identity, version: int = 3, *indexes: int) -> list[int]:
    values = {"transactional_id": NAME, "producer_id": who.producer_id, "producer_epoch": who.epoch}
    if version < 4:
        topic = part(
            ADD_PARTITIONS, version, "v3_and_below_topics", name="orders", partitions=indexes
        )
        values = {f"v3_and_below_{key}": value for key, value in values.items()}
        answer = ask(broker, ADD_PARTITIONS, version, v3_and_below_topics=(topic,), **values)
        results = answer.results_by_topic_v3_and_below
    else:
        kind = type(part(ADD_PARTITIONS, version, "transactions"))
        topic = item(kind, "topics", name="orders", partitions=indexes)
        one = part(
            ADD_PARTITIONS, version, "transactions", topics=(topic,), verify_only=True, **values
        )
        answer = ask(broker, ADD_PARTITIONS, version, transactions=(one,))
        results = answer.results_by_transaction[0].topic_results
    return [int(one.partition_error_code) for one in results[0].results_by_partition]


def end(
    broker: OneBroker, who: Identity, commit: bool = True, version: int = 5
) -> tuple[ErrorCode, Identity]:
    answer = ask(
        broker, END, version,
        transactional_id=NAME, producer_id=who.producer_id, producer_epoch=who.epoch,
        committed=commit,
    )  # fmt: skip
    if version < 5:
        return ErrorCode(answer.error_code), who
    return ErrorCode(answer.error_code), Identity(answer.producer_id, answer.producer_epoch)


def commit_offset(
    broker: OneBroker, who: Identity, offset: int, version: int = 5, **values: object
) -> ErrorCode:
    kind = type(part(COMMIT_OFFSETS, version, "topics"))
    partition = item(kind, "partitions", partition_index=0, committed_offset=offset)
    topic = part(COMMIT_OFFSETS, version, "topics", name="orders", partitions=(partition,))
    answer = ask(
        broker, COMMIT_OFFSETS, version,
        transactional_id=NAME, group_id="g", producer_id=who.producer_id,
        producer_epoch=who.epoch, topics=(topic,), **values,
    )  # fmt: skip
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def committed(broker: OneBroker, stable: bool = False) -> tuple[ErrorCode, int]:
    kind = type(part(FETCH_OFFSETS, 8, "groups"))
    topic = item(kind, "topics", name="orders", partition_indexes=(0,))
    group = part(FETCH_OFFSETS, 8, "groups", group_id="g", topics=(topic,))
    answer = ask(broker, FETCH_OFFSETS, 8, groups=(group,), require_stable=stable)
    found = answer.groups[0].topics[0].partitions[0]
    return ErrorCode(found.error_code), found.committed_offset


def stable_and_end(broker: OneBroker, index: int = 0) -> tuple[int, int]:
    partition = broker.replicas.partition("orders", index)
    return partition.replica.last_stable_offset, partition.replica.high_watermark


def restart(broker: OneBroker) -> None:
    """Both coordinators know nothing but their logs."""
    services = broker.services
    parts = (services.settings, services.clock, broker.metadata, broker.replicas)
    broker.groups = GroupCoordinator(*parts)
    broker.transactions = TransactionCoordinator(*parts, lambda: broker.groups, services.peers)
    services._groups = services._transactions = None


# ------------------------------------------------------------------------------------ producing


def test_a_produce_adds_its_partition_and_the_commit_makes_it_visible(broker: OneBroker) -> None:
    who = init(broker)
    assert [produce(broker, who, n) for n in (0, 1)] == [NONE, NONE]
    assert produce(broker, who, 0, index=1) == NONE
    assert stable_and_end(broker) == (0, 2)
    code, later = end(broker, who)
    assert (code, later) == (NONE, Identity(who.producer_id, who.epoch + 1))
    assert stable_and_end(broker) == (3, 3)
    assert stable_and_end(broker, 1) == (2, 2)
    assert produce(broker, later, 0) == NONE
    assert broker.replicas.partition("orders", 0).replica.log.transactions.between(0, 10) == []


def test_an_abort_is_listed_for_those_who_read_what_is_committed(broker: OneBroker) -> None:
    who = init(broker)
    produce(broker, who)
    assert end(broker, who, commit=False)[0] == NONE
    found = broker.replicas.partition("orders", 0).replica.log.transactions.between(0, 10)
    assert found == [(who.producer_id, 0)]


def test_an_older_producer_must_add_its_partitions(broker: OneBroker) -> None:
    who = init(broker)
    assert produce(broker, who, version=10) == ErrorCode.INVALID_TXN_STATE
    assert produce(broker, who, version=OLD) == ErrorCode.TRANSACTION_ABORTABLE
    assert add(broker, who, 3, 0) == [NONE]
    assert produce(broker, who, version=OLD) == NONE
    assert produce(broker, who, version=OLD, index=1) == ErrorCode.TRANSACTION_ABORTABLE
    assert end(broker, who, version=4) == (NONE, who)
    assert stable_and_end(broker) == (2, 2)
    assert produce(broker, who, 1, version=10) == ErrorCode.INVALID_TXN_STATE
    assert stable_and_end(broker) == (2, 2)


@pytest.mark.parametrize("version", [NEW, OLD])
def test_a_late_produce_does_not_open_a_transaction_again(broker: OneBroker, version: int) -> None:
    who = init(broker)
    if version == OLD:
        add(broker, who, 3, 0)
    produce(broker, who, version=version)
    _, later = end(broker, who, commit=False, version=5 if version == NEW else 4)
    late = ErrorCode.INVALID_PRODUCER_EPOCH if later != who else ErrorCode.TRANSACTION_ABORTABLE
    assert produce(broker, who, 1, version=version) == late
    assert stable_and_end(broker) == (2, 2)


def test_transactional_records_need_a_transactional_id(broker: OneBroker) -> None:
    who = init(broker)
    wanted = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert produce(broker, who, name=None) == wanted
    assert stable_and_end(broker) == (0, 0)


def test_another_producer_may_not_write_in_a_transaction(broker: OneBroker) -> None:
    wanted = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert produce(broker, Identity(5, 0)) == wanted
    init(broker)
    assert produce(broker, Identity(5, 0)) == wanted
    assert end(broker, Identity(5, 0))[0] == wanted
    assert add(broker, Identity(5, 0), 3, 0) == [wanted]


def test_a_second_producer_with_the_same_id_fences_the_first(broker: OneBroker) -> None:
    old = init(broker)
    produce(broker, old)
    new = init(broker)
    assert new.epoch > old.epoch
    assert stable_and_end(broker) == (2, 2)
    assert produce(broker, old, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(broker, old)[0] == ErrorCode.PRODUCER_FENCED
    assert end(broker, old, version=1)[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert add(broker, old, 1, 0) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert add(broker, old, 2, 0) == [ErrorCode.PRODUCER_FENCED]
    assert produce(broker, new) == NONE


@pytest.mark.parametrize(
    ("version", "missing"),
    [(4, ErrorCode.INVALID_TXN_STATE), (5, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_brokers_may_ask_which_partitions_are_in_a_transaction(
    broker: OneBroker, version: int, missing: ErrorCode
) -> None:
    who = init(broker)
    add(broker, who, 3, 0)
    assert add(broker, who, version, 0, 1) == [NONE, missing]


def test_adding_a_partition_that_is_not_there_adds_none(broker: OneBroker) -> None:
    who = init(broker)
    unknown, not_tried = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert add(broker, who, 3, 0, 9) == [not_tried, unknown]
    assert end(broker, who, version=4)[0] == ErrorCode.INVALID_TXN_STATE


# -------------------------------------------------------------------------------------- offsets


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("commit", [True, False])
def test_offsets_in_a_transaction_count_when_it_is_committed(
    broker: OneBroker, commit: bool, restarts: bool
) -> None:
    who = init(broker)
    assert commit_offset(broker, who, 7) == NONE
    if restarts:
        restart(broker)
    assert committed(broker) == (NONE, -1)
    assert committed(broker, stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert end(broker, who, commit)[0] == NONE
    wanted = (NONE, 7 if commit else -1)
    assert committed(broker, stable=True) == wanted
    restart(broker)
    assert committed(broker, stable=True) == wanted


def test_an_older_client_must_add_the_group_first(broker: OneBroker) -> None:
    who = init(broker)
    assert commit_offset(broker, who, 7, 3) == ErrorCode.INVALID_TXN_STATE
    assert commit_offset(broker, who, 7, 4) == ErrorCode.TRANSACTION_ABORTABLE
    answer = ask(
        broker, ADD_OFFSETS, 3,
        transactional_id=NAME, producer_id=who.producer_id, producer_epoch=who.epoch,
        group_id="g",
    )  # fmt: skip
    assert answer.error_code == NONE
    assert commit_offset(broker, who, 7, 3) == NONE
    assert end(broker, who, version=3) == (NONE, who)
    assert committed(broker) == (NONE, 7)


def test_offsets_of_a_member_that_is_not_there_are_refused(broker: OneBroker) -> None:
    who = init(broker)
    code = commit_offset(broker, who, 7, generation_id=3, member_id="m")
    assert code == ErrorCode.ILLEGAL_GENERATION
    assert commit_offset(broker, Identity(who.producer_id, who.epoch + 1), 7) == (
        ErrorCode.INVALID_PRODUCER_EPOCH
    )


# -------------------------------------------------------------- time, restarts, administration


def test_an_abandoned_transaction_is_aborted_after_its_timeout(broker: OneBroker) -> None:
    who = init(broker)
    produce(broker, who)
    clock = broker.services.clock
    assert isinstance(clock, ManualClock)
    clock.advance(61_000)
    broker.transactions.abort_timed_out()
    assert stable_and_end(broker) == (2, 2)
    assert produce(broker, who, 1) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_open_transaction_survives_a_restart(broker: OneBroker) -> None:
    who = init(broker)
    produce(broker, who)
    restart(broker)
    assert produce(broker, who, 1) == NONE
    assert end(broker, who)[0] == NONE
    assert stable_and_end(broker) == (3, 3)


def test_markers_that_were_not_written_are_written_after_a_restart(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = init(broker)
    produce(broker, who)
    commit_offset(broker, who, 7)
    with monkeypatch.context() as patch:
        patch.setattr(TransactionCoordinator, "_finish", lambda *_: None)
        assert end(broker, who)[0] == NONE
    assert stable_and_end(broker) == (0, 1)
    restart(broker)
    listed = ask(broker, LIST, 2)
    assert [one.transaction_state for one in listed.transaction_states] == ["CompleteCommit"]
    assert stable_and_end(broker) == (2, 2)
    assert committed(broker, stable=True) == (NONE, 7)


def test_the_topic_of_a_transaction_may_be_deleted(broker: OneBroker) -> None:
    who = init(broker)
    produce(broker, who)
    broker.metadata.delete_topics(["orders"])
    assert end(broker, who)[0] == NONE
    assert init(broker).epoch > who.epoch


def test_transactions_are_listed_and_described(broker: OneBroker) -> None:
    who = init(broker)
    produce(broker, who, index=1)
    (one,) = ask(broker, DESCRIBE, 0, transactional_ids=(NAME,)).transaction_states
    assert (one.error_code, one.transaction_state, one.producer_id) == (
        NONE, "Ongoing", who.producer_id,
    )  # fmt: skip
    assert one.transaction_start_time.timestamp() * 1000 == NOW
    assert [(topic.topic, topic.partitions) for topic in one.topics] == [("orders", (1,))]
    (nobody,) = ask(broker, DESCRIBE, 0, transactional_ids=("x",)).transaction_states
    assert nobody.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    def names(**filters: object) -> list[str]:
        answer = ask(broker, LIST, 2, **filters)
        return [one.transactional_id for one in answer.transaction_states]

    assert names() == names(transactional_id_pattern="cop.*") == [NAME]
    assert names(transactional_id_pattern="x.*") == names(state_filters=("Empty",)) == []
    assert ask(broker, LIST, 2, state_filters=("Odd",)).unknown_state_filters == ("Odd",)


def test_a_partition_that_syncs_first_keeps_the_order_of_a_producer(broker: OneBroker) -> None:
    """Every answer waits for the disk, that of the coordinator too."""
    who = init(broker)
    for name in ("__transaction_state", "orders"):
        for partition in broker.replicas.topic(name):
            partition.use_settings(replace(partition.settings, flush_messages=1))

    async def run() -> list[object]:
        handler = Produce(broker.services)
        answers = [_later(handler, who, sequence) for sequence in range(5)]
        return list(await asyncio.gather(*answers))

    assert asyncio.run(run()) == [NONE] * 5
    assert broker.replicas.partition("orders", 0).replica.log.end_offset == 5


async def _later(handler: Produce, who: Identity, sequence: int) -> ErrorCode:
    body = produce_body(who, sequence, NEW, 0, NAME, TRANSACTIONAL)
    answer = handler(CALLER, body, memoryview(body), 0, len(body), NEW, 1)
    assert iscoroutine(answer)
    with contextlib.suppress(ValueError):
        body[:] = b"\0" * len(body)  # the buffer is used for something else meanwhile
    return produced(await answer, NEW)


def test_offsets_go_to_the_partition_of_their_group(broker: OneBroker) -> None:
    who = init(broker)
    commit_offset(broker, who, 1)
    index = broker.groups.topic.partition_of("g")
    log = broker.replicas.partition(OFFSETS_TOPIC, index).replica.log
    assert list(log.producers.open_transactions) == [who.producer_id]


def test_offsets_that_an_end_overtakes_are_refused(broker: OneBroker) -> None:
    """The answer about the partition waits for the disk; meanwhile the transaction ends."""
    who = init(broker)
    broker.groups.topic.partition_of("g")
    (partition,) = [
        one
        for one in broker.replicas.topic("__transaction_state")
        if one.name.partition == broker.transactions.topic.partition_of(NAME)
    ]

    where = TopicPartition(OFFSETS_TOPIC, broker.groups.topic.partition_of("g"))

    def how_many(refused: frozenset[TopicPartition]) -> int:
        return len(refused)

    async def run() -> object:
        partition.use_settings(replace(partition.settings, flush_messages=1))
        added = broker.transactions.run(
            NAME,
            lambda state, token, _: state.add(NAME, who, frozenset({where}), 0, token),
            how_many,
        )
        request = filled_commit(who)
        answer = txn_offset_commit(broker.services, request, context(4))
        assert iscoroutine(added)
        assert iscoroutine(answer)
        partition.use_settings(LogSettings())
        broker.transactions.run(
            NAME, lambda state, token, _: state.end(NAME, who, False, 0, token), itself(Identity)
        )
        await added
        return await answer

    answer = asyncio.run(run())
    assert isinstance(answer, TxnOffsetCommitResponse)
    assert int(answer.topics[0].partitions[0].error_code) == ErrorCode.TRANSACTION_ABORTABLE
    assert not broker.replicas.partition(*where).replica.log.producers.open_transactions


def filled_commit(who: Identity) -> typing.Any:
    kind = type(part(COMMIT_OFFSETS, 5, "topics"))
    partition = item(kind, "partitions", partition_index=0, committed_offset=7)
    topic = part(COMMIT_OFFSETS, 5, "topics", name="orders", partitions=(partition,))
    return filled(
        codec.request_class(COMMIT_OFFSETS, 5),
        {
            "transactional_id": NAME, "group_id": "g", "producer_id": who.producer_id,
            "producer_epoch": who.epoch, "topics": (topic,),
        },
    )  # fmt: skip


def many_partitions(
    who: Identity, indexes: typing.Sequence[int], *, verify_only: bool = False
) -> typing.Any:
    kind = type(part(ADD_PARTITIONS, 5, "transactions"))
    topic = item(kind, "topics", name="wide", partitions=tuple(indexes))
    one = part(
        ADD_PARTITIONS, 5, "transactions", transactional_id=NAME, producer_id=who.producer_id,
        producer_epoch=who.epoch, topics=(topic,), verify_only=verify_only,
    )  # fmt: skip
    return filled(codec.request_class(ADD_PARTITIONS, 5), {"transactions": (one,)})


def added(
    broker: OneBroker, who: Identity, indexes: typing.Sequence[int], *, verify_only: bool = False
) -> tuple[dict[int, int], int]:
    """The error codes by partition, and how many turns others had meanwhile."""
    broker.services.slices = Slices(time.perf_counter)
    request = many_partitions(who, indexes, verify_only=verify_only)

    async def run() -> tuple[typing.Any, int]:
        answer = broker.ask(add_partitions_to_txn, request, 5)
        turns = 0
        if iscoroutine(answer):
            task = asyncio.ensure_future(answer)
            while not task.done():
                await asyncio.sleep(0)
                turns += 1
            answer = await task
        return answer, turns

    response, turns = asyncio.run(run())
    (result,) = response.results_by_transaction
    (topic,) = result.topic_results
    rows = [
        (row.partition_index, int(row.partition_error_code)) for row in topic.results_by_partition
    ]
    assert [index for index, _ in rows] == list(indexes)
    return dict(rows), turns


def test_very_many_partitions_join_a_transaction_while_others_are_served(
    broker: OneBroker,
) -> None:
    broker.create("wide", 600)
    who = init(broker)
    few, no_turns = added(broker, who, range(500))
    assert (set(few.values()), no_turns) == ({NONE}, 0)
    codes, turns = added(broker, who, range(50_000))
    refused = {code: sum(one == code for one in codes.values()) for code in set(codes.values())}
    assert refused == {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 49_400, ErrorCode.OPERATION_NOT_ATTEMPTED: 600,
    }  # fmt: skip
    assert turns >= 5
    codes, turns = added(broker, who, range(550, 50_000), verify_only=True)
    assert (set(codes.values()), turns >= 5) == ({ErrorCode.TRANSACTION_ABORTABLE}, True)
    codes, _ = added(broker, who, range(600))
    assert set(codes.values()) == {NONE}
    codes, _ = added(broker, who, range(50_000), verify_only=True)
    assert [index for index, code in codes.items() if not code] == list(range(600))
    (one,) = ask(broker, DESCRIBE, 0, transactional_ids=(NAME,)).transaction_states
    assert [(topic.topic, topic.partitions) for topic in one.topics] == [
        ("wide", tuple(range(600)))
    ]
