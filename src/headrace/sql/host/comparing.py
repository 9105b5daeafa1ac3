"""Compares two streams or tables row by row, each up to given offsets of its topic.

Rows of tables are compared by key: those that only one table has, and those whose columns differ.
Streams have no keys that tell rows apart: equal rows are counted on both sides.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType, StructType

from headrace.sql.host.json_values import json_rows
from headrace.sql.host.refusals import refusals
from headrace.sql.host.settings import SqlDriverSettings
from headrace.sql.host.views import batch_views
from headrace.sql.hosting import ComparedTopic, QueryRefused
from headrace.sql.plans import WINDOWEND, WINDOWSTART
from headrace.sql.sources import ColumnRole, SqlSource

EXAMPLES = 20
"""How many rows of each kind a report shows."""
_LEFT, _RIGHT = "__left", "__right"


def comparison(
    spark: SparkSession,
    settings: SqlDriverSettings,
    left: ComparedTopic,
    right: ComparedTopic,
    ignore: Sequence[str],
    tolerance: Mapping[str, float],
) -> dict[str, object]:
    """Counts, differences by column, and examples; QueryRefused if the two cannot be compared."""
    columns = _Columns(left.source, right.source, ignore, tolerance)
    with refusals():
        rows = [
            batch_views(spark, settings, {each.source.topic: each.ends})(each.source, "compared")
            for each in (left, right)
        ]
        if left.source.is_table:
            found = _tables(rows[0], rows[1], columns)
        else:
            found = _streams(rows[0], rows[1], columns)
    return {**found, "notCompared": columns.only_one_has}


class _Columns:
    """The columns that are compared, with the names that both sides have for them."""

    def __init__(
        self,
        left: SqlSource,
        right: SqlSource,
        ignore: Sequence[str],
        tolerance: Mapping[str, float],
    ) -> None:
        if left.is_table != right.is_table:
            raise QueryRefused("a stream and a table cannot be compared")
        ignored = {each.casefold() for each in ignore}
        self.keys = _names(left, ColumnRole.KEY, right)
        if left.is_table and (
            len(self.keys) != len(left.keys) or len(self.keys) != len(right.keys)
        ):
            raise QueryRefused(f"the keys of {left.name} and {right.name} are not the same")
        if (left.window is None) != (right.window is None):
            raise QueryRefused(f"only one of {left.name} and {right.name} has windowed keys")
        self.windows = () if left.window is None else (WINDOWSTART, WINDOWEND)
        both = _names(left, ColumnRole.VALUE, right)
        self.values = {
            name: other for name, other in both.items() if name.casefold() not in ignored
        }
        known = {each.casefold() for each in both}
        self.only_one_has = [
            each.name
            for source in (left, right)
            for each in source.values
            if each.name.casefold() not in known | ignored
        ]
        self.tolerance = {name.casefold(): allowed for name, allowed in tolerance.items()}
        unknown = sorted(set(self.tolerance) - {each.casefold() for each in self.values})
        if unknown:
            raise QueryRefused(
                f"there is no column {', '.join(unknown)} to tolerate differences of"
            )
        if self.tolerance and not left.is_table:
            raise QueryRefused("TOLERANCE is for tables: rows of streams are equal or they are not")


def _names(left: SqlSource, role: ColumnRole, right: SqlSource) -> dict[str, str]:
    others = {each.name.casefold(): each.name for each in right.of_role(role)}
    return {
        each.name: others[each.name.casefold()]
        for each in left.of_role(role)
        if each.name.casefold() in others
    }


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# ------------------------------------------------------------------------------------------ tables


def _tables(left: DataFrame, right: DataFrame, columns: _Columns) -> dict[str, object]:
    keys = {**columns.keys, **{name: name for name in columns.windows}}
    pair = _keyed(left, keys, columns.values, _LEFT).join(
        _keyed(right, {name: name for name in keys} | keys, columns.values, _RIGHT, other=True),
        [f"__key{number}" for number in range(len(keys))],
        "full_outer",
    )
    pair = pair.cache()
    try:
        return _table_report(pair, list(keys), columns)
    finally:
        pair.unpersist()


def _keyed(
    rows: DataFrame,
    keys: Mapping[str, str],
    values: Mapping[str, str],
    side: str,
    other: bool = False,
) -> DataFrame:
    """Keys as numbered columns, and all values of a side as one."""
    key_names = keys.values() if other else keys
    parts = [
        F.col(_quoted(theirs if other else name)).alias(name) for name, theirs in values.items()
    ]
    value = F.struct(*parts) if parts else F.struct(F.lit(True).alias("there"))
    numbered = [F.col(_quoted(name)).alias(f"__key{n}") for n, name in enumerate(key_names)]
    return rows.select(*numbered, value.alias(side))


def _table_report(pair: DataFrame, keys: Sequence[str], columns: _Columns) -> dict[str, object]:
    left, right = F.col(_LEFT), F.col(_RIGHT)
    both = left.isNotNull() & right.isNotNull()
    types = {each.name: each.dataType for each in _struct(pair, _LEFT).fields}
    equal = {
        name: _equal(left[name], right[name], columns.tolerance.get(name.casefold()))
        for name in columns.values
    }
    all_equal = F.lit(True)
    for each in equal.values():
        all_equal = all_equal & each
    numeric = [name for name in equal if isinstance(types[name], NumericType)]
    counts = {
        "leftRows": left.isNotNull(),
        "rightRows": right.isNotNull(),
        "onlyLeft": right.isNull(),
        "onlyRight": left.isNull(),
        "different": both & ~all_equal,
        **{f"column {name}": both & ~each for name, each in equal.items()},
    }
    largest = [
        F.max(F.when(both, F.abs(left[name].cast("double") - right[name].cast("double")))).alias(
            f"largest {name}"
        )
        for name in numeric
    ]
    (totals,) = pair.agg(
        *(F.coalesce(F.count_if(each), F.lit(0)).alias(name) for name, each in counts.items()),
        *largest,
    ).collect()
    by_column = [
        {
            "column": name,
            "different": totals[f"column {name}"],
            "largest": totals[f"largest {name}"] if name in numeric else None,
        }
        for name in equal
        if totals[f"column {name}"]
    ]
    found: dict[str, object] = {
        name: totals[name]
        for name in ("leftRows", "rightRows", "onlyLeft", "onlyRight", "different")
    }
    wanted = {
        "onlyLeft": (right.isNull(), (_LEFT,)),
        "onlyRight": (left.isNull(), (_RIGHT,)),
        "different": (both & ~all_equal, (_LEFT, _RIGHT)),
    }
    found["examples"] = {
        name: _examples(pair.where(condition), keys, sides)
        for name, (condition, sides) in wanted.items()
        if totals[name]
    }
    is_equal = not (totals["onlyLeft"] or totals["onlyRight"] or totals["different"])
    return {"equal": is_equal, **found, "columns": by_column}


def _equal(left: Column, right: Column, tolerance: float | None) -> Column:
    same = left.eqNullSafe(right)
    if tolerance is None:
        return same
    near = F.abs(left.cast("double") - right.cast("double")) <= F.lit(tolerance)
    return same | F.coalesce(near, F.lit(False))


def _struct(rows: DataFrame, name: str) -> StructType:
    kind = rows.schema[name].dataType
    assert isinstance(kind, StructType)
    return kind


def _examples(rows: DataFrame, keys: Sequence[str], sides: Sequence[str]) -> list[dict[str, Any]]:
    numbered = [f"__key{number}" for number in range(len(keys))]
    # In the order of keys, so that two reports of the same rows are the same.
    chosen = rows.orderBy(*numbered).limit(EXAMPLES).select(*numbered, *sides)
    found = []
    for row in json_rows(chosen.toArrow(), chosen.schema):
        example: dict[str, Any] = {"key": dict(zip(keys, row, strict=False))}
        for side, value in zip(sides, row[len(keys) :], strict=True):
            example[side.strip("_")] = value
        found.append(example)
    return found


# ----------------------------------------------------------------------------------------- streams


def _streams(left: DataFrame, right: DataFrame, columns: _Columns) -> dict[str, object]:
    names = {**columns.keys, **columns.values, **{name: name for name in columns.windows}}
    if not names:
        raise QueryRefused("the two streams have no columns in common")
    counts = []
    for rows, chosen, side in ((left, names.keys(), _LEFT), (right, names.values(), _RIGHT)):
        selected = rows.select(
            *(F.col(_quoted(name)).alias(f"c{number}") for number, name in enumerate(chosen))
        )
        counts.append(selected.withColumn("side", F.lit(side)))
    cells = [f"c{number}" for number in range(len(names))]
    # Maps cannot be grouped; their JSON can.
    row = F.to_json(F.struct(*cells), {"ignoreNullFields": "false"})
    grouped = (
        counts[0]
        .unionByName(counts[1])
        .withColumn("row", row)
        .groupBy("row")
        .agg(
            F.count_if(F.col("side") == _LEFT).alias("l"),
            F.count_if(F.col("side") == _RIGHT).alias("r"),
            *(F.any_value(each).alias(each) for each in cells),
        )
    ).cache()
    try:
        return _stream_report(grouped, list(names), cells)
    finally:
        grouped.unpersist()


def _stream_report(
    grouped: DataFrame, names: Sequence[str], cells: Sequence[str]
) -> dict[str, object]:
    more = {"onlyLeft": F.col("l") - F.col("r"), "onlyRight": F.col("r") - F.col("l")}
    zero = F.lit(0)
    (totals,) = grouped.agg(
        F.coalesce(F.sum("l"), zero).alias("leftRows"),
        F.coalesce(F.sum("r"), zero).alias("rightRows"),
        *(F.coalesce(F.sum(F.greatest(each, zero)), zero).alias(n) for n, each in more.items()),
    ).collect()
    found: dict[str, object] = {name: totals[name] for name in totals.asDict()}
    examples: dict[str, object] = {}
    for name, each in more.items():
        if totals[name]:
            chosen = grouped.where(each > 0).orderBy("row").limit(EXAMPLES)
            chosen = chosen.select(*cells, each.alias("times"))
            examples[name] = [
                {"row": dict(zip(names, row, strict=False)), "times": row[-1]}
                for row in json_rows(chosen.toArrow(), chosen.schema)
            ]
    is_equal = not (totals["onlyLeft"] or totals["onlyRight"])
    return {"equal": is_equal, **found, "different": 0, "examples": examples, "columns": []}
