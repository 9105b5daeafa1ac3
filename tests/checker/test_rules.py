"""For each rule a history that breaks only this rule; correct histories are accepted."""

from pathlib import Path

import pytest

from tests.checker.history import (
    FINAL,
    Event,
    MalformedHistory,
    Op,
    Poll,
    Send,
    Type,
    What,
    read_lines,
    to_line,
)
from tests.checker.verdict import judge


class Story:
    """Writes a history as one would tell it: every operation completes before the next begins."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def event(self, process: str, kind: Type, f: What, *ops: Op) -> "Story":
        place = len(self.events)
        self.events.append(Event(place, place * 1000, process, kind, f, ops))
        return self

    def begin(self, process: str, f: What, *sends: Send) -> "Story":
        wanted = [Send(send.key, send.value) for send in sends]
        return self.event(process, "invoke", f, *wanted)

    def did(self, process: str, f: What, *ops: Op, end: Type = "ok") -> "Story":
        self.begin(process, f, *(op for op in ops if isinstance(op, Send)))
        return self.event(process, end, f, *ops)

    def read_at_the_end(self, **records: list[tuple[int, str]]) -> "Story":
        self.did(FINAL, "assign")
        return self.did(FINAL, "poll", Poll(records))

    def broken(self) -> set[int]:
        verdict = judge(self.events)
        assert not verdict.says_nothing, verdict
        return verdict.rules


def sent(*names: str) -> list[Send]:
    """`x0a`: a at offset 0 of key x."""
    return [Send(name[0], name[2:], int(name[1])) for name in names]


def got(**records: list[tuple[int, str]]) -> Poll:
    return Poll(records)


def test_a_correct_history_is_accepted() -> None:
    story = Story()
    story.did("p1", "send", *sent("x0a", "y0b"))
    story.did("p2", "txn", *sent("x1c", "y2d"))
    story.did("p3", "txn", Send("x", "e"), end="fail")
    story.did("p3", "assign").did("p3", "poll", got(x=[(0, "a"), (1, "c")]))
    story.did("p3", "txn", got(y=[(0, "b"), (2, "d")]), *sent("x5f"))
    story.begin("p4", "txn", Send("x", "g"), Send("y", "h"))
    story.event("p4", "info", "crash")
    story.did("p3", "poll", got(x=[(5, "f")]))
    story.did("p3", "assign").did("p3", "poll", got(x=[(0, "a")]))
    story.read_at_the_end(
        x=[(0, "a"), (1, "c"), (5, "f"), (7, "g")], y=[(0, "b"), (2, "d"), (4, "h")]
    )
    assert story.broken() == set()


def test_rule_1_two_values_at_one_offset() -> None:
    # Nobody was told where b went: it was read where a had been before.
    story = Story().did("p1", "send", *sent("x0a"))
    story.did("p2", "send", Send("x", "b"), end="info")
    story.did("p2", "assign").did("p2", "poll", got(x=[(0, "b")]))
    assert story.read_at_the_end(x=[(0, "a")]).broken() == {1}


def test_rule_2_one_value_at_two_offsets() -> None:
    story = Story().did("p1", "send", *sent("x0a"))
    assert story.read_at_the_end(x=[(0, "a"), (1, "a")]).broken() == {2}


def test_rule_3_a_value_that_was_not_written() -> None:
    story = Story().did("p1", "send", *sent("x0a"))
    assert story.read_at_the_end(x=[(0, "a"), (1, "b")]).broken() == {3}


@pytest.mark.parametrize("f", ["send", "txn"])
def test_rule_4_a_read_of_what_failed(f: What) -> None:
    story = Story().did("p1", "send", *sent("x0a")).did("p1", f, Send("x", "b"), end="fail")
    story.did("p2", "send", *sent("x2c"))
    assert story.read_at_the_end(x=[(0, "a"), (1, "b"), (2, "c")]).broken() == {4}


def test_rule_5_a_lost_write() -> None:
    story = Story().did("p1", "send", *sent("x0a", "x1b"))
    assert story.read_at_the_end(x=[(1, "b")]).broken() == {5}


@pytest.mark.parametrize("read_before", [False, True])
def test_rule_6_an_acknowledged_value_that_is_not_there_at_the_end(read_before: bool) -> None:
    story = Story().did("p1", "send", *sent("x0a", "x1b"))
    if read_before:
        story.did("p2", "assign").did("p2", "poll", got(x=[(0, "a"), (1, "b")]))
    assert story.read_at_the_end(x=[(0, "a")]).broken() == {6}


def test_rule_7_a_transaction_that_reads_itself() -> None:
    story = Story().did("p1", "assign")
    story.did("p1", "txn", *sent("x0a"), got(x=[(0, "a")]))
    assert story.read_at_the_end(x=[(0, "a")]).broken() == {7}


@pytest.mark.parametrize("records", [[(0, "a"), (2, "c")], [(1, "b"), (0, "a")], [(0, "a")] * 2])
def test_rule_8_a_skip_or_a_step_back_within_a_poll(records: list[tuple[int, str]]) -> None:
    story = Story().did("p1", "send", *sent("x0a", "x1b", "x2c"))
    story.did("p2", "assign").did("p2", "poll", got(x=records))
    assert story.read_at_the_end(x=[(0, "a"), (1, "b"), (2, "c")]).broken() == {8}


def test_rule_8_leaves_keys_aside_that_were_rebalanced() -> None:
    story = Story().did("p1", "send", *sent("x0a", "x1b", "x2c")).did("p2", "subscribe")
    moved = Poll({"x": [(1, "b"), (0, "a")]}, frozenset("x"))
    story.did("p2", "poll", moved)
    assert story.read_at_the_end(x=[(0, "a"), (1, "b"), (2, "c")]).broken() == set()


@pytest.mark.parametrize(("first", "second"), [((0, "a"), (2, "c")), ((1, "b"), (0, "a"))])
@pytest.mark.parametrize("end", ["ok", "fail"])
def test_rule_9_a_skip_or_a_step_back_between_polls(
    first: tuple[int, str], second: tuple[int, str], end: Type
) -> None:
    story = Story().did("p1", "send", *sent("x0a", "x1b", "x2c"))
    story.did("p2", "assign").did("p2", "poll", got(x=[first])).did("p2", "poll", got(y=[]))
    # The consumer moves on, whatever becomes of the transaction around it.
    story.did("p2", "txn", got(x=[second]), *sent("x3d"), end=end)
    rest = [(3, "d")] if end == "ok" else []
    assert story.read_at_the_end(x=[(0, "a"), (1, "b"), (2, "c"), *rest]).broken() == {9}


def test_rule_9_does_not_hold_under_subscribe() -> None:
    story = Story().did("p1", "send", *sent("x0a", "x1b")).did("p2", "subscribe")
    story.did("p2", "poll", got(x=[(1, "b")])).did("p2", "poll", got(x=[(0, "a")]))
    assert story.read_at_the_end(x=[(0, "a"), (1, "b")]).broken() == set()


@pytest.mark.parametrize("operations", [1, 2])
def test_rule_10_sends_that_go_back(operations: int) -> None:
    story, sends = Story(), sent("x1b", "x0a")
    if operations == 1:
        story.did("p1", "send", *sends)
    else:
        story.did("p1", "send", sends[0]).did("p1", "send", sends[1])
    assert story.read_at_the_end(x=[(0, "a"), (1, "b")]).broken() == {10}


def test_rule_11_two_transactions_that_read_each_other() -> None:
    story = Story().did("p1", "assign").did("p2", "assign")
    story.begin("p1", "txn", Send("x", "a")).begin("p2", "txn", Send("y", "b"))
    story.event("p1", "ok", "txn", *sent("x0a"), got(y=[(0, "b")]))
    story.event("p2", "ok", "txn", *sent("y0b"), got(x=[(0, "a")]))
    assert story.read_at_the_end(x=[(0, "a")], y=[(0, "b")]).broken() == {11}


def test_rule_11_a_read_of_what_is_written_later() -> None:
    story = Story().did("p1", "assign").did("p1", "poll", got(x=[(0, "a")]))
    story.did("p2", "send", *sent("x0a"))
    assert story.read_at_the_end(x=[(0, "a")]).broken() == {11}


def test_rule_11_a_cycle_through_a_third_and_real_time() -> None:
    # p1's transaction read c, which was written after somebody had read what p1 wrote.
    story = Story().did("p1", "assign").did("p2", "assign")
    story.begin("p1", "txn", Send("x", "a"))
    story.did("p2", "poll", got(x=[(0, "a")]))
    story.did("p3", "send", *sent("y0c"))
    story.event("p1", "ok", "txn", *sent("x0a"), got(y=[(0, "c")]))
    assert story.read_at_the_end(x=[(0, "a")], y=[(0, "c")]).broken() == {11}


def test_rule_12_a_torn_transaction() -> None:
    # Nobody was told that it is committed; whoever reads a half of it knows.
    story = Story().did("p2", "send", *sent("y0c")).did("p2", "send", *sent("y1d"))
    story.did("p1", "txn", Send("x", "a"), Send("y", "b"), end="info")
    assert story.read_at_the_end(x=[(0, "a")], y=[(0, "c"), (1, "d")]).broken() == {12}


# ------------------------------------------------------------------------------ runs that count


def test_a_run_in_which_half_of_the_operations_failed_is_inconclusive() -> None:
    story = Story().did("p1", "send", *sent("x0a")).did("p1", "send", Send("x", "b"), end="info")
    story.did("p2", "poll", got(x=[]))
    story.read_at_the_end(x=[(0, "a")])
    assert judge(story.events).says_nothing == ("only 1 of 2 operations were ok",)
    story.did("p1", "send", *sent("x1c")).read_at_the_end(x=[(0, "a"), (1, "c")])
    assert judge(story.events).clean


def test_a_run_whose_final_reads_did_not_finish_is_inconclusive() -> None:
    story = Story().did("p1", "send", *sent("x0a", "y0b")).did(FINAL, "assign")
    story.did(FINAL, "poll", got(x=[(0, "a")])).did(FINAL, "poll", got(y=[(0, "b")]), end="info")
    verdict = judge(story.events)
    assert verdict.says_nothing == ("the final read of y did not finish",)
    assert not verdict.clean


def test_a_run_whose_fault_had_no_effect_is_inconclusive() -> None:
    def verdict(*middle: tuple[str, Type]) -> tuple[str, ...]:
        story = Story().begin("p1", "send", *sent("x0a"))
        for process, kind in middle:
            story.event(process, kind, "crash")
        story.event("p1", "ok", "send", *sent("x0a"))
        story.read_at_the_end(x=[(0, "a")])
        return judge(story.events, ["broker"]).says_nothing

    assert verdict() == ("nothing struck broker",)
    assert verdict(("p2", "info")) == ("nothing struck broker",)
    assert verdict(("broker", "fail")) == ("the fault at 1 missed broker",)
    assert verdict(("broker", "info")) == ()


def test_a_run_without_operations_during_the_fault_is_inconclusive() -> None:
    story = Story().did("p1", "send", *sent("x0a")).event("broker", "info", "crash")
    story.read_at_the_end(x=[(0, "a")])
    wanted = ("nobody was at work when broker was struck",)
    assert judge(story.events, ["broker"]).says_nothing == wanted


# --------------------------------------------------------------------------------- the recorder


@pytest.mark.parametrize(
    "story",
    [
        Story().event("p1", "ok", "send", *sent("x0a")),
        Story().begin("p1", "send").begin("p1", "send"),
        Story().begin("p1", "send", *sent("x0a")).event("p1", "ok", "poll"),
        Story().begin("p1", "send", *sent("x0a")).event("p1", "ok", "send", *sent("x0b")),
        Story().did("p1", "send", *sent("x0a")).did("p1", "send", *sent("x1a")),
        Story().begin("p1", "send", *sent("x0a")).event("p1", "ok", "send", Send("x", "a")),
    ],
)
def test_a_history_that_no_run_can_have_recorded_is_refused(story: Story) -> None:
    with pytest.raises(MalformedHistory):
        judge(story.events)


def test_events_are_read_as_they_were_written_and_a_torn_line_is_left_out(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    ops: list[Op] = [Send("x", "a"), Send("x", "b", 7), Poll({"x": [(0, "a"), (7, "b")]})]
    second.write_bytes(to_line(30, "p2", "ok", "txn", ops) + b'{"t": 40, "pro')
    first.write_bytes(to_line(20, "p2", "invoke", "txn", ops[:1]))
    assert read_lines([second, first]) == [
        Event(0, 20, "p2", "invoke", "txn", (ops[0],)),
        Event(1, 30, "p2", "ok", "txn", tuple(ops)),
    ]
