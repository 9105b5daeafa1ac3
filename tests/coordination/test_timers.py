"""Timers: cheap to move, and exact."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.coordination.timers import Timers


def test_a_moved_deadline_comes_at_its_new_time() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 10)
    timers.set("a", 30)
    assert timers.due(20) == []
    assert timers.due(30) == ["a"]
    assert timers.due(99) == []


def test_a_deadline_may_move_forward_in_time() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 30)
    assert timers.set("a", 10)
    assert timers.next_ms() == 10
    assert timers.due(10) == ["a"]
    assert timers.due(30) == []


def test_a_cancelled_deadline_never_comes() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 10)
    timers.set("a", None)
    timers.set("b", None)
    assert timers.due(99) == []


def test_moving_a_deadline_a_million_times_needs_no_memory() -> None:
    timers: Timers[str] = Timers()
    for at_ms in range(1000, 10_000):
        timers.set("a", at_ms)
    assert len(timers._heap) == 1


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 50), st.integers(0, 10))))
def test_deadlines_come_as_a_plain_dictionary_would_have_them(
    steps: list[tuple[int, int | None, int]],
) -> None:
    timers: Timers[int] = Timers()
    model: dict[int, int] = {}
    now = 0
    for key, at_ms, passed in steps:
        timers.set(key, at_ms)
        model.pop(key, None)
        if at_ms is not None:
            model[key] = at_ms
        now += passed
        due = {known for known, at in model.items() if at <= now}
        assert set(timers.due(now)) == due
        for known in due:
            del model[known]
        assert len(timers) == len(model)
