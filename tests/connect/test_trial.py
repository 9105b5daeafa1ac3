"""The trial of a source without Spark."""

from collections.abc import Iterator, Mapping

import pytest

from headrace.connect import Option, Source
from headrace.connect.plugin import SourceOffset, SourcePartition
from headrace.connect.trial import BrokenPromise, try_source


class Counted(Source):
    """Counts upwards to 25."""

    options = (Option("lanes", int, 1),)
    lanes: int
    schema = "lane int, n bigint"

    def partitions(self) -> list[SourcePartition]:
        return [{"lane": lane} for lane in range(self.lanes)]

    def latest(
        self, partition: SourcePartition, start: SourceOffset | None, limit: int
    ) -> SourceOffset | None:
        return {"n": min(25, int((start or {"n": 0})["n"] or 0) + limit)}

    def read(
        self, partition: SourcePartition, start: SourceOffset | None, end: SourceOffset
    ) -> Iterator[Mapping[str, object]]:
        for n in range(int((start or {"n": 0})["n"] or 0), int(end["n"] or 0)):
            yield {"lane": partition["lane"], "n": n}


class Changing(Counted):
    """Returns other rows each time."""

    calls = 0

    def read(
        self, partition: SourcePartition, start: SourceOffset | None, end: SourceOffset
    ) -> Iterator[Mapping[str, object]]:
        Changing.calls += 1
        yield {"lane": 0, "n": Changing.calls}


class Untyped(Counted):
    """Returns a text in place of a number."""

    def read(
        self, partition: SourcePartition, start: SourceOffset | None, end: SourceOffset
    ) -> Iterator[Mapping[str, object]]:
        yield {"lane": "first", "n": 1}


def test_ranges_follow_each_other_until_nothing_is_new() -> None:
    found = list(try_source(Counted({"topic": "t", "lanes": "2"}), epochs=5, rows=10))
    assert [(each.partition["lane"], each.start, each.end) for each in found] == [
        (lane, {"n": start} if start else None, {"n": end})
        for start, end in ((0, 10), (10, 20), (20, 25))
        for lane in (0, 1)
    ]
    rows = [row["n"] for each in found if each.partition["lane"] == 1 for row in each.rows]
    assert rows == list(range(25))


def test_a_range_with_other_rows_the_second_time_is_refused() -> None:
    with pytest.raises(BrokenPromise, match=r"Changing\.read returned other rows when the range"):
        list(try_source(Changing({"topic": "t"})))


def test_a_row_that_does_not_fit_the_schema_is_refused() -> None:
    with pytest.raises(BrokenPromise, match="does not fit the schema 'lane int, n bigint'"):
        list(try_source(Untyped({"topic": "t"})))
