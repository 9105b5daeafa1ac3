"""Waiting fetches: each gets one response in time, and all resources are released."""

import asyncio
from typing import cast

import pytest

from headrace.apis.records.fetch_sessions import FetchSession
from headrace.apis.records.waiting_fetches import WaitingFetch, WaitingFetches
from headrace.replication.replica import LocalReplica
from headrace.wire.fast import Chunk, FetchRequest

NEWS: list[Chunk] = [b"news"]
LATE: list[Chunk] = [b"nothing"]
Answer = list[Chunk] | None


class Watched:
    """Stands for a partition that one fetch waits for."""

    def __init__(self, waiting: WaitingFetch) -> None:
        self.watchers = {self: None}
        self._waiting = waiting

    def changed(self) -> WaitingFetch:
        return self._waiting


class Waits:
    """Waiting fetches of one broker, and what they were answered."""

    def __init__(self) -> None:
        self.changed: list[LocalReplica] = []
        self.fetches = WaitingFetches(self.changed)
        self.answers: list[tuple[str, Answer]] = []
        self.told = asyncio.Event()
        self.news = False
        self.reads = 0

    def fetch(self, name: str, max_wait_ms: int = 60_000) -> WaitingFetch:
        request = FetchRequest(-1, max_wait_ms, 1, 1, 0, 0, -1, [], [])
        waiting = self.fetches.wait(FetchSession(0, False, request), self.read, max_wait_ms)

        def answered(answer: Answer) -> None:
            self.answers.append((name, answer))
            self.told.set()

        waiting.start(answered)
        return waiting

    def read(self, expired: bool) -> Answer:
        self.reads += 1
        if self.news:
            return NEWS
        return LATE if expired else None

    def change(self, waiting: WaitingFetch, partitions: int = 1) -> None:
        """Partitions change that the fetch waits for."""
        for _ in range(partitions):
            self.changed.append(cast("LocalReplica", Watched(waiting)))

    async def until_answered(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.answers) < count:
                self.told = asyncio.Event()
                await self.told.wait()


@pytest.fixture
def waits() -> Waits:
    return Waits()


def test_it_reads_once_however_many_partitions_changed(waits: Waits) -> None:
    async def run() -> None:
        waiting = waits.fetch("one")
        waits.change(waiting, partitions=3)
        assert waits.fetches.wake()
        assert (waits.reads, waits.answers) == (1, [])
        assert not waits.fetches.wake()
        waits.news = True
        waits.change(waiting)
        waits.fetches.wake()
        waiting.expire()
        assert waits.answers == [("one", NEWS)]

    asyncio.run(run())


def test_fetches_expire_in_the_order_of_their_deadlines(waits: Waits) -> None:
    async def run() -> None:
        for name, patience_ms in (("slow", 80), ("quick", 5), ("middle", 30), ("other", 30)):
            waits.fetch(name, patience_ms)
        await waits.until_answered(4)

    asyncio.run(run())
    assert [name for name, _ in waits.answers] == ["quick", "middle", "other", "slow"]
    assert {answer == LATE for _, answer in waits.answers} == {True}


def test_one_that_comes_after_the_timer_was_left_alone_has_its_time_too(waits: Waits) -> None:
    async def run(answers: int) -> None:
        waits.news = True
        waiting = waits.fetch("answered", 20)
        waits.change(waiting)
        waits.fetches.wake()
        waits.news = False
        waits.fetch("late", 40)
        await waits.until_answered(answers)

    asyncio.run(run(2))
    asyncio.run(run(4))  # in another event loop, as tests have it
    assert waits.answers == 2 * [("answered", NEWS), ("late", LATE)]


def test_a_closed_connection_gets_no_response(waits: Waits) -> None:
    async def run() -> None:
        waiting = waits.fetch("gone", 10)
        waits.change(waiting)
        waiting.cancel()
        waits.fetches.wake()
        waits.fetch("there", 20)
        await waits.until_answered(1)

    asyncio.run(run())
    assert waits.answers == [("there", LATE)]


def test_an_unexpected_error_ends_one_fetch_and_affects_no_other(
    waits: Waits, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        monkeypatch.setattr(waits, "read", lambda expired: 1 // 0)
        broken = waits.fetch("breaks")
        monkeypatch.undo()
        waits.news = True
        whole = waits.fetch("whole")
        waits.change(broken)
        waits.change(whole)
        waits.fetches.wake()

    asyncio.run(run())
    assert waits.answers == [("breaks", None), ("whole", NEWS)]
    assert "unexpected error in a waiting fetch" in caplog.text


def test_a_cancelled_task_leaves_nothing_that_is_watched(waits: Waits) -> None:
    async def run() -> None:
        request = FetchRequest(-1, 60_000, 1, 1, 0, 0, -1, [], [])
        session = FetchSession(0, False, request)
        waiting = waits.fetches.wait(session, waits.read, 60_000)
        task = asyncio.ensure_future(waiting)
        await asyncio.sleep(0)
        task.cancel()
        waits.change(waiting)
        waits.news = True
        waits.fetches.wake()  # before the task has heard of its end
        with pytest.raises(asyncio.CancelledError):
            await task
        assert session.waiting is None

    asyncio.run(run())
