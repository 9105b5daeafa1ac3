"""What Spark's workers keep out of the collection that follows every task."""

import gc
from collections.abc import Iterator

import pytest

from headrace.pipelines import worker_memory
from headrace.pipelines.worker_memory import REUSED, modules_frozen_after


@pytest.fixture(autouse=True)
def _thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker_memory, "_frozen", False)
    yield
    gc.unfreeze()


def test_a_worker_that_is_reused_freezes_its_modules_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REUSED, "1")
    with modules_frozen_after():
        assert gc.get_freeze_count() == 0
    frozen = gc.get_freeze_count()
    assert frozen > 0
    later: list[list[int]] = [[] for _ in range(1000)]
    with modules_frozen_after():
        pass
    # Objects of later tasks are collected as before.
    assert gc.get_freeze_count() <= frozen
    assert len(later) == 1000


def test_a_task_that_fails_freezes_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REUSED, "1")
    with pytest.raises(ZeroDivisionError), modules_frozen_after():
        raise ZeroDivisionError
    assert gc.get_freeze_count() > 0


def test_other_processes_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REUSED, raising=False)
    with modules_frozen_after():
        pass
    assert gc.get_freeze_count() == 0
