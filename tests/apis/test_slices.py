"""Long work runs in slices, one for each turn of the event loop."""

import asyncio
from itertools import pairwise

import pytest

from headrace.apis.slices import FIRST_SLICE_S, SLICE_S, Slices
from headrace.wire.steps import Steps


class Ticks:
    """A clock that moves on by a tenth of a millisecond whenever it is read."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 0.0001
        return self.seconds


def work(steps: int, done: list[str], name: str = "work") -> Steps[str]:
    for _ in range(steps):
        done.append(name)
        yield
    return name


def test_short_work_is_done_at_once() -> None:
    done: list[str] = []
    assert Slices(Ticks()).begin(work(3, done)) == "work"
    assert len(done) == 3


def test_no_more_is_done_in_a_slice_than_fits_into_it() -> None:
    done: list[str] = []

    async def run() -> list[int]:
        rest = Slices(Ticks()).begin(work(1000, done))
        assert not isinstance(rest, str)
        counts = [len(done)]
        task = asyncio.ensure_future(rest)
        while not task.done():
            await asyncio.sleep(0)
            counts.append(len(done))
        assert await task == "work"
        return counts

    counts = asyncio.run(run())
    assert counts[0] <= FIRST_SLICE_S / 0.0001 + 1
    assert max(b - a for a, b in pairwise(counts)) <= SLICE_S / 0.0001 + 1
    assert counts[-1] == 1000


def test_all_that_wait_share_one_slice_for_each_turn_of_the_loop() -> None:
    done: list[str] = []

    async def run() -> list[int]:
        slices = Slices(Ticks())
        tasks = [
            asyncio.ensure_future(slices.finish(work(200, done, str(number))))
            for number in range(10)
        ]
        counts = [0]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            counts.append(len(done))
        return counts

    counts = asyncio.run(run())
    assert max(b - a for a, b in pairwise(counts)) <= SLICE_S / 0.0001 + 1
    first = done[: 10 * int(SLICE_S / 0.0001)]
    assert set(first) == {str(number) for number in range(10)}, "they take turns"


def test_work_that_is_cancelled_ends_and_the_others_go_on() -> None:
    done: list[str] = []

    async def run() -> str:
        slices = Slices(Ticks())
        tasks = [
            asyncio.ensure_future(slices.finish(work(100, done, name))) for name in ("a", "b", "c")
        ]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        return await tasks[2]

    assert asyncio.run(run()) == "c"
    assert done.count("c") == 100
    assert done.count("a") + done.count("b") < 100
