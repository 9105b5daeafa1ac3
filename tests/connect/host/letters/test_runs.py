"""Runs over dead letters: interrupted, continued, refused and given up. Discards need no Spark."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.connect.host.letters.chunks import Chunks
from headrace.connect.host.letters.queue import LetterQueue
from headrace.connect.host.letters.run_state import LetterRunState, Offsets, load
from headrace.connect.host.letters.runs import LetterRuns
from headrace.connect.host.work import ConnectorWork
from headrace.connect.letter_orders import LetterOrder, LettersRefused
from headrace.connect.plugin import PermanentError

ALL = LetterOrder("discard")
SOME = LetterOrder("discard", "attempt > 1")
COUNT = 25_000


class StandInQueue:
    """Has letters in one partition, and remembers what is committed."""

    work = ConnectorWork("orders", "", {})

    def __init__(self) -> None:
        self.position = 0
        self.commits: list[int] = []
        self.fails_at = -1
        self.holds = threading.Event()
        self.holds.set()
        self.arrived = threading.Event()

    def plan(self, order: LetterOrder) -> LetterRunState:
        taken = {0: [(self.position, COUNT - 1)]}
        return LetterRunState(order, {0: self.position}, {0: COUNT}, taken, {}, {0: self.position})

    def commit(self, position: Offsets) -> None:
        self.arrived.set()
        self.holds.wait(60)
        if len(self.commits) == self.fails_at:
            raise PermanentError("the group is not authorized")
        self.position = position[0]
        self.commits.append(self.position)


@pytest.fixture(autouse=True)
def without_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Chunks, "forget", lambda _: None)


@pytest.fixture
def queue() -> StandInQueue:
    return StandInQueue()


@pytest.fixture
def path(tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: tmp_path / name / "dead-letters.json"


def started(runs: LetterRuns, queue: StandInQueue, order: LetterOrder) -> dict[str, Any]:
    return runs.start(cast(LetterQueue, queue), order)


def ended(runs: LetterRuns) -> dict[str, Any]:
    run = runs._runs["orders"]
    run.join(60)
    assert not run.is_alive()
    return run.report()


def runs_at(path: Callable[[str], Path]) -> LetterRuns:
    """The runs of a new driver."""
    return LetterRuns(path, lambda: None)


def test_a_run_moves_the_group_chunk_by_chunk(
    queue: StandInQueue, path: Callable[[str], Path]
) -> None:
    runs = runs_at(path)
    assert started(runs, queue, ALL)["total"] == COUNT
    report = ended(runs)
    assert (report["state"], report["done"], report["discarded"]) == ("finished", COUNT, COUNT)
    assert queue.commits == [10_000, 20_000, 25_000]


def test_a_run_that_fails_is_continued_by_the_same_order_only(
    queue: StandInQueue, path: Callable[[str], Path]
) -> None:
    queue.fails_at = 1
    runs = runs_at(path)
    started(runs, queue, ALL)
    report = ended(runs)
    assert (report["state"], report["error"]) == ("failed", "the group is not authorized")
    stored = load(path("orders"))
    assert stored is not None
    assert (stored.number, stored.chunk) == (1, {0: 20_000})
    queue.fails_at = -1
    again = runs_at(path)
    with pytest.raises(LettersRefused, match=r"interrupted.*: discard") as refused:
        started(again, queue, SOME)
    assert refused.value.status == 409
    started(again, queue, ALL)
    assert ended(again)["state"] == "finished"
    assert queue.commits == [10_000, 20_000, 25_000]
    continued = load(path("orders"))
    assert continued is not None
    assert (continued.run, continued.number) == (stored.run, 3)


def test_only_one_run_of_a_connector_is_under_way(
    queue: StandInQueue, path: Callable[[str], Path]
) -> None:
    queue.holds.clear()
    runs = runs_at(path)
    started(runs, queue, ALL)
    with pytest.raises(LettersRefused, match="under way"):
        started(runs, queue, SOME)
    assert started(runs, queue, ALL)["state"] == "running"
    queue.holds.set()
    assert ended(runs)["state"] == "finished"


@pytest.mark.parametrize("gives_up", [True, False])
def test_a_run_ends_after_its_chunk_and_can_be_given_up_or_continued(
    queue: StandInQueue, path: Callable[[str], Path], gives_up: bool
) -> None:
    queue.holds.clear()
    runs = runs_at(path)
    started(runs, queue, ALL)
    assert queue.arrived.wait(60)
    stopping = threading.Thread(target=runs.stop if gives_up else runs.leave, args=("orders",))
    stopping.start()
    while not runs._runs["orders"]._stopping.is_set():
        pass
    queue.holds.set()
    stopping.join(60)
    assert ended(runs)["state"] == "stopped"
    assert queue.commits == [10_000]
    other = runs_at(path)
    if gives_up:
        started(other, queue, SOME)
    else:
        with pytest.raises(LettersRefused, match="interrupted"):
            started(other, queue, SOME)
        started(other, queue, ALL)
    assert ended(other)["state"] == "finished"
    assert queue.commits[-1] == COUNT
