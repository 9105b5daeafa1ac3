"""Joins by the state of a key: a stream with a table, or two tables.

Within an epoch rows are joined in the order of their times, and changes of a table come before rows
of a stream with the same time. Changes of a table keep the order of their offsets. Across epochs
the order is that of arrival.

Rows pass through Python and the state as JSON texts, whatever their types: Spark makes and parses
them, and Python only compares times.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import StructType

from headrace.connect.host.source_letters import JSON_OPTIONS
from headrace.sql.plans import DELETED, ROWOFFSET, TIME, StateJoin

LEFT_PREFIX, RIGHT_PREFIX = "l__", "r__"
RIGHT, LEFT = 0, 1
"""Sides; at the same time, the right one is first."""
_OUTPUT = "l string, r string, time bigint, deleted boolean"
_OUTER = {"INNER": "inner", "LEFT": "left", "FULL": "full"}


def state_join(join: StateJoin, views: Mapping[str, DataFrame]) -> DataFrame:
    """The joined rows (`StateJoin`)."""
    left, right = views[join.left.view], views[join.right.view]
    if not left.isStreaming:
        return _batch_join(join, left, right)
    changes = _changes(left.alias(join.left.view), join.left_key, LEFT)
    if not (join.left_is_stream and join.kind == "LEFT"):
        # Such a row of a stream is joined with nothing.
        changes = changes.where(F.col("key").isNotNull())
    of_right = _changes(right.alias(join.right.view), join.right_key, RIGHT)
    of_right = of_right.where(F.col("key").isNotNull())
    processor = StreamTableJoin(join.kind) if join.left_is_stream else TableTableJoin(join.kind)
    joined = (
        changes.unionByName(of_right)
        .groupBy("key")
        .transformWithState(processor, _OUTPUT, "Append", "None")
    )
    parsed = joined.select(
        F.from_json("l", _fields(left), JSON_OPTIONS).alias("l"),
        F.from_json("r", _fields(right), JSON_OPTIONS).alias("r"),
        F.timestamp_millis("time").alias(TIME),
        F.col("deleted").alias(DELETED),
    )
    return parsed.select(
        *(F.col("l")[name].alias(LEFT_PREFIX + name) for name in _fields(left).names),
        *(F.col("r")[name].alias(RIGHT_PREFIX + name) for name in _fields(right).names),
        *([] if join.left_is_stream else [DELETED]),
        TIME,
    )


def _fields(view: DataFrame) -> StructType:
    """The columns of a view that its joined rows have."""
    return StructType([each for each in view.schema.fields if each.name not in (TIME, DELETED)])


def _changes(view: DataFrame, key: str, side: int) -> DataFrame:
    """The rows of one side as Python gets them."""
    columns = [F.col("`" + name.replace("`", "``") + "`") for name in _fields(view).names]
    found = F.expr(key)
    return view.select(
        # One type of keys for all joins; null stays null.
        F.when(found.isNotNull(), F.to_json(F.struct(found.alias("k")), JSON_OPTIONS)).alias("key"),
        F.lit(side).alias("side"),
        F.unix_millis(TIME).alias("time"),
        (F.col(ROWOFFSET) if ROWOFFSET in view.columns else F.lit(0)).cast("bigint").alias("place"),
        (F.col(DELETED) if DELETED in view.columns else F.lit(False)).alias("deleted"),
        F.to_json(F.struct(*columns), JSON_OPTIONS).alias("row"),
    )


def _batch_join(join: StateJoin, left: DataFrame, right: DataFrame) -> DataFrame:
    """The join of what is there now; tables have one row for each key."""

    def prefixed(view: DataFrame, prefix: str, key: str) -> DataFrame:
        columns = [F.col(f"`{name}`").alias(prefix + name) for name in _fields(view).names]
        return view.select(*columns, F.col(TIME).alias(prefix + TIME), F.expr(key).alias(prefix))

    ones = prefixed(left.alias(join.left.view), LEFT_PREFIX, join.left_key)
    others = prefixed(right.alias(join.right.view), RIGHT_PREFIX, join.right_key)
    joined = ones.join(others, ones[LEFT_PREFIX] == others[RIGHT_PREFIX], _OUTER[join.kind])
    moment = F.greatest(F.col(LEFT_PREFIX + TIME), F.col(RIGHT_PREFIX + TIME)).alias(TIME)
    names = [LEFT_PREFIX + name for name in _fields(left).names]
    names += [RIGHT_PREFIX + name for name in _fields(right).names]
    deleted = [] if join.left_is_stream else [F.lit(False).alias(DELETED)]
    return joined.select(*(f"`{name}`" for name in names), *deleted, moment)


def in_order(rows: Iterable[Any], *, left_is_stream: bool) -> list[Any]:
    """The rows of a key by time.

    A change of a table is not before one with a smaller offset, whatever its time is: the last
    change by offset is the row that the table has.
    """
    found: list[tuple[int, int, int, Any]] = []
    for side in (RIGHT, LEFT):
        of_side = [each for each in rows if each.side == side]
        if side == LEFT and left_is_stream:
            found += [(each.time, side, number, each) for number, each in enumerate(of_side)]
            continue
        latest = 0
        for number, each in enumerate(sorted(of_side, key=lambda row: row.place)):
            latest = max(latest, each.time)
            found.append((latest, side, number, each))
    found.sort(key=lambda entry: entry[:3])
    return [entry[3] for entry in found]


class StreamTableJoin(StatefulProcessor):  # type: ignore[misc]
    """Rows of a stream look up the row of a table."""

    def __init__(self, kind: str) -> None:
        self._is_inner = kind == "INNER"

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("table", "row string")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        before = self._state.get()
        present = None if before is None else before[0]
        stored = present
        joined: list[Row] = []
        for each in in_order(list(rows), left_is_stream=True):
            if each.side == RIGHT:
                present = None if each.deleted else each.row
            elif present is not None or not self._is_inner:
                joined.append(Row(l=each.row, r=present, time=each.time, deleted=False))
        if present is None and stored is not None:
            self._state.clear()
        elif present != stored:
            self._state.update((present,))
        return iter(joined)

    def close(self) -> None:
        """Nothing is open."""


class TableTableJoin(StatefulProcessor):  # type: ignore[misc]
    """Changes of either table change the joined row, or delete it."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def init(self, handle: StatefulProcessorHandle) -> None:
        schema = "l string, l_time bigint, r string, r_time bigint"
        self._state = handle.getValueState("tables", schema)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        before = self._state.get()
        stored = (None, 0, None, 0) if before is None else tuple(before)
        left, left_time, right, right_time = stored
        joined: list[Row] = []
        for each in in_order(list(rows), left_is_stream=False):
            last, was_there = (left, right), self._is_joined(left, right)
            row = None if each.deleted else each.row
            if each.side == LEFT:
                left, left_time = row, each.time
            else:
                right, right_time = row, each.time
            moment = max(left_time, right_time)
            if self._is_joined(left, right):
                joined.append(Row(l=left, r=right, time=moment, deleted=False))
            elif was_there:
                # The row as it was has the key of the one that is deleted.
                joined.append(Row(l=last[0], r=last[1], time=moment, deleted=True))
        if left is None and right is None:
            if before is not None:
                self._state.clear()
        elif (left, left_time, right, right_time) != stored:
            self._state.update((left, left_time, right, right_time))
        return iter(joined)

    def _is_joined(self, left: str | None, right: str | None) -> bool:
        if self._kind == "INNER":
            return left is not None and right is not None
        return left is not None or (self._kind == "FULL" and right is not None)

    def close(self) -> None:
        """Nothing is open."""
