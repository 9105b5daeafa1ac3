"""Fetch: limits, waiting, sessions, errors; on real logs, without sockets."""

import asyncio
import itertools
import time
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.serial import entity_reader

from headrace.apis.records.fetch import Fetch
from headrace.apis.records.fetch_sessions import SessionCache
from headrace.apis.records.waiting_fetches import WaitingFetch
from headrace.clock import ManualClock
from headrace.wire.batch import TRANSACTIONAL, read_header
from headrace.wire.fast import Chunk, FetchPartition, FetchRequest
from tests.apis.one_broker import CALLER, OneBroker
from tests.support.raw import batch_of

VERSION = 11
SESSION_SLOTS = 3
LONG_MS = 600_000
"""A wait that outlasts the test: only a change can end it in time."""


class Consumer:
    """Sends Fetch requests to one broker's handler and reads the answers."""

    def __init__(self, broker: OneBroker) -> None:
        self.broker = broker
        self.clock = ManualClock()
        self.sessions = SessionCache(SESSION_SLOTS, self.clock)
        self.wake = broker.services.waiting_fetches.wake
        self.fetch = Fetch(
            broker.replicas,
            self.sessions,
            broker.services.waiting_fetches,
            50_000_000,
            self.clock,
            broker.services.errors,
        )

    def append(self, topic: str, *values: bytes, partition: int = 0) -> int:
        found = self.broker.replicas.partition(topic, partition)
        buf = batch_of(*values)
        base, _, _ = found.append(
            buf, memoryview(buf), 0, len(buf), 1, self.broker.services.clock.now_ms() + 10**12
        )
        self.wake()
        return base

    def send(self, *wanted: FetchPartition, topic: str = "t", **options: int) -> Any:
        request = request_for([(topic.encode(), list(wanted))] if wanted else [], **options)
        return self.fetch.answer(CALLER, request, VERSION, 7)

    def ask(self, *wanted: FetchPartition, topic: str = "t", **options: int) -> Any:
        answer = self.send(*wanted, topic=topic, **options)
        if isinstance(answer, WaitingFetch):
            answer = asyncio.run(awaited(answer))
        return read(answer)


async def awaited(waiting: WaitingFetch) -> list[Chunk]:
    return await waiting


def request_for(topics: list[Any], **options: Any) -> FetchRequest:
    values: dict[str, Any] = {
        "replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 10_000_000,
        "isolation": 0, "session_id": 0, "session_epoch": -1, "forgotten": [],
    }  # fmt: skip
    return FetchRequest(**{**values, **options, "topics": topics})


def follow(
    partition: int = 0, offset: int = 0, max_bytes: int = 1_000_000, epoch: int = -1
) -> FetchPartition:
    return (partition, epoch, offset, -1, -1, max_bytes)


def read(answer: Any) -> Any:
    chunks: list[Chunk] = answer
    frame = b"".join(c if isinstance(c, bytes) else c.read() for c in chunks)
    schema: Any = load_response_schema(1, VERSION)
    response, used = entity_reader(schema)(frame, 8)
    assert used == len(frame) - 8
    return response


def partitions(response: Any) -> dict[int, Any]:
    return {p.partition_index: p for topic in response.responses for p in topic.partitions}


@pytest.fixture
def consumer(tmp_path: Path) -> Consumer:
    broker = OneBroker(tmp_path)
    broker.create("t", 4)
    return Consumer(broker)


def test_records_come_back_as_they_were_appended(consumer: Consumer) -> None:
    consumer.append("t", b"one", b"two")
    found = partitions(consumer.ask(follow()))[0]
    assert (int(found.error_code), found.high_watermark) == (0, 2)
    assert b"one" in found.records
    assert b"two" in found.records


def test_a_batch_is_found_by_an_offset_in_its_middle(consumer: Consumer) -> None:
    consumer.append("t", b"first", b"second", b"third")
    consumer.append("t", b"fourth")
    records = partitions(consumer.ask(follow(offset=1)))[0].records
    assert b"first" in records
    assert b"fourth" in records
    assert b"first" not in partitions(consumer.ask(follow(offset=3)))[0].records


def test_the_first_batch_comes_whole_whatever_the_limits_say(consumer: Consumer) -> None:
    consumer.append("t", b"x" * 5000)
    consumer.append("t", b"y" * 5000)
    response = consumer.ask(follow(max_bytes=10), follow(partition=1), max_bytes=10)
    records = partitions(response)[0].records
    assert b"x" * 5000 in records
    assert b"y" * 10 not in records


def test_after_the_first_batch_the_limits_hold(consumer: Consumer) -> None:
    for partition in (0, 1, 2):
        consumer.append("t", bytes([65 + partition]) * 5000, partition=partition)
    wanted = [follow(partition=p) for p in (0, 1, 2)]
    sizes = [len(p.records) for p in partitions(consumer.ask(*wanted, max_bytes=6000)).values()]
    assert sizes[0] > 5000
    assert sizes[1:] == [0, 0]
    sizes = [len(p.records) for p in partitions(consumer.ask(*wanted, max_bytes=11_000)).values()]
    assert sizes[0] > 5000
    assert sizes[1] > 5000
    assert sizes[2] == 0


def test_a_partition_limit_ends_between_batches(consumer: Consumer) -> None:
    for _ in range(10):
        consumer.append("t", b"x" * 1000)
    records = partitions(consumer.ask(follow(max_bytes=2500)))[0].records
    assert records.count(b"x" * 1000) == 2
    assert len(records) <= 2500


@pytest.mark.parametrize("offset", [-1, 2, 100])
def test_an_offset_outside_the_log_gets_error_1(consumer: Consumer, offset: int) -> None:
    consumer.append("t", b"v")
    assert int(partitions(consumer.ask(follow(offset=offset)))[0].error_code) == 1


def test_an_offset_before_deleted_records_gets_error_1(consumer: Consumer) -> None:
    consumer.append("t", b"a")
    consumer.append("t", b"b")
    consumer.broker.replicas.partition("t", 0).replica.delete_records(1)
    assert int(partitions(consumer.ask(follow()))[0].error_code) == 1
    found = partitions(consumer.ask(follow(offset=1)))[0]
    assert (int(found.error_code), found.log_start_offset) == (0, 1)


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (0, 0), (1, 75)])
def test_the_leader_epoch_is_checked(consumer: Consumer, epoch: int, code: int) -> None:
    consumer.append("t", b"v")
    assert int(partitions(consumer.ask(follow(epoch=epoch)))[0].error_code) == code


def test_unknown_topics_and_partitions_get_error_3(consumer: Consumer) -> None:
    assert int(partitions(consumer.ask(follow(partition=9)))[9].error_code) == 3
    assert int(partitions(consumer.ask(follow(), topic="no"))[0].error_code) == 3


def test_an_unknown_topic_id_gets_error_100(consumer: Consumer) -> None:
    request = request_for([(b"0123456789abcdef", [follow()])])
    answer = consumer.fetch.answer(CALLER, request, 13, 7)
    assert isinstance(answer, list)
    head = answer[0]
    assert isinstance(head, bytes)
    assert (100).to_bytes(2, "big") in head


def test_a_fetch_waits_for_records_and_wakes_when_they_come(consumer: Consumer) -> None:
    async def run() -> Any:
        waiting = consumer.send(follow(), max_wait_ms=LONG_MS)
        assert isinstance(waiting, WaitingFetch)
        task = asyncio.ensure_future(awaited(waiting))
        await asyncio.sleep(0)
        assert not task.done()
        consumer.append("t", b"news")
        return await asyncio.wait_for(task, 60)

    assert b"news" in partitions(read(asyncio.run(run())))[0].records


@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_records_that_come_before_the_wait_has_begun_end_it(
    consumer: Consumer, session_epoch: int
) -> None:
    async def scenario() -> None:
        waiting = consumer.send(follow(), max_wait_ms=LONG_MS, session_epoch=session_epoch)
        consumer.append("t", b"in the same poll")
        answer = read(await asyncio.wait_for(awaited(waiting), 30))
        assert partitions(answer)[0].high_watermark == 1

    asyncio.run(scenario())


def test_a_session_does_not_miss_what_comes_before_its_wait_has_begun(consumer: Consumer) -> None:
    async def scenario() -> None:
        first = consumer.ask(follow(), session_epoch=0)
        waiting = consumer.send(session_id=first.session_id, session_epoch=1, max_wait_ms=LONG_MS)
        consumer.append("t", b"in the same poll")
        answer = read(await asyncio.wait_for(awaited(waiting), 30))
        assert partitions(answer)[0].high_watermark == 1

    asyncio.run(scenario())


def test_a_fetch_waits_for_min_bytes(consumer: Consumer) -> None:
    async def run() -> tuple[bool, Any]:
        task = asyncio.ensure_future(consumer.send(follow(), max_wait_ms=LONG_MS, min_bytes=300))
        await asyncio.sleep(0)
        consumer.append("t", b"a" * 50)
        for _ in range(5):
            await asyncio.sleep(0)
        early = task.done()
        consumer.append("t", b"b" * 300)
        return early, await asyncio.wait_for(task, 60)

    early, answer = asyncio.run(run())
    assert not early
    records = partitions(read(answer))[0].records
    assert b"a" * 50 in records
    assert b"b" * 300 in records


def test_a_fetch_that_waited_in_vain_is_answered_empty(consumer: Consumer) -> None:
    found = partitions(consumer.ask(follow(), max_wait_ms=20))[0]
    assert (int(found.error_code), len(found.records)) == (0, 0)


def test_a_waiting_fetch_goes_on_with_a_topic_that_was_created_again(consumer: Consumer) -> None:
    async def run() -> Any:
        task = asyncio.ensure_future(consumer.send(follow(), max_wait_ms=LONG_MS))
        await asyncio.sleep(0)
        consumer.broker.metadata.delete_topics(["t"])
        consumer.broker.create("t")
        consumer.wake()
        await asyncio.sleep(0)
        assert not task.done()
        consumer.append("t", b"news")
        return await asyncio.wait_for(task, 60)

    assert b"news" in partitions(read(asyncio.run(run())))[0].records


def test_a_waiting_fetch_gets_an_error_when_its_topic_is_deleted(consumer: Consumer) -> None:
    async def run() -> Any:
        task = asyncio.ensure_future(consumer.send(follow(), max_wait_ms=LONG_MS))
        await asyncio.sleep(0)
        consumer.broker.metadata.delete_topics(["t"])
        consumer.wake()
        return await asyncio.wait_for(task, 60)

    assert int(partitions(read(asyncio.run(run())))[0].error_code) == 3


# ------------------------------------------------------------------------------------ sessions


def test_a_session_answers_only_what_changed(consumer: Consumer) -> None:
    first = consumer.ask(*[follow(partition=p) for p in range(4)], session_epoch=0)
    assert first.session_id > 0
    assert sorted(partitions(first)) == [0, 1, 2, 3]
    session = {"session_id": first.session_id}
    assert partitions(consumer.ask(session_epoch=1, **session)) == {}
    consumer.append("t", b"v", partition=2)
    assert list(partitions(consumer.ask(session_epoch=2, **session))) == [2]
    moved = consumer.ask(follow(partition=2, offset=1), session_epoch=3, **session)
    assert partitions(moved) == {}
    consumer.append("t", b"w", partition=2)
    consumer.append("t", b"w", partition=0)
    assert sorted(partitions(consumer.ask(session_epoch=4, **session))) == [0, 2]


def test_a_session_wakes_for_a_partition_named_only_at_its_start(consumer: Consumer) -> None:
    first = consumer.ask(*[follow(partition=p) for p in range(4)], session_epoch=0)

    async def run() -> Any:
        waiting = consumer.send(session_id=first.session_id, session_epoch=1, max_wait_ms=LONG_MS)
        task = asyncio.ensure_future(awaited(waiting))
        await asyncio.sleep(0)
        consumer.append("t", b"v", partition=3)
        return await asyncio.wait_for(task, 60)

    assert list(partitions(read(asyncio.run(run())))) == [3]


def test_a_waiting_session_gets_the_new_log_start_offset(consumer: Consumer) -> None:
    consumer.append("t", b"v", b"w")
    first = consumer.ask(follow(offset=2), session_epoch=0)

    async def run() -> Any:
        waiting = consumer.send(session_id=first.session_id, session_epoch=1, max_wait_ms=50)
        task = asyncio.ensure_future(awaited(waiting))
        await asyncio.sleep(0)
        consumer.broker.replicas.partition("t", 0).replica.delete_records(1)
        consumer.wake()
        return await asyncio.wait_for(task, 60)

    assert partitions(read(asyncio.run(run())))[0].log_start_offset == 1


def test_forgotten_partitions_are_left_out(consumer: Consumer) -> None:
    first = consumer.ask(follow(partition=0), follow(partition=1), session_epoch=0)
    consumer.append("t", b"v", partition=0)
    consumer.append("t", b"v", partition=1)
    request = request_for([], session_id=first.session_id, session_epoch=1, forgotten=[(b"t", 0)])
    answer = consumer.fetch.answer(CALLER, request, VERSION, 7)
    assert list(partitions(read(answer))) == [1]


def test_wrong_session_ids_and_epochs_get_their_errors(consumer: Consumer) -> None:
    first = consumer.ask(follow(), session_epoch=0)
    unknown = consumer.ask(session_id=first.session_id ^ 1, session_epoch=1)
    assert int(unknown.error_code) == 70
    wrong = consumer.ask(session_id=first.session_id, session_epoch=5)
    assert int(wrong.error_code) == 71
    fine = consumer.ask(session_id=first.session_id, session_epoch=1)
    assert int(fine.error_code) == 0
    again = consumer.ask(session_id=first.session_id, session_epoch=1)
    assert int(again.error_code) == 71


def test_a_final_epoch_closes_the_session(consumer: Consumer) -> None:
    first = consumer.ask(follow(), session_epoch=0)
    consumer.ask(follow(), session_id=first.session_id, session_epoch=-1)
    assert int(consumer.ask(session_id=first.session_id, session_epoch=1).error_code) == 70
    assert len(consumer.sessions) == 0


def test_names_and_ids_do_not_mix_in_a_session(consumer: Consumer) -> None:
    first = consumer.ask(follow(), session_epoch=0)
    request = request_for([], session_id=first.session_id, session_epoch=1)
    answer = consumer.fetch.answer(CALLER, request, 13, 7)
    assert isinstance(answer, list)
    assert isinstance(answer[0], bytes)
    assert (106).to_bytes(2, "big") in answer[0]


def test_a_full_cache_gives_no_session_but_an_answer(consumer: Consumer) -> None:
    for _ in range(SESSION_SLOTS):
        assert consumer.ask(follow(), session_epoch=0).session_id > 0
    assert consumer.ask(follow(), session_epoch=0).session_id == 0
    consumer.clock.advance(121_000)
    assert consumer.ask(follow(), session_epoch=0).session_id > 0
    assert len(consumer.sessions) == SESSION_SLOTS


def test_a_limited_session_serves_every_partition_in_turn(consumer: Consumer) -> None:
    for partition in range(4):
        for _ in range(4):
            consumer.append("t", b"x" * 1000, partition=partition)
    positions = dict.fromkeys(range(4), 0)
    first = consumer.ask(
        *[follow(partition=p, max_bytes=1200) for p in range(4)], session_epoch=0, max_bytes=1200
    )
    answers = [first]
    for epoch in itertools.count(1):
        moved = []
        for index, found in partitions(answers[-1]).items():
            if len(found.records):
                positions[index] += 1
                moved.append(follow(index, positions[index], 1200))
        if epoch == 16:
            break
        answers.append(
            consumer.ask(*moved, session_id=first.session_id, session_epoch=epoch, max_bytes=1200)
        )
    assert positions == {0: 4, 1: 4, 2: 4, 3: 4}


# -- transactions --------------------------------------------------------------------------------

COMMITTED = 1


def begin(consumer: Consumer, value: bytes, sequence: int = 0) -> None:
    """Append to the transaction of producer 7."""
    data = batch_of(
        value,
        producer_id=7,
        producer_epoch=0,
        base_sequence=sequence,
        attributes=TRANSACTIONAL,
    )
    now_ms = read_header(data, 0)[8]
    consumer.broker.replicas.partition("t", 0).append_own(data, now_ms)
    consumer.wake()


def end(consumer: Consumer, *, commit: bool) -> None:
    now_ms = int(time.time() * 1000)
    consumer.broker.replicas.partition("t", 0).append_marker(7, 0, commit, 0, now_ms)
    consumer.wake()


def aborted(found: Any) -> list[tuple[int, int]]:
    return [(int(a.producer_id), a.first_offset) for a in found.aborted_transactions]


@pytest.mark.parametrize("epoch", [-1, 0], ids=["without a session", "with one"])
def test_only_readers_of_everything_see_an_open_transaction(consumer: Consumer, epoch: int) -> None:
    consumer.append("t", b"plain")
    begin(consumer, b"secret")
    everything = partitions(consumer.ask(follow(), session_epoch=epoch))[0]
    assert b"secret" in everything.records
    assert everything.aborted_transactions is None
    assert (everything.high_watermark, everything.last_stable_offset) == (2, 1)
    committed = partitions(consumer.ask(follow(), session_epoch=epoch, isolation=COMMITTED))[0]
    assert b"plain" in committed.records
    assert b"secret" not in committed.records
    assert aborted(committed) == []
    assert (committed.high_watermark, committed.last_stable_offset) == (2, 1)


@pytest.mark.parametrize("epoch", [-1, 0], ids=["without a session", "with one"])
def test_aborted_transactions_are_named(consumer: Consumer, epoch: int) -> None:
    begin(consumer, b"regretted")
    end(consumer, commit=False)
    consumer.append("t", b"plain")
    found = partitions(consumer.ask(follow(), session_epoch=epoch, isolation=COMMITTED))[0]
    assert b"plain" in found.records
    assert aborted(found) == [(7, 0)]
    assert found.last_stable_offset == 3
    later = partitions(consumer.ask(follow(offset=2), session_epoch=epoch, isolation=COMMITTED))[0]
    assert aborted(later) == []


def test_a_marker_wakes_who_waits_for_committed_records(consumer: Consumer) -> None:
    begin(consumer, b"first")

    async def run() -> Any:
        answer = consumer.send(follow(), max_wait_ms=LONG_MS, isolation=COMMITTED)
        assert isinstance(answer, WaitingFetch)
        waiting = asyncio.ensure_future(awaited(answer))
        await asyncio.sleep(0)
        begin(consumer, b"second", sequence=1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
        end(consumer, commit=True)
        return await asyncio.wait_for(waiting, 60)

    found = partitions(read(asyncio.run(run())))[0]
    assert b"first" in found.records
    assert b"second" in found.records


def test_a_session_of_committed_records_goes_on_after_the_marker(consumer: Consumer) -> None:
    consumer.append("t", b"plain")
    begin(consumer, b"late")
    opened = consumer.ask(follow(), session_epoch=0, isolation=COMMITTED)
    options = {"session_id": opened.session_id, "isolation": COMMITTED}
    consumer.ask(follow(offset=1), session_epoch=1, **options)
    assert partitions(consumer.ask(session_epoch=2, **options)) == {}
    end(consumer, commit=True)
    found = partitions(consumer.ask(session_epoch=3, **options))[0]
    assert b"late" in found.records
