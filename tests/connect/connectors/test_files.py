import datetime
import decimal
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.connect import OptionError, PermanentError, Source, SourceStream
from headrace.connect.connectors import tailing
from headrace.connect.connectors.files import Files, FileStreamSource
from headrace.connect.plugin import SourceOffset, SourcePartition


def rows_between(
    source: Source, partition: SourcePartition, start: SourceOffset | None, end: SourceOffset
) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for batch in source.read(partition, start, end):
        assert isinstance(batch, pa.RecordBatch)
        found += batch.to_pylist()
    return found


def drain(source: Source, limit: int = 1000) -> list[dict[str, object]]:
    """All rows of a new connector, in ranges of `limit`; every range is read twice."""
    rows: list[dict[str, object]] = []
    (stream,) = source.streams()
    for partition in stream.partitions:
        start = None
        while (end := source.latest(partition, start, limit)) != start:
            assert end is not None
            found = rows_between(source, partition, start, end)
            assert rows_between(source, partition, start, end) == found
            rows += found
            source.commit(partition, end)
            start = end
    return rows


def test_a_file_is_a_stream_of_lines_with_offsets_of_kafka_connect(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    source = FileStreamSource({"file": str(path), "topic": "t", "batch.size": "10"})
    partition = {"filename": str(path)}
    assert source.streams() == [SourceStream("t", "line string", [partition], value="line")]
    assert source.latest(partition, None, 10) is None
    path.write_text("a\nb\nc")
    end = source.latest(partition, None, 10)
    assert end is not None
    assert end["position"] == 4
    assert drain(source, 1) == [{"line": "a"}, {"line": "b"}]


def test_every_file_of_a_folder_with_the_pattern_is_read(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "c.csv", ".d.txt"):
        (tmp_path / name).write_text(f"{name}\n")
    (tmp_path / "e.txt").mkdir()
    source = Files({"folder": str(tmp_path), "topic": "t", "pattern": "*.txt"})
    source.check()
    assert drain(source) == [{"line": "a.txt"}, {"line": "b.txt"}]


@pytest.mark.parametrize("limit", [1, 2, 1000])
def test_csv_has_typed_columns(tmp_path: Path, limit: int) -> None:
    schema = "id bigint, name string, price decimal(10,2), day date, `at` timestamp_ntz"
    source = Files(
        {"folder": str(tmp_path), "topic": "t", "format": "csv", "schema": schema, "key": "id"}
    )
    source.check()
    assert source.streams()[0].key == ["id"]
    (tmp_path / "a.csv").write_text(
        "id,name,price,day,at\n"
        '1,"a, ""b""\nc",1.50,2026-01-02,2026-01-02 03:04:05.000006\n'
        '2,"",,,\n'
        "3,,2,2026-01-03,2026-01-03T00:00:00\n"
    )
    rows = drain(source, limit)
    assert rows == [
        {
            "id": 1,
            "name": 'a, "b"\nc',
            "price": decimal.Decimal("1.50"),
            "day": datetime.date(2026, 1, 2),
            "at": datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
        },
        {"id": 2, "name": "", "price": None, "day": None, "at": None},
        {
            "id": 3,
            "name": None,
            "price": decimal.Decimal("2.00"),
            "day": datetime.date(2026, 1, 3),
            "at": datetime.datetime(2026, 1, 3),
        },
    ]


def test_only_the_first_block_of_a_file_has_a_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailing, "BLOCK_BYTES", 8)
    source = Files(
        {"folder": str(tmp_path), "topic": "t", "format": "csv", "schema": "a int, b string"}
    )
    (tmp_path / "a.csv").write_text("a,b\n" + "".join(f"{n},x\n" for n in range(20)))
    assert [row["a"] for row in drain(source)] == list(range(20))


def test_csv_without_a_header_and_with_another_delimiter(tmp_path: Path) -> None:
    source = Files(
        {
            "folder": str(tmp_path),
            "topic": "t",
            "format": "csv",
            "schema": "a int, b string",
            "csv.header": "false",
            "csv.delimiter": ";",
        }
    )
    (tmp_path / "a.csv").write_text("1;x,y\n2;z\n")
    assert drain(source) == [{"a": 1, "b": "x,y"}, {"a": 2, "b": "z"}]


@pytest.mark.parametrize("limit", [1, 1000])
def test_json_lines_have_the_columns_of_the_schema_only(tmp_path: Path, limit: int) -> None:
    source = Files(
        {
            "folder": str(tmp_path),
            "topic": "t",
            "format": "jsonl",
            "schema": "id bigint, tags array<string>, inner struct<a:double>",
        }
    )
    (tmp_path / "a.jsonl").write_text(
        '{"id": 1, "tags": ["x"], "inner": {"a": 1.5}, "other": 1}\n{"id": 2}\n'
    )
    assert drain(source, limit) == [
        {"id": 1, "tags": ["x"], "inner": {"a": 1.5}},
        {"id": 2, "tags": None, "inner": None},
    ]


@pytest.mark.parametrize(("kind", "text"), [("csv", "id\nx\n"), ("jsonl", '{"id": "x"}\n')])
def test_a_file_of_another_schema_is_named(tmp_path: Path, kind: str, text: str) -> None:
    source = Files({"folder": str(tmp_path), "topic": "t", "format": kind, "schema": "id bigint"})
    (tmp_path / "bad").write_text(text)
    with pytest.raises(PermanentError, match="bad does not have the columns"):
        drain(source)


def test_files_are_moved_once_their_records_are_in_the_topic(tmp_path: Path) -> None:
    done, folder = tmp_path / "done", tmp_path / "in"
    done.mkdir()
    folder.mkdir()
    (folder / "a.txt").write_text("1\n2\n3")
    options = {"when.done": "move", "done.folder": str(done)}
    source = Files({"folder": str(folder), "topic": "t", **options})
    (partition,) = source.partitions()
    half = source.latest(partition, None, 2)
    assert half is not None
    source.commit(partition, half)
    assert (folder / "a.txt").exists(), "it has a line that was not read"
    assert drain(source, 2) == [{"line": "1"}, {"line": "2"}, {"line": "3"}]
    assert (done / "a.txt").read_text() == "1\n2\n3"
    assert source.partitions() == []
    source.commit(partition, half)  # again, as after a crash


def test_a_new_file_with_the_name_of_a_deleted_one_is_read(tmp_path: Path) -> None:
    source = Files({"folder": str(tmp_path), "topic": "t", "when.done": "delete"})
    path = tmp_path / "a.txt"
    path.write_text("1\n")
    (partition,) = source.partitions()
    first = source.latest(partition, None, 10)
    assert first is not None
    source.commit(partition, first)
    assert not path.exists()
    assert source.latest(partition, first, 10) == first
    path.write_text("2\n")
    later = time.time_ns() + 10**9  # clocks of file systems are coarse
    os.utime(path, ns=(later, later))
    second = source.latest(partition, first, 10)
    assert second is not None
    assert rows_between(source, partition, first, second) == [{"line": "2"}]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"format": "csv"}, "schema"),
        ({"format": "csv", "schema": "a nothing"}, "schema"),
        ({"format": "xml"}, "format"),
        ({"when.done": "move"}, "done.folder"),
        ({"folder": "/no/such/folder"}, "folder"),
        ({"key": "id"}, "key"),
    ],
)
def test_options_that_cannot_work_are_named(
    tmp_path: Path, options: dict[str, str], named: str
) -> None:
    with pytest.raises(OptionError) as raised:
        Files({"folder": str(tmp_path), "topic": "t", **options}).check()
    assert raised.value.option == named
