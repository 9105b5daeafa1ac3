"""Two topics compared, made equal, and queries that read up to some offsets; by the driver."""

import json
import struct
from collections.abc import Mapping
from typing import Any

import pytest

from headrace.sql.hosting import ComparedTopic, QueryRefused, RowCopy
from headrace.sql.sources import SqlSource, Window
from tests.sql.host.conftest import SqlUnderTest, column, key, source, stateless

pytestmark = pytest.mark.spark


def _ends(sql: SqlUnderTest, topic: str) -> dict[str, int]:
    """The ends of a topic without transactions."""
    found: dict[str, int] = {"0": 0, "1": 0}
    for each in sql.records(topic):
        found[str(each.partition)] = each.offset + 1
    return found


def _compare(
    sql: SqlUnderTest,
    left: SqlSource,
    right: SqlSource,
    ignore: tuple[str, ...] = (),
    tolerance: Mapping[str, float] | None = None,
) -> Any:
    pair = [ComparedTopic(each, _ends(sql, each.topic)) for each in (left, right)]
    return sql.call(sql.host.compare(pair[0], pair[1], ignore, tolerance))


def _filled(sql: SqlUnderTest, topic: str, rows: Mapping[Any, object]) -> str:
    sql.create(topic)
    for name, row in rows.items():
        sql.send(topic, row, name)
    sql.flush()
    return topic


def test_tables_are_compared_by_key_and_column(sql: SqlUnderTest, name: str) -> None:
    columns = (key("k"), column("n", "bigint"), column("x", "double"))
    left = source("l", _filled(sql, f"{name}_l", {
        "same": {"n": 1, "x": 1.5, "m": 0}, "near": {"n": 2, "x": 1.0}, "null": {"n": None},
        "gone": {"n": 9}, "left": {"n": 3}, "old": {"n": 0},
    }), *columns, column("m", "int"), is_table=True)  # fmt: skip
    right = source("r", _filled(sql, f"{name}_r", {
        "same": {"n": 1, "x": 1.5}, "near": {"n": 2, "x": 1.25}, "null": {"n": None},
        "right": {"n": 4}, "old": {"n": 1},
    }), *columns, is_table=True)  # fmt: skip
    sql.send(left.topic, None, "gone")
    sql.send(left.topic, {"n": 7, "x": -2.0}, "old")
    sql.flush()
    found = _compare(sql, left, right)
    assert not found["equal"]
    assert (found["leftRows"], found["rightRows"]) == (5, 5)
    assert (found["onlyLeft"], found["onlyRight"], found["different"]) == (1, 1, 2)
    assert found["notCompared"] == ["m"]
    differing = {each["column"]: (each["different"], each["largest"]) for each in found["columns"]}
    assert differing == {"n": (1, 6), "x": (2, 0.25)}
    examples = found["examples"]
    assert [each["key"] for each in examples["onlyLeft"]] == [{"k": "left"}]
    assert [each["key"] for each in examples["onlyRight"]] == [{"k": "right"}]
    assert examples["different"] == [
        {"key": {"k": "near"}, "left": {"n": 2, "x": 1.0}, "right": {"n": 2, "x": 1.25}},
        {"key": {"k": "old"}, "left": {"n": 7, "x": -2.0}, "right": {"n": 1, "x": None}},
    ]
    assert _compare(sql, left, right, tolerance={"X": 0.5})["different"] == 1
    assert _compare(sql, left, right, ("n", "x"))["different"] == 0
    for wrong, expected in (
        ({"ignore": ("x",), "tolerance": {"x": 1}}, "no column x"),
        ({"tolerance": {"y": 1}}, "no column y"),
    ):
        with pytest.raises(QueryRefused, match=expected):
            _compare(sql, left, right, **wrong)
    with pytest.raises(QueryRefused, match="a stream and a table"):
        _compare(sql, left, source("s", right.topic, *columns))


def test_rows_of_windows_are_compared_window_by_window(sql: SqlUnderTest, name: str) -> None:
    window = Window("TUMBLING", 1000)
    rows = {b"a" + struct.pack(">q", start): {"n": start} for start in (0, 1000)}
    columns = (key("k"), column("n", "bigint"))
    left = source("l", _filled(sql, f"{name}_l", rows), *columns, is_table=True, window=window)
    other = {**rows, b"a" + struct.pack(">q", 1000): {"n": 7}}
    right = source("r", _filled(sql, f"{name}_r", other), *columns, is_table=True, window=window)
    found = _compare(sql, left, right)
    (example,) = found["examples"]["different"]
    assert example["key"] == {"k": "a", "WINDOWSTART": 1000, "WINDOWEND": 2000}


def test_rows_of_streams_are_counted(sql: SqlUnderTest, name: str) -> None:
    columns = (key("k"), column("n", "bigint"), column("m", "map<string,int>"))
    topics = [sql.create(f"{name}_{side}") for side in "lr"]
    for topic, numbers in zip(topics, ((1, 1, 2, 3), (1, 2, 2, 3)), strict=True):
        for number in numbers:
            sql.send(topic, {"n": number, "m": {"a": number}}, "k")
    sql.flush()
    left, right = (source(topic, topic, *columns) for topic in topics)
    found = _compare(sql, left, right)
    assert (found["equal"], found["onlyLeft"], found["onlyRight"]) == (False, 1, 1)
    (example,) = found["examples"]["onlyLeft"]
    assert (example["row"]["n"], example["times"]) == (1, 1)
    assert _compare(sql, left, left)["equal"]
    with pytest.raises(QueryRefused, match="TOLERANCE is for tables"):
        _compare(sql, left, right, tolerance={"n": 1})


def test_a_topic_is_made_equal_to_another_once(sql: SqlUnderTest, name: str) -> None:
    origin = _filled(sql, f"{name}_l", {"same": {"n": 1}, "new": {"n": 2}, "other": {"n": 3}})
    target = _filled(sql, f"{name}_r", {"same": {"n": 1}, "other": {"n": 4}, "gone": {"n": 5}})
    before = len(sql.records(target))
    copy = RowCopy(
        f"{name}-copy", origin, _ends(sql, origin), target, _ends(sql, target), True, f"q-{name}", 7
    )
    sql.call(sql.host.copy(copy))
    assert sql.table(target) == sql.table(origin)
    changed = {each.key: each.json for each in sql.records(target)[:]}
    assert changed[b"gone"] is None
    assert len(sql.records(target)) == before + 3, "only differences are written"
    sql.call(sql.host.copy(copy))
    assert len(sql.records(target)) == before + 3, "a repeated write adds nothing"


def test_a_query_reads_up_to_its_end_and_goes_on_later(
    sql: SqlUnderTest, name: str, started: list[str]
) -> None:
    topic, out = sql.create(f"{name}_in", 1), sql.create(f"{name}_out", 1)
    for number in range(20):
        sql.send(topic, {"n": number})
    sql.flush()
    started.append(name)
    plan = stateless("SELECT n, __time FROM s", ["n"], "s")
    stream = source("s", topic, column("n", "bigint"))
    target = source("t", out, column("n", "bigint"))
    end = json.dumps({topic: {"0": 12}})
    spec = sql.start(name, plan, [stream], target, end=end)
    found = sql.wait(
        lambda: sql.call(sql.host.position(spec)),
        lambda position: position is not None and position.is_finished,
    )
    assert found is not None
    assert (found.offsets, found.is_quiet) == ({topic: {"0": 12}}, True)
    assert [each["n"] for each in sql.values(out)] == list(range(12))
    sql.start(name, plan, [stream], target)
    sql.wait(lambda: len(sql.values(out)), lambda count: count >= 20)
    assert [each["n"] for each in sql.values(out)] == list(range(20))
