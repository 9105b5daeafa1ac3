"""Plain Parquet files: layout, commits that are interrupted, and what readers find."""

import json
import multiprocessing
import random
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headrace.pipelines.lake import parquet, stores
from headrace.pipelines.lake.columns import ColumnsDiffer
from headrace.pipelines.lake.folders import FolderRule
from headrace.pipelines.lake.parquet import ParquetLake
from headrace.pipelines.lake.writers import LakeSink
from headrace.pipelines.sink.epoch import Epoch
from tests.pipelines.lake import driver
from tests.pipelines.lake.driver import EPOCHS, ROWS, TASKS
from tests.pipelines.lake.dying import DyingFiles, Killed
from tests.pipelines.lake.lakes import PlainFiles, rows

FIRST, SECOND = Epoch("query-1", 0), Epoch("query-1", 1)
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([driver.__name__])


@pytest.fixture
def files(tmp_path: Path) -> PlainFiles:
    return PlainFiles(tmp_path)


def visible(files: PlainFiles) -> list[str]:
    """The files that readers find, as DuckDB and others do by their ending."""
    root = files.root
    return sorted(str(path.relative_to(root)) for path in root.rglob("*.parquet"))


def left_over(files: PlainFiles) -> list[str]:
    """Files of attempts, and temporary files."""
    ours = files.root / "_headrace"
    names = [path for path in ours.rglob("*") if path.is_file()]
    return [str(path) for path in names if path.suffix != ".json"]


def test_files_are_in_folders_with_names_of_their_epoch(files: PlainFiles) -> None:
    files.commit(FIRST, rows(range(5)), rows(range(10, 13), 1))
    files.commit(SECOND, rows([5, 7]))
    assert files.offsets() == [0, 1, 2, 3, 4, 5, 7, 10, 11, 12]
    assert {path.partition("/")[0] for path in visible(files)} == {"partition=0", "partition=1"}
    assert left_over(files) == []


def test_the_manifest_of_the_newest_epoch_stays(files: PlainFiles) -> None:
    files.commit(FIRST, rows(range(5)))
    files.commit(SECOND, rows([5]))
    (manifest,) = (files.root / "_headrace" / "epochs").rglob("*.json")
    found = json.loads(manifest.read_text())
    assert (found["query"], found["epoch"]) == ("query-1", 1)
    assert [each["rows"] for each in found["files"]] == [1]
    assert files.table.last_epoch("query-1") == 1
    assert files.table.last_epoch("query-2") is None


def test_a_replayed_epoch_adds_nothing(files: PlainFiles) -> None:
    files.commit(FIRST, rows(range(5)))
    files.commit(SECOND, rows(range(5, 9)))
    names = visible(files)
    files.commit(SECOND, rows(range(5, 9)))
    files.commit(FIRST, rows(range(5)))
    assert files.offsets() == list(range(9))
    assert visible(files) == names
    assert left_over(files) == []


def test_a_replay_with_other_tasks_adds_nothing(files: PlainFiles) -> None:
    """As after a change of tasks.max."""
    files.commit(FIRST, rows([0, 1]), rows([2, 3]))
    files.commit(FIRST, rows([0, 1, 2, 3]))
    assert files.offsets() == [0, 1, 2, 3]


@pytest.mark.parametrize("changes", range(14))
def test_a_driver_that_dies_at_any_step_of_a_commit_loses_and_repeats_nothing(
    files: PlainFiles, monkeypatch: pytest.MonkeyPatch, changes: int
) -> None:
    files.commit(FIRST, rows([0, 1], 0), rows([0], 1))
    sink = files.sink()
    written = [sink.write(SECOND, iter([rows([n], n)])) for n in (2, 3)]
    died = False
    with monkeypatch.context() as patch:
        patch.setattr(stores, "opened", DyingFiles(changes))
        try:
            sink.commit(written)
        except Killed:
            died = True
    whole = pq.ParquetFile
    assert all(whole(files.root / path).metadata.num_rows for path in visible(files))
    if died:
        files.commit(SECOND, rows([2], 2), rows([3], 3))
    assert files.offsets() == [0, 0, 1, 2, 3]
    # A temporary file of the manifest or of the columns may stay.
    assert len(left_over(files)) <= 1
    files.commit(Epoch("query-1", 2), rows([4]))
    assert files.offsets() == [0, 0, 1, 2, 3, 4]


def test_an_abort_leaves_the_files_of_a_decided_epoch(
    files: PlainFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark aborts an epoch whose commit failed; the manifest may have been written before."""
    sink = files.sink()
    written = [sink.write(FIRST, iter([rows([0, 1])]))]

    def fails(*_: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(parquet._Root, "_move", fails)
        with pytest.raises(OSError, match="full"):
            sink.commit(written)
    sink.abort(written)
    assert visible(files) == []
    files.commit(FIRST, rows([0, 1]))
    assert files.offsets() == [0, 1]


def test_a_file_that_was_not_renamed_is_never_removed(
    files: PlainFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a store says that a file is not there, and is wrong."""
    sink = files.sink()
    written = [sink.write(FIRST, iter([rows([0, 1])]))]
    with monkeypatch.context() as patch:
        patch.setattr(parquet._Root, "_move", lambda *_: None)
        with pytest.raises(OSError, match="1 files of epoch 0"):
            sink.commit(written)
    files.commit(FIRST, rows([0, 1]))
    assert files.offsets() == [0, 1]


def test_an_abort_removes_the_files_of_an_undecided_epoch(files: PlainFiles) -> None:
    sink = files.sink()
    written = [sink.write(FIRST, iter([rows([0, 1])]))]
    assert len(left_over(files)) == 1
    sink.abort(written)
    assert left_over(files) == []


def test_a_driver_that_is_killed_at_random_moments_loses_and_repeats_nothing(
    files: PlainFiles,
) -> None:
    chosen = random.Random(7)
    for kill_after_s in [*(chosen.uniform(0, 0.15) for _ in range(4)), None]:
        begins = PROCESSES.Event()
        process = PROCESSES.Process(
            target=driver.drive, args=("parquet", files.root.parent, begins)
        )
        process.start()
        assert begins.wait(60), "the driver does not begin"
        if kill_after_s is None:
            process.join(120)
            assert process.exitcode == 0
        else:
            time.sleep(kill_after_s)
        process.kill()
        process.join()
    wanted = [offset for offset in range(EPOCHS * ROWS) for _ in range(TASKS)]
    assert files.offsets() == wanted


def test_a_file_has_at_most_so_many_rows(tmp_path: Path) -> None:
    files = ParquetLake(str(tmp_path), file_rows=4)
    sink = LakeSink(files, StructType([StructField("n", LongType())]), False)
    batches = [pa.RecordBatch.from_pydict({"n": list(range(at, at + 5))}) for at in (0, 5, 10)]
    sink.commit([sink.write(FIRST, iter(batches))])
    found = [pq.read_table(path).column("n").to_pylist() for path in sorted(tmp_path.glob("*.p*"))]
    assert [len(each) for each in found] == [4, 4, 4, 3]
    assert [n for each in found for n in each] == list(range(15))


def test_new_columns_are_added_and_other_types_are_refused(tmp_path: Path) -> None:
    files = ParquetLake(str(tmp_path))
    one, more = StructField("n", LongType()), StructField("city", StringType())

    def write(number: int, row: dict[str, object], *fields: StructField) -> None:
        sink = LakeSink(files, StructType(list(fields)), False)
        written = sink.write(Epoch("q", number), iter([pa.RecordBatch.from_pylist([row])]))
        sink.commit([written])

    write(0, {"n": 1}, one)
    write(1, {"n": 2, "city": "Bern"}, one, more)
    schema = pq.read_schema(tmp_path / "_common_metadata")
    assert schema.names == ["n", "city"]
    found = ds.dataset(tmp_path, schema=schema).to_table().to_pylist()
    assert sorted(found, key=lambda row: row["n"]) == [
        {"n": 1, "city": None},
        {"n": 2, "city": "Bern"},
    ]
    write(2, {"n": 3}, one)
    with pytest.raises(ColumnsDiffer, match="'n' is int64 in the table"):
        write(3, {"n": "x"}, StructField("n", StringType()))
    assert pq.read_schema(tmp_path / "_common_metadata").names == ["n", "city"]
    assert ds.dataset(tmp_path, schema=schema).count_rows() == 3


def test_json_lines_have_a_row_on_each_line(tmp_path: Path, files: PlainFiles) -> None:
    files.table = ParquetLake(str(tmp_path), FolderRule(fields=("partition",)), format="jsonl")
    files.commit(FIRST, rows([1, 2], 4))
    (path,) = tmp_path.glob("partition=4/*.json")
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["offset"] for row in found] == [1, 2]
    assert found[0]["value"] == "dmFsdWUgMQ=="
    assert "partition" not in found[0]
    assert not list(tmp_path.rglob("_common_metadata"))
