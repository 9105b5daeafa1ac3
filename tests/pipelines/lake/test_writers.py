"""Both kinds of table through the sink's own calls, as Spark makes them."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError
from pyiceberg.exceptions import CommitFailedException
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headrace.pipelines.lake.columns import ColumnsDiffer
from headrace.pipelines.lake.delta import DeltaLake
from headrace.pipelines.lake.files import epoch_of
from headrace.pipelines.lake.iceberg import IcebergLake
from headrace.pipelines.lake.ranges import Range
from headrace.pipelines.lake.writers import EpochCommit, EpochTaken
from headrace.pipelines.sink.epoch import Epoch
from headrace.types import TopicPartition
from tests.pipelines.lake.lakes import SPARK_SCHEMA, Lake, rows

FIRST, SECOND = Epoch("query-1", 0), Epoch("query-1", 1)
ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_an_epoch_is_one_commit_with_its_number_and_its_offsets(lake: Lake) -> None:
    lake.commit(FIRST, rows(range(5)), rows(range(10, 13), 1))
    lake.commit(SECOND, rows([5, 7]))
    assert lake.offsets() == [0, 1, 2, 3, 4, 5, 7, 10, 11, 12]
    assert [(commit.epoch, commit.ranges) for commit in lake.view().commits] == [
        (FIRST, {ORDERS_0: (Range(0, 4, 5),), ORDERS_1: (Range(10, 12, 3),)}),
        (SECOND, {ORDERS_0: (Range(5, 7, 2),)}),
    ]
    assert lake.table.last_epoch("query-1") == 1
    assert lake.table.last_epoch("query-2") is None


def test_values_come_back_as_they_were_written(lake: Lake) -> None:
    lake.commit(FIRST, rows([3]))
    (row,) = lake.read().to_pylist()
    assert (row["topic"], row["partition"], row["offset"]) == ("orders", 0, 3)
    assert row["value"] == b"value 3"
    assert row["timestamp"].timestamp() == 1_700_000_000.000003


def test_a_replayed_epoch_adds_nothing_and_leaves_no_file(lake: Lake) -> None:
    lake.commit(FIRST, rows(range(5)))
    lake.commit(SECOND, rows(range(5, 9)))
    files = lake.data_files()
    lake.commit(SECOND, rows(range(5, 9)))
    lake.commit(FIRST, rows(range(5)))
    assert lake.offsets() == list(range(9))
    assert lake.data_files() == files


def test_epochs_of_another_query_are_not_mistaken_for_replays(lake: Lake) -> None:
    lake.commit(FIRST, rows([0]))
    lake.commit(Epoch("query-2", 0), rows([1]))
    assert lake.offsets() == [0, 1]


def test_of_two_drivers_with_the_same_epoch_one_commits(lake: Lake) -> None:
    """The second one looked before the first committed, as a driver that was paused has."""
    sink = lake.sink()
    mine = sink.write(FIRST, iter([rows([0, 1])]))
    stale = lake.table.table()
    lake.commit(FIRST, rows([0, 1]))
    commit = EpochCommit(FIRST, mine.files, mine.ranges, sink._layout, overwrite=False)
    with pytest.MonkeyPatch.context() as patch:
        # Only the first look is stale; after the conflict it sees what is there.
        looks = iter([stale])
        original = type(lake.table).table
        patch.setattr(type(lake.table), "table", lambda self: next(looks, None) or original(self))
        with pytest.raises(EpochTaken):
            lake.table.append(commit)
    assert lake.offsets() == [0, 1]


def test_a_commit_that_went_through_although_it_was_reported_as_refused_keeps_its_files(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when an object store repeats a request whose answer was lost."""
    kind = type(lake.table)
    original = kind._commit
    failure = CommitFailedError if lake.kind == "delta" else CommitFailedException

    def answer_is_lost(self: object, *words: object) -> None:
        original(self, *words)  # type: ignore[arg-type]
        raise failure("the version is there already")

    monkeypatch.setattr(kind, "_commit", answer_is_lost)
    lake.commit(FIRST, rows([0, 1]), rows([0], 1))
    assert lake.offsets() == [0, 0, 1]


def test_drivers_of_two_queries_at_once_both_commit(lake: Lake) -> None:
    sink = lake.sink()
    other = Epoch("query-2", 0)
    mine = sink.write(other, iter([rows([7])]))
    stale = lake.table.table()
    lake.commit(FIRST, rows([0, 1]))
    with pytest.MonkeyPatch.context() as patch:
        looks = iter([stale])
        original = type(lake.table).table
        patch.setattr(type(lake.table), "table", lambda self: next(looks, None) or original(self))
        lake.table.append(
            EpochCommit(other, mine.files, mine.ranges, sink._layout, overwrite=False)
        )
    assert lake.offsets() == [0, 1, 7]


def test_files_of_failed_attempts_are_gone_after_the_commit(lake: Lake) -> None:
    sink = lake.sink()
    lost = sink.write(FIRST, iter([rows([0, 1])]))
    kept = sink.write(FIRST, iter([rows([0, 1])]))
    assert len(lake.data_files()) == 2
    sink.commit([kept])
    (gone,) = lost.files
    assert [name for name in lake.data_files() if name.endswith(gone.path)] == []
    assert lake.offsets() == [0, 1]


def test_a_replay_removes_what_was_left_when_the_driver_died_between_commit_and_sweep(
    lake: Lake,
) -> None:
    sink = lake.sink()
    sink.write(FIRST, iter([rows([0, 1])]))  # by a driver that was killed before its commit
    kept = sink.write(FIRST, iter([rows([0, 1])]))
    # And by one that was killed right after it.
    lake.table.append(EpochCommit(FIRST, kept.files, kept.ranges, sink._layout, overwrite=False))
    assert len(lake.data_files()) == 2
    lake.commit(FIRST, rows([0, 1]))
    (left,) = lake.data_files()
    assert left.endswith(kept.files[0].path)
    assert lake.offsets() == [0, 1]


def test_a_replay_leaves_files_that_the_tables_past_still_names(lake: Lake) -> None:
    lake.commit(FIRST, rows([0, 1]))
    past = lake.data_files()
    rewrite = lake.sink(overwrite=True)
    rewrite.commit([rewrite.write(Epoch("query-2", 0), iter([rows([0, 1])]))])
    lake.commit(FIRST, rows([0, 1]))
    assert past < lake.data_files()
    assert lake.offsets() == [0, 1]


def test_a_task_that_fails_leaves_no_file(lake: Lake) -> None:
    def torn() -> Iterator[pa.RecordBatch]:
        yield rows([0])
        raise RuntimeError("the executor lost its source")

    with pytest.raises(RuntimeError, match="lost its source"):
        lake.sink().write(FIRST, torn())
    assert lake.data_files() == set()


def test_an_abort_removes_the_epochs_files_but_never_committed_ones(lake: Lake) -> None:
    sink = lake.sink()
    written = sink.write(FIRST, iter([rows([0])]))
    sink.abort([written, None])
    assert lake.data_files() == set()
    committed = lake.commit(FIRST, rows([0]))
    # Spark aborts when a commit raises, even if it went through.
    sink.abort(committed)
    assert lake.offsets() == [0]


def test_an_epoch_without_rows_is_still_done(lake: Lake) -> None:
    lake.commit(FIRST, rows([]))
    assert lake.table.last_epoch("query-1") == 0
    assert lake.read().num_rows == 0
    assert lake.data_files() == set()


def test_a_new_column_is_added_and_old_rows_have_none_of_it(lake: Lake) -> None:
    lake.commit(FIRST, rows([0]))
    wider = StructType([*SPARK_SCHEMA.fields, StructField("country", StringType())])
    sink = lake.sink(wider)
    batch = rows([1]).append_column("country", pa.array(["CH"]))
    sink.commit([sink.write(SECOND, iter([batch]))])
    # And the old query, which knows nothing of the column, goes on.
    lake.commit(Epoch("query-1", 2), rows([2]))
    read = lake.read().sort_by("offset")
    assert read.column("offset").to_pylist() == [0, 1, 2]
    assert read.column("country").to_pylist() == [None, "CH", None]


def test_a_column_of_another_type_is_refused_before_any_row_is_written(lake: Lake) -> None:
    lake.commit(FIRST, rows([0]))
    changed = StructType([StructField("value", LongType())])
    with pytest.raises(ColumnsDiffer, match=r"'value' is binary in the table .* and int64"):
        lake.sink(changed)


def test_overwriting_replaces_all_rows_once(lake: Lake) -> None:
    lake.commit(FIRST, rows([0, 1]))
    sink = lake.sink(overwrite=True)
    sink.commit([sink.write(SECOND, iter([rows([7])]))])
    assert lake.offsets() == [7]


def test_rows_without_offsets_are_taken_but_leave_no_ranges(lake: Lake) -> None:
    sink = lake.sink(StructType([StructField("total", LongType())]))
    sink.commit([sink.write(FIRST, iter([pa.RecordBatch.from_pydict({"total": [1, 2]})]))])
    assert lake.read().column("total").to_pylist() == [1, 2]


def test_the_path_of_a_file_has_its_epoch(lake: Lake) -> None:
    lake.commit(Epoch("query-1", 12), rows([0]))
    assert [file.epoch for file in lake.view().files] == [Epoch("query-1", 12)]
    assert epoch_of("/lake/orders/part-00000-abc.parquet") is None


def test_a_sink_without_a_table_names_the_missing_option() -> None:
    with pytest.raises(ValueError, match=r'\.option\("path"'):
        DeltaLake.from_options({})
    with pytest.raises(ValueError, match="namespace"):
        IcebergLake.from_options({"table": "orders"})
