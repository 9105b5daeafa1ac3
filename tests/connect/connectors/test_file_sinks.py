from pathlib import Path

import pyarrow as pa
import pytest

from headrace.connect import OptionError, RecordError, SinkTask
from headrace.connect.connectors.file_sinks import FilesSink, FileStreamSink

TASK = SinkTask("c", 3, 12, 0)


def records(values: list[object], topics: list[str] | None = None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "topic": topics or ["t"] * len(values),
            "offset": range(len(values)),
            "value": pa.array(values),
        }
    )


def test_values_are_appended_as_lines(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("before\n")
    sink = FileStreamSink({"file": str(path)})
    sink.check()
    sink.open(TASK)
    sink.write(records(["a", None, "é"]))
    sink.write(records([{"n": 1}]))
    sink.write(records([b"bytes"]))
    sink.close()
    assert path.read_text() == 'before\na\nnull\né\n{"n": 1}\nbytes\n'


def test_a_file_appears_when_its_task_ends(tmp_path: Path) -> None:
    sink = FilesSink({"folder": str(tmp_path)})
    sink.check()
    sink.open(TASK)
    sink.write(records(["a"]))
    sink.write(records(["b", "c"], ["t", "u/../v"]))
    assert [path for path in tmp_path.rglob("*.txt") if not path.name.startswith(".")] == []
    sink.close()
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"t/c-0-000000012-00003.txt", "u_.._v/c-0-000000012-00003.txt"}
    assert (tmp_path / "t/c-0-000000012-00003.txt").read_text() == "a\nb\n"


def test_a_task_that_runs_again_replaces_its_file(tmp_path: Path) -> None:
    for attempt in range(3):
        sink = FilesSink({"folder": str(tmp_path), "format": "jsonl"})
        sink.open(TASK)
        sink.write(records([{"n": 1}, {"n": 2}]))
        sink.abandon() if attempt == 2 else sink.close()
    (only,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert only.read_text() == '{"n": 1}\n{"n": 2}\n'


def test_csv_has_one_header_and_json_for_nested_values(tmp_path: Path) -> None:
    sink = FilesSink({"folder": str(tmp_path), "format": "csv"})
    sink.open(TASK)
    for number in (1, 2):
        sink.write(records([{"n": number, "s": 'a,"b"', "in": {"x": [1]}, "none": None}]))
    sink.close()
    (only,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert only.read_text() == (
        '"n","s","in","none"\n1,"a,""b""","{""x"": [1]}",\n2,"a,""b""","{""x"": [1]}",\n'
    )


def test_csv_refuses_records_without_columns_by_their_row(tmp_path: Path) -> None:
    sink = FilesSink({"folder": str(tmp_path), "format": "csv"})
    sink.open(TASK)
    with pytest.raises(RecordError) as raised:
        sink.write(records([{"n": 1}, None, {"n": 2}], ["t", "t", "u"]))
    assert list(raised.value.rows) == [1]
    with pytest.raises(RecordError):
        sink.write(records(["a"]))
    sink.close()
    assert list(tmp_path.iterdir()) == []


def test_folders_that_do_not_exist_are_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="is not a folder"):
        FileStreamSink({"file": str(tmp_path / "no" / "file")}).check()
    with pytest.raises(OptionError, match="is not a folder"):
        FilesSink({"folder": str(tmp_path / "no")}).check()
