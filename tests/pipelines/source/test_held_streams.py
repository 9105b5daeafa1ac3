"""A stream that a file holds: it obeys, acknowledges, and goes on when the file is gone or old."""

import time
from pathlib import Path

import pytest

from headrace.pipelines.running.checkpoints import read_position
from headrace.pipelines.running.holds import HeldProgram, NotAligned, align
from headrace.pipelines.source.held_streams import StreamHold
from headrace.pipelines.source.ranges import StreamOffset
from headrace.types import TopicPartition

AT = TopicPartition("orders", 0)
START, END = StreamOffset({AT: 5}, {"orders": "id"}), StreamOffset({AT: 20}, {"orders": "id"})
LATER = 4e9


def _checkpoint(root: Path, epoch: int, offset: int, ended: bool = True) -> None:
    folder = root / "totals"
    for each in ("offsets", "commits"):
        (folder / each).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text('{"id":"q"}')
    source = f'{{"orders": {{"0": {offset}, "id": "id", "initial": {{"0": 0}}}}}}'
    (folder / "offsets" / str(epoch)).write_text(f'v1\n{{"batchWatermarkMs":3}}\n{source}')
    if ended:
        (folder / "commits" / str(epoch)).write_text('v1\n{"nextBatchWatermarkMs":3}')


def test_a_stream_is_held_at_offsets_and_at_its_start(tmp_path: Path) -> None:
    program = HeldProgram(tmp_path)
    stream = StreamHold(str(tmp_path / "headrace-hold.json"))
    assert stream.end(START, END) == END
    program.hold(None, LATER)
    assert stream.end(START, END) == START
    program.hold({"orders": {"0": 12}}, LATER)
    assert stream.end(START, END).offsets == {AT: 12}
    program.hold({"orders": {"0": 12}}, time.time() - 1)
    assert stream.end(START, END) == END, "the process that held it has died"
    program.hold({"orders": {"0": 12}}, None)
    assert program.is_held
    assert stream.end(START, END).offsets == {AT: 12}
    program.release()
    assert stream.end(START, END) == END
    assert not HeldProgram(tmp_path).is_held


def test_a_hold_counts_when_all_streams_have_acknowledged_it(tmp_path: Path) -> None:
    _checkpoint(tmp_path, 3, 5)
    program = HeldProgram(tmp_path)
    stream = StreamHold(str(tmp_path / "headrace-hold.json"))
    program.hold(None, LATER)
    assert not program.has_acknowledged()
    stream.end(START, END)
    assert program.has_acknowledged()
    program.hold(None, LATER)
    assert not program.has_acknowledged(), "each hold is acknowledged by itself"
    stream.end(START, END)
    stream.close()
    assert not program.has_acknowledged()


def test_the_position_of_a_query_is_that_of_its_checkpoint(tmp_path: Path) -> None:
    assert read_position(tmp_path / "totals") is None
    _checkpoint(tmp_path, 9, 7)
    _checkpoint(tmp_path, 10, 12, ended=False)
    found = read_position(tmp_path / "totals")
    assert found is not None
    assert (found.query, found.epoch, found.offsets) == ("q", 10, {"orders": {"0": 12}})
    assert not found.is_finished
    _checkpoint(tmp_path, 10, 12)
    found = read_position(tmp_path / "totals")
    assert found is not None
    assert found.is_finished
    assert found.is_quiet


def test_programs_that_do_not_respond_are_left_as_they_were(tmp_path: Path) -> None:
    programs = [HeldProgram(tmp_path / name) for name in ("old", "new")]
    for each in programs:
        _checkpoint(each.root, 0, 5)
    programs[1].hold({"orders": {"0": 5}}, None)
    with pytest.raises(NotAligned, match="Is it running"):
        align(programs, 0.3)
    assert not (programs[0].root / "headrace-hold.json").exists()
    assert programs[1].is_held
    with pytest.raises(NotAligned, match="no checkpoints of queries"):
        align([HeldProgram(tmp_path)], 0.3)
