"""Spark's functions over the rows of a group that views have, by their names in lower case."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from headrace.sql.records.types import ColumnType
from headrace.sql.views.spark_sql.scalar_functions import as_json
from headrace.sql.views.spark_sql.sqlite_functions import DECIMAL_COLLATION
from headrace.sql.views.spark_sql.typed import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    NotAnswerable,
    Typed,
    bounded,
    is_integer,
    number_sql,
)

Aggregate: TypeAlias = Callable[[Sequence[Typed], str, str], Typed]
"""Of the arguments, of `DISTINCT ` or nothing, and of ` FILTER (...)` or nothing."""


def _only(arguments: Sequence[Typed]) -> Typed:
    if len(arguments) != 1:
        raise NotAnswerable(f"an aggregate of {len(arguments)} arguments")
    return arguments[0]


def _count(arguments: Sequence[Typed], distinct: str, where: str) -> Typed:
    value = _only(arguments)
    return Typed(f"count({distinct}{value.sql}){where}", BIGINT)


def _count_if(arguments: Sequence[Typed], distinct: str, where: str) -> Typed:
    value = _only(arguments)
    if value.kind != BOOLEAN or distinct:
        raise NotAnswerable(f"count_if of {value.kind}")
    return Typed(f"count(CASE WHEN {value.sql} THEN 1 END){where}", BIGINT)


def _sum(arguments: Sequence[Typed], distinct: str, where: str) -> Typed:
    value = _only(arguments)
    if is_integer(value.kind):
        # SQLite fails if the sum is larger than 64 bits.
        return Typed(f"sum({distinct}{value.sql}){where}", BIGINT)
    if value.kind.kind == "decimal" and not distinct:
        kind = bounded(min(38, value.kind.precision + 10), value.kind.scale)
        sql = f"spark_decimal_sum({value.sql}, {kind.precision}, {kind.scale}){where}"
        return Typed(sql, kind)
    if value.kind != DOUBLE:
        raise NotAnswerable(f"sum of {value.kind}")
    return Typed(f"sum({distinct}{number_sql(value)}){where}", DOUBLE)


def _average(arguments: Sequence[Typed], distinct: str, where: str) -> Typed:
    value = _only(arguments)
    if value.kind.kind == "decimal" and not distinct:
        kind = bounded(value.kind.precision + 4, value.kind.scale + 4)
        sql = f"spark_decimal_average({value.sql}, {kind.precision}, {kind.scale}){where}"
        return Typed(sql, kind)
    if not is_integer(value.kind) and value.kind != DOUBLE:
        raise NotAnswerable(f"avg of {value.kind}")
    return Typed(f"avg({distinct}{number_sql(value)}){where}", DOUBLE)


def _extreme(name: str) -> Aggregate:
    def call(arguments: Sequence[Typed], distinct: str, where: str) -> Typed:
        value = _only(arguments)
        if value.kind.is_nested or value.kind.kind == "variant":
            raise NotAnswerable(f"{name} of {value.kind}")
        collation = f" COLLATE {DECIMAL_COLLATION}" if value.kind.kind == "decimal" else ""
        return Typed(f"{name}({value.sql}{collation}){where}", value.kind, is_stored=True)

    return call


def _both(name: str) -> Aggregate:
    """bool_and, bool_or."""

    def call(arguments: Sequence[Typed], distinct: str, where: str) -> Typed:
        value = _only(arguments)
        if value.kind != BOOLEAN:
            raise NotAnswerable(f"{name} of {value.kind}")
        return Typed(f"{name}({value.sql}){where}", BOOLEAN)

    return call


def _collect(name: str) -> Aggregate:
    def call(arguments: Sequence[Typed], distinct: str, where: str) -> Typed:
        value = _only(arguments)
        if distinct:
            raise NotAnswerable(f"{name}(DISTINCT)")
        # Null stays null: it is not collected.
        item = f"CASE WHEN {value.sql} IS NOT NULL THEN json_quote({as_json(value)}) END"
        return Typed(f"{name}({item}){where}", ColumnType("array", element=value.kind))

    return call


AGGREGATES: dict[str, Aggregate] = {
    "count": _count,
    "count_if": _count_if,
    "sum": _sum,
    "avg": _average,
    "mean": _average,
    "min": _extreme("min"),
    "max": _extreme("max"),
    "bool_and": _both("min"),
    "every": _both("min"),
    "bool_or": _both("max"),
    "some": _both("max"),
    "any": _both("max"),
    "collect_list": _collect("spark_collect_list"),
    "array_agg": _collect("spark_collect_list"),
    "collect_set": _collect("spark_collect_set"),
}
