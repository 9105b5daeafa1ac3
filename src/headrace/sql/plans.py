"""Plans: what the driver needs to know of a SELECT, besides the streams and tables that it reads.

The planner (`language/planning.py`) makes them without Spark; the driver (`host/`) runs them. A
plan is sent as JSON.

Every input is a view with these columns: the columns of its source, the pseudo columns `ROWTIME`
(bigint, milliseconds), `ROWPARTITION` (int), `ROWOFFSET` (bigint), for windowed keys `WINDOWSTART`
and `WINDOWEND` (bigint, milliseconds), and `__time`, the time of the row as a timestamp, on which
the driver sets the watermark. A view of a table has `__deleted` (boolean) as well: the record is a
tombstone, and all columns but the keys are null.

Expressions that fail are null, as in ksqlDB, and end no query: the driver runs plans with
`spark.sql.ansi.enabled=false`. For the type TIME it sets `spark.sql.timeType.enabled=true`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from headrace.sql.sources import Window

TIME = "__time"
DELETED = "__deleted"
ROWTIME, ROWPARTITION, ROWOFFSET = "ROWTIME", "ROWPARTITION", "ROWOFFSET"
WINDOWSTART, WINDOWEND = "WINDOWSTART", "WINDOWEND"
PSEUDO_COLUMNS = (ROWTIME, ROWPARTITION, ROWOFFSET, WINDOWSTART, WINDOWEND)


class PlanKind(StrEnum):
    """How rows become rows."""

    STATELESS = "stateless"
    """Stream to stream, one by one."""
    CHANGES = "changes"
    """Table to table: each change of the input is a change of the output. The SQL has the column
    `__deleted`, which is true for rows that the WHERE clause refuses."""
    AGGREGATE = "aggregate"
    """Stream to table."""
    STREAM_JOIN = "stream-join"
    """Streams to stream: a join within a time range."""
    STATE_JOIN = "state-join"
    """Stream with table to stream, or table with table to table: the driver joins by state, and the
    SQL reads the joined rows."""


@dataclass(frozen=True, slots=True)
class Input:
    """A source under the name that the plan's SQL has for it."""

    source: str
    """Empty for the left input of a state join that is the view of an earlier one."""
    view: str


@dataclass(frozen=True, slots=True)
class StateJoin:
    """A join of two inputs by the state of a key.

    The driver makes the view `view`: of each joined row all columns of the left input with the
    prefix `l__` and of the right input with the prefix `r__` (pseudo columns too), and `__time`;
    for two tables also `__deleted`. If `left_is_stream`, rows of the left input look up the right
    one; otherwise changes of either side emit a row.
    """

    view: str
    left: Input
    right: Input
    left_key: str
    """Spark's SQL over the left view."""
    right_key: str
    kind: str
    """INNER, LEFT, or, for two tables, also FULL; RIGHT is written as LEFT by the planner."""
    left_is_stream: bool


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A SELECT as Spark runs it."""

    kind: PlanKind
    inputs: tuple[Input, ...]
    """Sources that are read, of state joins too."""
    sql: str
    """Spark's SQL over the views. Its columns are, in this order: `columns`; if there is a window,
    `WINDOWSTART` and `WINDOWEND` (unless a push query has them among `columns` already); if the
    result is a table, `__deleted` (of aggregates: HAVING does not hold any more); and `__time` (of
    aggregates: the latest time of the group's rows)."""
    columns: tuple[str, ...]
    """The names of the result's columns, without `__deleted` and `__time`."""
    keys: tuple[str, ...]
    """Those that are in the record's key. WINDOWSTART and WINDOWEND are not among them: keys of a
    plan with a window have the window's bounds as well."""
    makes_table: bool
    emit_final: bool = False
    """An aggregation emits a window once, when the watermark has passed its end."""
    window: Window | None = None
    """Of an aggregation; or of windowed keys of the input, which the result keeps."""
    watermark_ms: int | None = None
    """How late rows may be; None: no watermark."""
    joins: tuple[StateJoin, ...] = ()
    """In order: a later one may have the view of an earlier one as its left input."""
    limit: int | None = None


def plan_to_json(plan: QueryPlan) -> dict[str, Any]:
    return asdict(plan)


def plan_from_json(stored: Mapping[str, Any]) -> QueryPlan:
    window = stored["window"]
    return QueryPlan(
        **{
            **stored,
            "kind": PlanKind(stored["kind"]),
            "inputs": tuple(Input(**each) for each in stored["inputs"]),
            "columns": tuple(stored["columns"]),
            "keys": tuple(stored["keys"]),
            "window": None if window is None else Window(**window),
            "joins": tuple(
                StateJoin(
                    **{**each, "left": Input(**each["left"]), "right": Input(**each["right"])}
                )
                for each in stored["joins"]
            ),
        }
    )
