"""Statistics of Delta's files: never too narrow, whatever the values are."""

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import DeltaTable

from headrace.pipelines.lake.files import TableFolder
from headrace.pipelines.lake.partitioning import FileLayout
from headrace.pipelines.sink.epoch import Epoch
from tests.pipelines.lake.lakes import Lake, rows


def statistics(tmp_path: Path, table: pa.Table) -> dict[str, Any]:
    """Those of a file with these rows."""
    folder = TableFolder(pafs.LocalFileSystem(), str(tmp_path))
    layout = FileLayout(table.schema)
    done = folder.write(Epoch("q", 0), 0, iter(table.to_batches()), layout)
    (file,) = done.files
    found: dict[str, Any] = json.loads(file.statistics)
    return found


def test_bounds_and_nulls_of_plain_columns(tmp_path: Path) -> None:
    found = statistics(
        tmp_path,
        pa.table(
            {
                "number": pa.array([3, None, -1], pa.int64()),
                "text": ["b", "a", None],
                "day": pa.array([date(2024, 1, 2), None, date(1969, 1, 1)]),
                "price": pa.array([0.5, 2.5, None]),
                "total": pa.array([Decimal("1.50"), Decimal("-2.25"), None]),
                "flag": [True, None, None],
                "raw": pa.array([b"a", None, b"b"]),
                "none": pa.array([None, None, None], pa.int32()),
            }
        ),
    )
    assert found == {
        "numRecords": 3,
        "minValues": {
            "number": -1, "text": "a", "day": "1969-01-01", "price": 0.5, "total": -2.25,
        },
        "maxValues": {
            "number": 3, "text": "b", "day": "2024-01-02", "price": 2.5, "total": 1.5,
        },
        "nullCount": {
            "number": 1, "text": 1, "day": 1, "price": 1, "total": 1, "flag": 2, "raw": 1,
            "none": 3,
        },
    }  # fmt: skip


def test_times_are_rounded_outwards_to_milliseconds(tmp_path: Path) -> None:
    time = datetime(2024, 12, 31, 23, 59, 59, 999_999, UTC)
    table = pa.table(
        {
            "zoned": pa.array([time], pa.timestamp("us", "UTC")),
            "local": pa.array([time.replace(tzinfo=None)], pa.timestamp("us")),
        }
    )
    found = statistics(tmp_path, table)
    assert found["minValues"] == {
        "zoned": "2024-12-31T23:59:59.999Z",
        "local": "2024-12-31T23:59:59.999",
    }
    assert found["maxValues"] == {
        "zoned": "2025-01-01T00:00:00.000Z",
        "local": "2025-01-01T00:00:00.000",
    }


def test_long_strings_are_cut_below_and_above_their_values(tmp_path: Path) -> None:
    longest = "m" * 100
    found = statistics(tmp_path, pa.table({"text": [longest]}))
    low, high = found["minValues"]["text"], found["maxValues"]["text"]
    assert low < longest < high
    assert max(len(low), len(high)) <= 33
    last = "m" * 32 + "\U0010ffff" * 2
    assert "text" not in statistics(tmp_path, pa.table({"text": [last]}))["maxValues"]


def test_a_column_with_nan_has_no_bounds(tmp_path: Path) -> None:
    """A reader that takes NaN for the largest number would skip a file that it needs."""
    found = statistics(tmp_path, pa.table({"price": [1.0, math.nan], "other": [1.0, 2.0]}))
    assert found["maxValues"] == {"other": 2.0}
    assert found["nullCount"] == {"price": 0, "other": 0}


def test_nested_columns_are_passed_over_and_do_not_shift_others(tmp_path: Path) -> None:
    table = pa.table(
        {
            "a": [1, 2],
            "s": pa.array([{"x": 9, "y": {"z": 9}}, None]),
            "l": [[7], [8]],
            "m": pa.array([[("k", 5)], []], pa.map_(pa.string(), pa.int64())),
            "b": [3, 4],
        }
    )
    found = statistics(tmp_path, table)
    assert (found["minValues"], found["maxValues"]) == ({"a": 1, "b": 3}, {"a": 2, "b": 4})


def test_decimals_that_a_json_number_cannot_hold_have_no_bounds(tmp_path: Path) -> None:
    table = pa.table({"total": pa.array([Decimal("12345678901234567.89")])})
    assert statistics(tmp_path, table)["minValues"] == {}


def test_delta_rs_skips_files_by_them(tmp_path: Path) -> None:
    lake = Lake("delta", tmp_path)
    lake.commit(Epoch("q", 0), rows(range(10)))
    lake.commit(Epoch("q", 1), rows(range(10, 20)))
    table = DeltaTable(str(tmp_path / "orders"))
    found = table.to_pyarrow_dataset()
    wanted = pa.compute.field("offset") >= 10
    assert len(list(found.get_fragments(wanted))) == 1
    assert found.to_table(filter=wanted).num_rows == 10
