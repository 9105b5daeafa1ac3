"""The number of open files is bounded, however many are used."""

import threading

from headrace.disk import OpenFiles


class Holder:
    def __init__(self) -> None:
        self.released = 0
        self.used = False

    def used_lately(self) -> bool:
        used, self.used = self.used, False
        return used

    def release(self) -> None:
        self.released += 1


def test_beyond_the_bound_the_one_that_was_opened_first_closes() -> None:
    files = OpenFiles(2)
    holders = [Holder() for _ in range(3)]
    for holder in holders:
        files.add(holder)
    assert [holder.released for holder in holders] == [1, 0, 0]
    assert files.count == 2


def test_who_was_used_lately_stays() -> None:
    files = OpenFiles(2)
    first, second, third = Holder(), Holder(), Holder()
    files.add(first)
    files.add(second)
    first.used = True
    files.add(third)
    assert (first.released, second.released, third.released) == (0, 1, 0)


def test_where_all_are_in_use_one_closes_all_the_same() -> None:
    files = OpenFiles(2)
    holders = [Holder() for _ in range(3)]
    for holder in holders:
        holder.used = True
        files.add(holder)
    assert sum(holder.released for holder in holders) == 1
    assert holders[2].released == 0


def test_all_files_of_a_holder_close_together() -> None:
    files = OpenFiles(3)
    many, other = Holder(), Holder()
    for _ in range(3):
        files.add(many)
    files.add(other)
    assert many.released == 1
    assert files.count == 1
    files.forget(other)
    assert files.count == 0


def test_another_thread_closes_nothing_under_the_owners_feet() -> None:
    files = OpenFiles(1)
    first, second = Holder(), Holder()
    files.add(first)
    worker = threading.Thread(target=files.add, args=(second,))
    worker.start()
    worker.join()
    assert (first.released, second.released, files.count) == (0, 0, 2)
    files.add(Holder())
    assert files.count == 1
