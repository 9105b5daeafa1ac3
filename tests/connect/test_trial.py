"""The trial of a connector without Spark."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from headrace.connect import Option, RecordError, Sink, SinkTask, Source
from headrace.connect.plugin import SourceOffset, SourcePartition
from headrace.connect.trial import BrokenPromise, try_sink, try_source


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


class Kept(Sink):
    """Keeps values in a list; an epoch replaces what it wrote before."""

    once = True
    options = (Option("refuses", int, -1),)
    refuses: int

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        self.epochs: dict[int, list[Any]] = {}

    def open(self, task: SinkTask) -> None:
        self._epoch, self._rows = task.epoch, list[Any]()

    def write(self, batch: pa.RecordBatch) -> None:
        values = batch.column("value").to_pylist()
        bad = {row: "refused" for row, value in enumerate(values) if value["n"] == self.refuses}
        if bad:
            raise RecordError(bad)
        self._rows += values

    def close(self) -> None:
        self.epochs[self._epoch] = self._rows

    def stored(self) -> list[int]:
        return [row["n"] for rows in self.epochs.values() for row in rows]


class Doubling(Kept):
    """Promises what it does not do."""

    def close(self) -> None:
        self.epochs[len(self.epochs)] = self._rows


VALUES = [{"n": n} for n in range(5)]


def test_a_sink_gets_all_values_in_epochs() -> None:
    sink = Kept({})
    found = try_sink(sink, VALUES, "n bigint", epochs=2, stored=sink.stored)
    assert [(each.task.epoch, each.records) for each in found] == [(0, 3), (1, 2)]
    assert sink.stored() == [0, 1, 2, 3, 4]


def test_records_that_a_sink_refuses_are_told_and_the_others_written() -> None:
    sink = Kept({"refuses": "3"})
    (epoch,) = try_sink(sink, VALUES, "n bigint")
    assert epoch.refused == {3: "refused"}
    assert sink.stored() == [0, 1, 2, 4]


def test_a_sink_that_doubles_an_epoch_breaks_its_promise() -> None:
    sink = Doubling({})
    with pytest.raises(BrokenPromise, match="promises `once`"):
        try_sink(sink, VALUES, "n bigint", stored=sink.stored)


def test_a_sink_without_columns_needs_a_schema() -> None:
    with pytest.raises(BrokenPromise, match="pass a schema"):
        try_sink(Kept({}), VALUES)
