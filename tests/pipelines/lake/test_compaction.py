"""Small files become large ones, beside queries that write, and no reader sees a difference."""

import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from headrace.pipelines.lake import compaction
from headrace.pipelines.lake import verify as proof
from headrace.pipelines.lake.compaction import CompactionFailed, Report, StoredFile, compact
from headrace.pipelines.lake.delta import DeltaLake
from headrace.pipelines.lake.iceberg import IcebergLake
from headrace.pipelines.sink.epoch import Epoch
from tests.pipelines.lake.lakes import SPARK_SCHEMA, Lake, rows
from tests.pipelines.lake.test_partitioning import Topic

TARGET = 1 << 20
EPOCHS, ROWS = 6, 10
KEYED = StructType([*SPARK_SCHEMA.fields, StructField("key", StringType())])


def silent(state: str, done: int, total: int) -> None:
    pass


def fill(lake: Lake, epochs: range = range(EPOCHS), partition_by: tuple[str, ...] = ()) -> None:
    """Two tasks an epoch; keys are such that files of partitions share their offsets."""
    for number in epochs:
        offsets = range(number * ROWS, (number + 1) * ROWS)
        keys = pa.array([(None, "", "a/b")[each % 3] for each in offsets], pa.string())
        batches = [rows(offsets, place).append_column("key", keys) for place in (0, 1)]
        lake.commit(Epoch("query-1", number), *batches, schema=KEYED, partition_by=partition_by)


def check(lake: Lake, epochs: int = EPOCHS) -> None:
    """Every record once, as `headrace lake verify` says it."""
    wanted = proof.Wanted("orders", complete=True, full=True)
    reports = proof.verify(lake.view(), wanted, Topic(epochs * ROWS), silent)
    assert [(each.rows, each.findings) for each in reports] == [(epochs * ROWS, [])] * 2


def version(lake: Lake) -> int:
    if isinstance(lake.table, DeltaLake):
        return lake.table.table().version()
    snapshot = lake.table.table().current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def read_at(lake: Lake, at: int) -> pa.Table:
    """A reader with time travel."""
    if isinstance(lake.table, DeltaLake):
        return DeltaTable(lake.table.uri, at).to_pyarrow_table()
    return lake.table.table().scan(snapshot_id=at).to_arrow()


def values(table: pa.Table) -> list[dict[str, object]]:
    return table.sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist()


@pytest.mark.parametrize("partition_by", [(), ("key",), ("topic", "partition")])
def test_small_files_become_one_in_each_partition_and_rows_stay(
    lake: Lake, partition_by: tuple[str, ...]
) -> None:
    fill(lake, partition_by=partition_by)
    before, at = values(lake.read()), version(lake)
    check(lake)
    report = compact(lake.table, TARGET, silent)
    check(lake)
    assert values(lake.read()) == before
    assert values(read_at(lake, at)) == before, "an older version can no longer be read"
    # Delta has no empty string as a partition value, but two files of one partition are one.
    partitions = {(): 1, ("key",): 2 if lake.kind == "delta" else 3}.get(partition_by, 2)
    assert len(lake.view().files) == report.files_added == partitions
    assert report.rows == 2 * EPOCHS * ROWS
    assert (report.commits, report.files_given_up, report.files_left_alone) == (1, 0, 0)


def test_a_second_compaction_has_nothing_to_do(lake: Lake) -> None:
    fill(lake)
    compact(lake.table, TARGET, silent)
    at = version(lake)
    assert compact(lake.table, TARGET, silent) == Report(files_before=1)
    assert version(lake) == at


def test_a_compacted_file_keeps_the_order_of_the_epochs(lake: Lake) -> None:
    fill(lake, range(3))
    compact(lake.table, TARGET, silent)
    fill(lake, range(3, 6))
    compact(lake.table, TARGET, silent)
    (file,) = lake.view().files
    read = file.read()
    first = read.filter(pa.compute.equal(read.column("partition"), 0))
    assert first.column("offset").to_pylist() == list(range(6 * ROWS))


def test_the_sink_goes_on_after_a_compaction_and_a_replayed_epoch_adds_nothing(lake: Lake) -> None:
    fill(lake)
    compact(lake.table, TARGET, silent)
    fill(lake, range(EPOCHS - 2, EPOCHS + 1))
    check(lake, EPOCHS + 1)


def test_a_query_that_commits_while_files_are_rewritten_loses_nothing(lake: Lake) -> None:
    fill(lake)
    done = threading.Event()

    def meanwhile(state: str, count: int, total: int) -> None:
        if not done.is_set():
            done.set()
            fill(lake, range(EPOCHS, EPOCHS + 2))

    report = compact(lake.table, TARGET, meanwhile)
    assert report.files_removed == 2 * EPOCHS
    check(lake, EPOCHS + 2)


def test_a_query_that_commits_at_the_same_moment_loses_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query commits between the compaction's last look at the table and its own commit."""
    fill(lake)
    between(lake, monkeypatch, lambda: fill(lake, range(EPOCHS, EPOCHS + 1)))
    report = compact(lake.table, TARGET, silent)
    assert report.commits == 1
    check(lake, EPOCHS + 1)


def test_of_two_compactions_at_once_one_replaces_the_files(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other sees it at its commit, even in the last moment, and leaves no file behind."""
    fill(lake)
    reports: list[Report] = []
    between(lake, monkeypatch, lambda: reports.append(compact(lake.table, TARGET, silent)))
    reports.append(compact(lake.table, TARGET, silent))
    check(lake)
    assert [each.commits for each in reports] == [1, 0]
    assert reports[1].files_given_up == 2 * EPOCHS
    compacted = [path for path in lake.data_files() if "/compacted/" in path]
    assert len(compacted) == 1


def between(lake: Lake, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Have something happen once, after the first look at the table in `replace`."""
    kind = type(lake.table)
    load, replace = kind.table, kind.replace
    # What is to happen, before and after `replace` has begun.
    waiting = [act]
    due: list[Callable[[], object]] = []

    def loading(self: object) -> object:
        table = load(self)  # type: ignore[arg-type]
        while due:
            due.pop()()
        return table

    def replacing(self: object, *words: object) -> None:
        due.extend(waiting)
        waiting.clear()
        replace(self, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(kind, "table", loading)
    monkeypatch.setattr(kind, "replace", replacing)


def test_compactions_beside_a_stream_of_epochs_lose_and_double_nothing(lake: Lake) -> None:
    fill(lake, range(1), partition_by=("topic", "key"))
    stream = threading.Thread(target=fill, args=(lake, range(1, 13), ("topic", "key")))
    stream.start()
    reports = []
    while stream.is_alive():
        reports.append(compact(lake.table, TARGET, silent))
        check_rows(lake)
    stream.join()
    reports.append(compact(lake.table, TARGET, silent))
    assert sum(each.commits for each in reports) > 0
    assert sum(each.files_given_up for each in reports) == 0
    check(lake, 13)


def check_rows(lake: Lake) -> None:
    """Whole epochs only, each once."""
    offsets = lake.offsets()
    assert offsets == sorted([*range(len(offsets) // 2)] * 2)


def test_an_overwrite_beside_a_compaction_leaves_only_its_own_rows(lake: Lake) -> None:
    fill(lake)
    sink = lake.sink(KEYED, overwrite=True)
    batch = rows([7]).append_column("key", pa.array(["x"]))
    written = sink.write(Epoch("query-2", 0), iter([batch]))
    stale = lake.table.table()
    compact(lake.table, TARGET, silent)
    with pytest.MonkeyPatch.context() as patch:
        kind = type(lake.table)
        # The sink looks twice before its commit: for the last epoch, and in the commit itself.
        looks, original = iter([stale, stale, stale]), kind.table
        patch.setattr(kind, "table", lambda self: next(looks, None) or original(self))
        sink.commit([written])
    assert lake.offsets() == [7]


def test_a_compaction_that_always_comes_second_gives_up_and_leaves_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake)
    files = lake.data_files()

    def refused(*words: object) -> None:
        raise compaction.CommitRefused

    monkeypatch.setattr(type(lake.table), "replace", refused)
    monkeypatch.setattr(compaction, "COMMIT_ATTEMPTS", 3)
    with pytest.raises(CompactionFailed, match="committed first 3 times"):
        compact(lake.table, TARGET, silent)
    assert lake.data_files() == files
    check(lake)


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_commit_that_went_through_although_it_was_reported_as_refused_keeps_its_files(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, attempts: int
) -> None:
    fill(lake)
    kind = type(lake.table)
    original = kind.replace

    def answer_is_lost(self: object, *words: object) -> None:
        original(self, *words)  # type: ignore[arg-type]
        raise compaction.CommitRefused

    monkeypatch.setattr(kind, "replace", answer_is_lost)
    monkeypatch.setattr(compaction, "COMMIT_ATTEMPTS", attempts)
    report = compact(lake.table, TARGET, silent)
    assert (report.commits, report.files_removed) == (1, 2 * EPOCHS)
    check(lake)


def test_a_failure_while_rewriting_leaves_no_file_and_changes_nothing(lake: Lake) -> None:
    fill(lake, partition_by=("topic", "partition"))
    files, at = lake.data_files(), version(lake)

    def fails(state: str, done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact(lake.table, TARGET, fails)
    assert (lake.data_files(), version(lake)) == (files, at)


def test_a_large_rewrite_is_committed_in_parts(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "COMMIT_BYTES", 1)
    fill(lake, partition_by=("topic", "partition"))
    assert compact(lake.table, TARGET, silent).commits == 2
    check(lake)


def test_a_column_that_was_added_later_is_null_in_the_older_rows(lake: Lake) -> None:
    lake.commit(Epoch("q", 0), rows([0]))
    wider = StructType([*SPARK_SCHEMA.fields, StructField("count", IntegerType())])
    batch = rows([1]).append_column("count", pa.array([5], pa.int32()))
    lake.commit(Epoch("q", 1), batch, schema=wider)
    compact(lake.table, TARGET, silent)
    assert lake.read().sort_by("offset").column("count").to_pylist() == [None, 5]


def test_files_whose_table_has_got_another_partitioning_are_given_up(tmp_path: Path) -> None:
    lake = Lake("iceberg", tmp_path)
    fill(lake)
    files = lake.data_files()

    def meanwhile(state: str, done: int, total: int) -> None:
        assert isinstance(lake.table, IcebergLake)
        if done == 0:
            with lake.table.table().update_spec() as spec:
                spec.add_identity("partition")

    report = compact(lake.table, TARGET, meanwhile)
    assert (report.commits, report.files_given_up) == (0, 2 * EPOCHS)
    assert lake.data_files() == files
    check(lake)


def test_files_of_other_writers_are_compacted_too(tmp_path: Path) -> None:
    table = pa.table({"key": ["a b", "c", "a b"], "offset": [1, 2, 3]})
    for _ in range(3):
        write_deltalake(str(tmp_path), table, partition_by=["key"], mode="append")
    report = compact(DeltaLake(str(tmp_path)), TARGET, silent)
    found = DeltaTable(str(tmp_path)).to_pyarrow_table()
    assert found.num_rows == 9
    # The path of "a b" has to be encoded in the log; such files are left alone.
    assert (report.files_removed, report.files_added, report.files_left_alone) == (3, 1, 3)


def test_rows_that_another_writer_has_deleted_stay_deleted(tmp_path: Path) -> None:
    lake = Lake("iceberg", tmp_path)
    fill(lake)
    assert isinstance(lake.table, IcebergLake)
    lake.table.table().delete("offset = 3")
    before = values(lake.read())
    compact(lake.table, TARGET, silent)
    assert values(lake.read()) == before


def test_files_are_joined_up_to_the_target_and_large_ones_stay() -> None:
    def file(path: str, size: int, *partition: object) -> StoredFile:
        return StoredFile(path, size, None, partition, lambda: ())

    files = [
        file("a", 40, 1), file("b", 40, 1), file("c", 40, 1), file("d", 80, 1), file("e", 10, 2),
        file("f", 40, 1),
    ]  # fmt: skip
    bins = compaction.plan(files, 100)
    assert [[each.path for each in one] for one in bins] == [["a", "b"], ["c", "f"]]
