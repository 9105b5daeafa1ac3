"""The journal lists recently changed nodes, and stays small."""

import pytest

from headrace.cluster.zookeeper_journal import COMMITS, PATH_BYTES, load_journal, new_journal


def test_it_names_what_was_touched_since_a_commit() -> None:
    journal = new_journal().after(["/a"]).after(["/b", "/c", "/b"]).after([])
    assert journal.number == 3
    assert journal.since(0) == {"/a", "/b", "/c"}
    assert journal.since(1) == {"/b", "/c"}
    assert journal.since(2) == journal.since(3) == set()


def test_it_reports_that_it_does_not_reach_back_that_far() -> None:
    journal = new_journal()
    for number in range(COMMITS + 5):
        journal = journal.after([f"/{number}"])
    assert journal.since(4) is None
    assert journal.since(5) == {f"/{number}" for number in range(5, COMMITS + 5)}


def test_a_number_of_the_future_is_none_of_its_own() -> None:
    assert new_journal().after(["/a"]).since(2) is None


def test_another_journal_or_an_older_state_of_it_does_not_continue_one() -> None:
    journal = new_journal().after(["/a"])
    later = journal.after(["/b"])
    assert later.continues(journal)
    assert journal.continues(journal)
    assert not journal.continues(later)
    assert not new_journal().after(["/a"]).after(["/b"]).continues(journal)


@pytest.mark.parametrize("size", [PATH_BYTES - 10, PATH_BYTES, 10 * PATH_BYTES])
def test_many_paths_push_out_the_commits_before(size: int) -> None:
    paths = [f"/{number:09}" for number in range(size // 10)]
    journal = new_journal().after(["/a"]).after(paths)
    assert journal.since(1) == set(paths)
    assert (journal.since(0) is None) == (size >= PATH_BYTES)


def test_it_is_the_same_after_a_way_through_a_node() -> None:
    journal = new_journal().after(["/a/ä"]).after(["/b", "/c"])
    assert load_journal(journal.dump()) == journal
