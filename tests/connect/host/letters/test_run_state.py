"""The state of a run over dead letters: what is taken, what is kept, and how far it is."""

from pathlib import Path

import pytest

from headrace.connect.host.letters.run_state import (
    FoundLetter,
    LetterRunState,
    load,
    planned,
    ranges_of,
    within,
)
from headrace.connect.letter_orders import LetterOrder

START, END = {0: 10, 1: 0}, {0: 20, 1: 5}


def letters(*rows: tuple[int, int, bool], ids: tuple[str | None, ...] = ()) -> list[FoundLetter]:
    names = ids or tuple(f"{partition}-{offset}" for partition, offset, _ in rows)
    return [FoundLetter(*row, name) for row, name in zip(rows, names, strict=True)]


def plan(found: list[FoundLetter], limit: int | None = None) -> LetterRunState:
    return planned(LetterOrder("replay", "x", limit), START, END, found)


def test_letters_that_match_are_taken_and_others_are_kept() -> None:
    run = plan(letters((0, 12, True), (0, 13, True), (0, 15, False), (1, 1, True), (1, 4, False)))
    assert run.taken == {0: [(12, 13)], 1: [(1, 1)]}
    assert run.kept == {0: [(15, 15)], 1: [(4, 4)]}
    assert (run.total, run.end) == (3, END)


def test_a_limit_ends_the_run_after_the_last_letter_that_it_takes() -> None:
    found = letters((0, 12, False), (0, 13, True), (0, 15, False), (0, 16, True), (1, 1, True))
    run = plan(found, limit=1)
    assert run.taken == {0: [(13, 13)]}
    assert run.kept == {0: [(12, 12)]}
    assert run.end == {0: 14, 1: 0}
    assert plan(found, limit=9).end == END


def test_of_letters_with_one_id_only_the_first_is_taken() -> None:
    rows = ((0, 12, True), (0, 13, True), (0, 14, True), (0, 15, True), (0, 16, True))
    run = plan(letters(*rows, ids=("a", "b", "a", None, None)))
    assert run.taken == {0: [(12, 13), (15, 16)]}
    assert run.kept == {}


def test_chunks_cover_everything_once_and_an_unfinished_one_stays(tmp_path: Path) -> None:
    run = plan(letters((0, 12, True), (0, 17, True), (1, 1, True)))
    seen = []
    while (chunk := run.next_chunk(6)) is not None:
        run.chunk = chunk
        run.save(tmp_path / "a" / "run.json")
        again = load(tmp_path / "a" / "run.json")
        assert again == run
        assert again.next_chunk(2) == chunk
        seen.append((run.number, chunk))
        run.chunk_ended()
    assert seen == [(0, {0: 16, 1: 0}), (1, {0: 20, 1: 2}), (2, {0: 20, 1: 5})]
    assert run.done == run.total == 3


def test_progress_counts_the_letters_before_the_position() -> None:
    run = plan(letters((0, 12, True), (0, 17, True), (1, 1, True)))
    run.position = {0: 13, 1: 0}
    assert (run.done, run.total) == (1, 3)


def test_without_a_state_there_is_no_run(tmp_path: Path) -> None:
    assert load(tmp_path / "none.json") is None


@pytest.mark.parametrize(
    ("start", "stop", "found"),
    [(0, 100, [(1, 3), (7, 9)]), (2, 8, [(2, 3), (7, 7)]), (4, 7, []), (9, 9, [])],
)
def test_ranges_are_cut(start: int, stop: int, found: list[tuple[int, int]]) -> None:
    assert within(ranges_of([1, 2, 3, 7, 8, 9]), start, stop) == found
