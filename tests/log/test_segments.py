"""The segments of one log: look-ups by offset, and remembered positions."""

from headrace.log.log import Log
from tests.log.samples import NOW, append, batch, new_log


def three_segments() -> Log:
    log = new_log()
    for _ in range(3):
        append(log, batch(2))
        log.roll(NOW)
    return log


def test_an_offset_is_found_in_the_segment_that_holds_it() -> None:
    segments = three_segments().segments
    assert [segments.index_of(offset) for offset in range(-1, 8)] == [0, 0, 0, 1, 1, 2, 2, 3, 3]


def test_each_segment_knows_the_next_one() -> None:
    segments = three_segments().segments
    assert [segments.after(segment) for segment in segments] == [*segments[1:], None]


def test_positions_in_replaced_segments_are_forgotten() -> None:
    segments = three_segments().segments
    first, second, third, _ = segments
    for offset, segment in ((1, first), (3, second), (5, third)):
        segments.remember(offset, segment, 0)
    segments.exchange([first, second], first)
    assert list(segments.positions) == [5]
    assert segments[:2] == [first, third]
