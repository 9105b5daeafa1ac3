"""The folders of rows."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.pipelines.lake.columns import ColumnsDiffer
from headrace.pipelines.lake.folders import FolderLayout, FolderRule, values_of

TIME = datetime(2026, 3, 29, 0, 59, 59, 999_999, tzinfo=UTC)
"""An hour before the clocks of Zurich go forward."""


def batch(**columns: Any) -> pa.RecordBatch:
    rows = len(next(iter(columns.values())))
    of_record = {
        "__headrace_topic": ["orders"] * rows,
        "__headrace_partition": [3] * rows,
        "__headrace_timestamp": [TIME] * rows,
    }
    return pa.RecordBatch.from_pydict({**columns, **of_record})


def folders(rule: FolderRule, rows: pa.RecordBatch) -> list[str]:
    found: list[str] = rule.of(rows).to_pylist()
    return found


def test_folders_are_those_of_topic_partition_and_fields() -> None:
    rows = batch(n=[1], city=["Bern"])
    assert folders(FolderRule(), rows) == [""]
    assert folders(FolderRule(by_topic=True), rows) == ["orders"]
    assert folders(FolderRule(by_topic=True, by_partition=True), rows) == ["orders/partition=3"]
    assert folders(FolderRule(fields=("city", "n")), rows) == ["city=Bern/n=1"]


def test_values_are_escaped_as_spark_reads_them() -> None:
    rows = batch(v=["a/b", "x=y", "100%", "", None, "ü é", ".."])
    found = folders(FolderRule(fields=("v",)), rows)
    null = "v=__HIVE_DEFAULT_PARTITION__"
    assert found == ["v=a%2Fb", "v=x%3Dy", "v=100%25", null, null, "v=ü é", "v=.."]
    assert [values_of(each)["v"] for each in found][:3] == ["a/b", "x=y", "100%"]
    assert values_of(null) == {"v": None}


def test_values_of_all_types_have_a_text() -> None:
    rows = batch(
        t=pa.array([datetime(2026, 1, 2, 3, 4, 5)], pa.timestamp("us")),
        d=[date(2026, 1, 2)],
        b=[True],
        n=[-5],
    )
    found = folders(FolderRule(fields=("t", "d", "b", "n")), rows)
    assert found == ["t=2026-01-02 03%3A04%3A05/d=2026-01-02/b=true/n=-5"]


@pytest.mark.parametrize(
    ("zone", "folder"),
    [("UTC", "day=2026-03-29/hour=00"), ("Europe/Zurich", "day=2026-03-29/hour=01"),
     ("America/New_York", "day=2026-03-28/hour=20")],
)  # fmt: skip
def test_times_are_those_of_the_zone(zone: str, folder: str) -> None:
    rule = FolderRule(time_format="'day'=YYYY-MM-dd/'hour'=HH", timezone=zone)
    assert folders(rule, batch(n=[1])) == [folder]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1774745999999], pa.int64()),
        pa.array([TIME], pa.timestamp("us", "UTC")),
        pa.array([TIME.replace(tzinfo=None)], pa.timestamp("ns")),
        pa.array(["2026-03-29T00:59:59.999999Z"]),
        pa.array(["2026-03-29T02:59:59.999999+02:00"]),
        pa.array([date(2026, 3, 29)]),
    ],
)
def test_the_time_may_be_in_a_field_of_several_types(column: pa.Array) -> None:
    rule = FolderRule(time_format="'day'=YYYY-MM-dd", time_field="at")
    assert folders(rule, batch(at=column)) == ["day=2026-03-29"]


def test_texts_that_are_no_times_are_in_the_folder_of_null() -> None:
    """They must not stop the connector."""
    rule = FolderRule(time_format="'day'=YYYY-MM-dd", time_field="at")
    texts = ["2026-03-29T00:59:59Z", "2026-03-28T23:00:00", "yesterday", None, "2026-03-29"]
    null = "day=__HIVE_DEFAULT_PARTITION__"
    found = folders(rule, batch(at=pa.array(texts)))
    assert found == ["day=2026-03-29", "day=2026-03-28", null, null, "day=2026-03-29"]


def test_times_are_rounded_down_to_the_duration() -> None:
    rule = FolderRule(time_format="HH-mm-ss", duration_ms=15 * 60_000)
    assert folders(rule, batch(n=[1])) == ["00-45-00"]
    before_1970 = pa.array([-1, None], pa.int64())
    by_field = FolderRule(time_format="'t'=YYYY-HH", time_field="at", duration_ms=3_600_000)
    found = folders(by_field, batch(at=before_1970))
    assert found == ["t=1969-23", "t=__HIVE_DEFAULT_PARTITION__"]


def test_what_is_in_the_path_is_not_in_the_file(tmp_path: Path) -> None:
    rows = batch(city=["a", "b", "a"], n=[1, 2, 3], partition=[3, 3, 3])
    rule = FolderRule(fields=("city",), by_topic=True)
    layout = FolderLayout(rows.schema, rule=rule)
    assert layout.file_schema.names == ["n", "partition"]
    found = {values: part.column("n").to_pylist() for values, part in layout.split(rows)}
    assert found == {("orders/city=a",): [1, 3], ("orders/city=b",): [2]}
    by_partition = FolderLayout(rows.schema, rule=FolderRule(by_partition=True))
    assert by_partition.file_schema.names == ["city", "n"]


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (FolderRule(fields=("absent",)), "'absent', which the DataFrame does not have"),
        (FolderRule(fields=("price",)), "cannot partition"),
        (FolderRule(time_format="'city'=YYYY"), "a column 'city', which is also the name"),
        (FolderRule(time_format="YYYY", time_field="absent"), "'absent', which the rows do not"),
    ],
)
def test_folders_that_the_rows_cannot_have_are_refused(rule: FolderRule, problem: str) -> None:
    with pytest.raises(ColumnsDiffer, match=problem):
        rule.check(batch(city=["a"], price=[1.5]).schema, "/lake")


def test_a_rule_is_the_same_after_json() -> None:
    rule = FolderRule(("a", "b"), "YYYY", "Europe/Zurich", "at", False, 5, False, True)
    assert FolderRule.from_json(rule.to_json()) == rule
