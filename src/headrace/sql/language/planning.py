"""Plans of SELECTs that run continuously: as streams, tables or push queries.

Pull queries are not planned here: the view store answers them (`views/`).
"""

from collections.abc import Callable
from dataclasses import dataclass

from headrace.sql.language.errors import SqlError
from headrace.sql.language.planner.aggregating import has_aggregates, plan_aggregate
from headrace.sql.language.planner.joining import plan_join
from headrace.sql.language.planner.planned import PlanRequest
from headrace.sql.language.planner.scope import relations_of
from headrace.sql.language.planner.single import plan_changes, plan_stateless
from headrace.sql.language.select import Select
from headrace.sql.plans import QueryPlan
from headrace.sql.sources import SqlSource


@dataclass(frozen=True, slots=True)
class PlanDefaults:
    """What statements do not say."""

    grace_ms: int = 10_000
    """How late rows may be for windows and joins."""
    known_sources: tuple[str, ...] = ()
    """Names of streams and tables, for suggestions in messages."""


def plan(
    select: Select,
    sources: Callable[[str], SqlSource | None],
    *,
    into_table: bool | None,
    defaults: PlanDefaults = PlanDefaults(),  # noqa: B008 - it is immutable
) -> QueryPlan:
    """The plan of a SELECT.

    `into_table` says what the statement makes of the result: a table or a stream; None: it is a
    push query. Raises SqlError for what cannot be done, with the way that works.
    """
    if select.only_pull is not None:
        raise SqlError(select.only_pull)
    assert select.first is not None, "only pull queries have other things in FROM"
    is_stored = into_table is not None
    if is_stored and select.limit is not None:
        raise SqlError("LIMIT is only for queries of their own: a stream or table has no end.")
    references = [select.first, *(join.source for join in select.joins)]
    relations = relations_of(references, sources, defaults.known_sources)
    request = PlanRequest(select, relations, is_stored, defaults.grace_ms)
    is_aggregate = bool(select.group_by) or has_aggregates(select)
    _check_clauses(select, is_aggregate)
    if is_aggregate:
        found = plan_aggregate(request)
    elif select.joins:
        found = plan_join(request)
    elif relations[0].source.is_table:
        found = plan_changes(request)
    else:
        found = plan_stateless(request)
    if into_table is not None and into_table != found.makes_table:
        raise _wrong_result(found.makes_table, is_aggregate)
    return found


def _check_clauses(select: Select, is_aggregate: bool) -> None:
    if not is_aggregate:
        if select.having is not None:
            raise SqlError("HAVING needs GROUP BY; conditions on rows are in WHERE.")
        if select.window is not None:
            raise SqlError("WINDOW needs GROUP BY.")
    elif select.partition_by is not None:
        raise SqlError("PARTITION BY is not possible with GROUP BY, whose columns are the key.")
    if select.emit == "FINAL" and select.window is None:
        raise SqlError("EMIT FINAL needs a WINDOW clause: a result is final when its window ends.")


def _wrong_result(makes_table: bool, is_aggregate: bool) -> SqlError:
    if not makes_table:
        return SqlError(
            "The result of the SELECT is a stream: use CREATE STREAM ... AS SELECT. A table needs"
            " GROUP BY, or a SELECT from tables."
        )
    hint = (
        "" if is_aggregate else " To read the changes of a table, create a stream over its topic."
    )
    return SqlError(f"The result of the SELECT is a table: use CREATE TABLE ... AS SELECT.{hint}")
