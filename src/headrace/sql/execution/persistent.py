"""CREATE STREAM|TABLE AS SELECT and INSERT INTO ... SELECT: statements that start a query.

Spark analyses the SELECT before anything is stored or created.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from headrace.sql.commands.records import (
    FUNCTION,
    SOURCE,
    PersistentQuery,
    ReplayPhase,
    StoredInsert,
    StoredSource,
    key_of,
    key_of_record,
)
from headrace.sql.errors import NOT_READY, StatementRefused
from headrace.sql.execution.creating import existing, now_ms, wanted_topic
from headrace.sql.execution.entities import Entity, done, with_warnings
from headrace.sql.execution.session import MAX_OFFSETS_PROPERTY, RESET, Session
from headrace.sql.execution.topics import ensure_topic, find_topics, start_offsets
from headrace.sql.hosting import (
    MAX_OFFSETS,
    START,
    Analysis,
    FunctionSpec,
    HostUnavailable,
    QueryRefused,
    QuerySpec,
)
from headrace.sql.language.declaring import derived_source
from headrace.sql.language.planning import PlanDefaults, plan
from headrace.sql.language.select import Select
from headrace.sql.language.statements import CreateAs, InsertSelect
from headrace.sql.plans import DELETED, TIME, PlanKind, QueryPlan
from headrace.sql.server import SqlServer
from headrace.sql.sources import SqlColumn, SqlSource, Window
from headrace.sql.type_names import quoted

START_PROPERTY = "start"
STARTS = ("earliest", "latest", "now")
QUERY_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class QueryIdentity(NamedTuple):
    """The id of a query, and the number of its checkpoint."""

    id: str
    generation: int


@dataclass(frozen=True, slots=True)
class Analysed:
    """A SELECT that Spark accepts."""

    plan: QueryPlan
    sources: tuple[SqlSource, ...]
    functions: tuple[FunctionSpec, ...]
    analysis: Analysis

    @property
    def needs(self) -> tuple[str, ...]:
        """Keys of the records that the statement needs."""
        sources = (key_of(SOURCE, each.name) for each in self.sources)
        return (*sources, *(key_of(FUNCTION, each.name) for each in self.functions))


async def analyse(server: SqlServer, select: Select, *, into_table: bool | None) -> Analysed:
    """The plan of a SELECT, and what Spark says of it; StatementRefused, SqlError."""
    made = make_plan(server, select, into_table=into_table)
    sources = plan_sources(server, made)
    functions = used_functions(server, made)
    try:
        analysis = await server.host.analyse(made, sources, functions)
    except QueryRefused as error:
        raise StatementRefused(str(error)) from None
    except HostUnavailable as error:
        raise StatementRefused(
            f"The statement cannot be checked yet: {error}. Nothing was stored; repeat it",
            NOT_READY,
        ) from None
    return Analysed(made, sources, functions, analysis)


def make_plan(server: SqlServer, select: Select, *, into_table: bool | None) -> QueryPlan:
    """The plan of a SELECT over the sources of the catalog; SqlError."""
    defaults = PlanDefaults(known_sources=tuple(each.name for each in server.catalog.sources()))
    return plan(select, server.catalog.definition, into_table=into_table, defaults=defaults)


def plan_sources(server: SqlServer, made: QueryPlan) -> tuple[SqlSource, ...]:
    """The sources that a plan reads, each once."""
    found: dict[str, SqlSource] = {}
    for each in made.inputs:
        source = server.catalog.definition(each.source)
        assert source is not None, f"the planner has found {each.source}"
        found[source.name] = source
    return tuple(found.values())


def used_functions(server: SqlServer, made: QueryPlan) -> tuple[FunctionSpec, ...]:
    """The functions of CREATE FUNCTION whose names are in the SQL of a plan."""
    words = {each.casefold() for each in re.findall(r"\w+", made.sql)}
    for join in made.joins:
        keys = f"{join.left_key} {join.right_key}"
        words |= {each.casefold() for each in re.findall(r"\w+", keys)}
    return tuple(
        each.function for each in server.catalog.functions() if each.name.casefold() in words
    )


# --------------------------------------------------------------------------------------- CREATE AS


async def create_as(server: SqlServer, statement: CreateAs, session: Session) -> Entity:
    what = "table" if statement.is_table else "stream"
    found = server.catalog.source(statement.name)
    if found is not None and not statement.or_replace:
        return existing(statement, found)
    analysed = await analyse(server, statement.select, into_table=statement.is_table)
    target = derived_target(server, statement, analysed, found.source if found else None)
    if found is not None:
        check_replaceable(server, found)
        check_same(found, target)
    stored = StoredSource(
        statement.name,
        statement.text,
        now_ms() if found is None else found.created,
        target,
        is_derived=True,
        settings=session.effective(),
        needs=analysed.needs,
    )
    warnings: list[str] = []
    if found is not None and found.query is not None:
        stored = await _replacement(server, statement, session, stored, found.query, analysed)
        message = f"Replaced query with ID {found.query.spec.id}"
    else:
        topic = await ensure_target(server, statement, target, analysed)
        if not topic:
            warnings.append(f"Topic {target.topic} exists already; the query appends to it")
        prefix = "CTAS" if target.is_table else "CSAS"
        query = await new_query_id(server, statement.properties, prefix, statement.name)
        spec = await _spec(server, query, target, analysed, statement.properties, session)
        stored = replace(stored, query=PersistentQuery(spec))
        message = f"Created query with ID {query.id}"
    assert stored.query is not None
    sequence = await server.change([stored])
    await server.runner.settle(key_of_record(stored))
    command = f"{what}/{statement.name}/create"
    answer = done(statement.text, command, message, sequence, stored.query.spec.id)
    return with_warnings(answer, warnings)


def derived_target(
    server: SqlServer, statement: CreateAs, analysed: Analysed, replaced: SqlSource | None = None
) -> SqlSource:
    """The stream or table of CREATE AS; its topic is that of the one that it replaces."""
    first = server.catalog.definition(analysed.plan.inputs[0].source)
    assert first is not None, "the planner has found it"
    types = [each.type for each in analysed.analysis.columns]
    found = derived_source(statement, analysed.plan, types, first)
    if statement.properties.get("kafka_topic"):
        return found
    if replaced is not None:
        return replace(found, topic=replaced.topic)
    return replace(found, topic=server.options.topic_prefix + statement.name)


def check_replaceable(server: SqlServer, found: StoredSource) -> None:
    """StatementRefused for a query that is compared with or switched to another version."""
    replay = server.catalog.replay_named(found.name)
    if replay is not None:
        raise StatementRefused(
            f"{found.name} is a replay of {replay.of}. DROP REPLAY {replay.name} and create it "
            "again"
        )
    check_not_merging(server, found.name)


def check_not_merging(server: SqlServer, name: str) -> None:
    """StatementRefused while SWITCH or ROLLBACK merges the rows of a stream or table."""
    wanted = name.casefold()
    for each in server.catalog.replays():
        is_busy = each.phase in (ReplayPhase.MERGING, ReplayPhase.RETURNING)
        if is_busy and wanted in (each.name.casefold(), each.of.casefold()):
            raise StatementRefused(
                f"The rows of {each.of} and its replay {each.name} are being merged. Wait until "
                f"DESCRIBE REPLAY {each.name} shows another phase"
            )


def check_same(found: StoredSource, target: SqlSource) -> None:
    """What OR REPLACE cannot change, because readers rely on it."""
    what = "table" if found.source.is_table else "stream"
    drop = f"DROP {what.upper()} {found.name} first"
    if not found.is_derived:
        raise StatementRefused(
            f"{found.name} is a {what} over topic {found.source.topic} without a query, which OR "
            f"REPLACE ... AS SELECT cannot change. {drop}"
        )
    if found.source.is_table != target.is_table:
        raise StatementRefused(f"{found.name} is a {what}, which OR REPLACE cannot change. {drop}")
    for part, before, after in (
        ("topic", found.source.topic, target.topic),
        ("key format", found.source.key_format, target.key_format),
        ("value format", found.source.value_format, target.value_format),
        ("key", _columns(found.source.keys), _columns(target.keys)),
    ):
        if before != after:
            raise StatementRefused(
                f"The {part} of {found.name} is {before}, which OR REPLACE cannot change to "
                f"{after}. {drop}, or give the new version a name of its own"
            )
    if _bounds(found.source.window) != _bounds(target.window):
        raise StatementRefused(
            f"The window of the keys of {found.name} cannot be changed. {drop}, or give the new "
            "version a name of its own"
        )


def _bounds(window: Window | None) -> tuple[str, int | None] | None:
    return None if window is None else (window.kind, window.size_ms)


def _columns(columns: Sequence[SqlColumn]) -> str:
    return ", ".join(f"{each.name} {each.type}" for each in columns)


async def _replacement(
    server: SqlServer,
    statement: CreateAs,
    session: Session,
    stored: StoredSource,
    before: PersistentQuery,
    analysed: Analysed,
) -> StoredSource:
    """The record of a query that replaces another one: with its checkpoint, or without."""
    old = before.spec
    if START_PROPERTY in statement.properties:
        query = QueryIdentity(old.id, old.generation + 1)
        spec = await _spec(server, query, stored.source, analysed, statement.properties, session)
    else:
        limits = read_limits(statement.properties, session)
        spec = QuerySpec(
            old.id,
            stored.source,
            analysed.plan,
            analysed.sources,
            old.generation,
            {START: old.properties.get(START, "earliest"), **limits},
            analysed.functions,
        )
        try:
            await server.host.check_replace(spec)
        except QueryRefused as error:
            what = "TABLE" if stored.source.is_table else "STREAM"
            raise StatementRefused(
                f"The new query cannot continue with the state of {old.id}: {error}. "
                f"The query was not changed. Begin again in place with CREATE OR REPLACE {what} "
                f"{stored.name} WITH (start='earliest') AS SELECT ..., or 'latest' or 'now'; or "
                f"run the new version beside it: CREATE REPLAY {stored.name}_v2 OF {stored.name} "
                "FROM EARLIEST AS SELECT ..., then COMPARE and SWITCH"
            ) from None
        except HostUnavailable as error:
            raise StatementRefused(
                f"The statement cannot be checked yet: {error}. Nothing was changed; repeat it",
                NOT_READY,
            ) from None
    return replace(stored, query=replace(before, spec=spec))


async def ensure_target(
    server: SqlServer, statement: CreateAs, target: SqlSource, analysed: Analysed
) -> bool:
    """Whether the topic was created; with as many partitions as the first input has."""
    first = analysed.sources[0].topic
    found = await find_topics(server.cluster, [first, target.topic])
    if first not in found:
        raise StatementRefused(f"Topic {first} of {analysed.sources[0].name} does not exist")
    partitions = None if target.topic in found else len(found[first].partitions)
    wanted = wanted_topic(server, target, statement.properties, partitions)
    return await ensure_topic(server.cluster, wanted, "TABLE" if target.is_table else "STREAM")


# ------------------------------------------------------------------------------------------ INSERT


async def insert_select(server: SqlServer, statement: InsertSelect, session: Session) -> Entity:
    target = writable(server, statement.target)
    if target.is_table:
        raise StatementRefused(
            f"{target.name} is a table, and INSERT INTO ... SELECT writes to streams only"
        )
    analysed = await analyse(server, statement.select, into_table=False)
    fitted = replace(analysed, plan=fit(analysed.plan, analysed.analysis, target))
    query = await new_query_id(server, statement.properties, "INSERTQUERY", None)
    spec = await _spec(server, query, target, fitted, statement.properties, session)
    stored = StoredInsert(
        query.id,
        statement.text,
        now_ms(),
        PersistentQuery(spec),
        settings=session.effective(),
        needs=(*analysed.needs, key_of(SOURCE, target.name)),
    )
    sequence = await server.change([stored])
    await server.runner.settle(key_of_record(stored))
    command = f"stream/{target.name}/create"
    return done(statement.text, command, f"Created query with ID {query.id}", sequence, query.id)


def writable(server: SqlServer, name: str) -> SqlSource:
    """A stream or table that statements may write to."""
    found = server.catalog.definition(name)
    if found is None:
        raise StatementRefused(f"There is no stream or table {name}")
    if found.read_only:
        raise StatementRefused(
            f"{found.name} was created with CREATE SOURCE and is read only: nothing can be inserted"
        )
    return found


def fit(made: QueryPlan, analysis: Analysis, target: SqlSource) -> QueryPlan:
    """The plan with the columns of a target: by name, cast to its types, missing ones null."""
    types = {each.name.casefold(): each for each in analysis.columns}
    known = {each.name.casefold() for each in (*target.keys, *target.values)}
    unknown = [each.name for each in analysis.columns if each.name.casefold() not in known]
    if unknown:
        raise StatementRefused(
            f"{target.name} has no column {', '.join(unknown)}. Its columns are "
            f"{_columns((*target.keys, *target.values))}"
        )
    columns = (*target.keys, *target.values)
    wanted = tuple(each.name for each in columns)
    keys = tuple(each.name for each in target.keys)
    same = [each.name for each in analysis.columns] == list(wanted) and all(
        found.type == column.type for found, column in zip(analysis.columns, columns, strict=True)
    )
    if same:
        return replace(made, keys=keys)
    missing = [each for each in keys if each.casefold() not in types]
    if missing:
        raise StatementRefused(
            f"The key column {', '.join(missing)} of {target.name} is not in the SELECT"
        )
    parts = []
    for column in columns:
        found = types.get(column.name.casefold())
        value = "NULL" if found is None else quoted(found.name)
        parts.append(f"CAST({value} AS {column.type}) AS {quoted(column.name)}")
    if made.kind in (PlanKind.CHANGES,):
        parts.append(quoted(DELETED))
    parts.append(quoted(TIME))
    return replace(
        made, sql=f"SELECT {', '.join(parts)} FROM ({made.sql})", columns=wanted, keys=keys
    )


# ---------------------------------------------------------------------------------------- queries


async def _spec(
    server: SqlServer,
    query: QueryIdentity,
    target: SqlSource,
    analysed: Analysed,
    properties: Mapping[str, str],
    session: Session,
) -> QuerySpec:
    reset = properties.get(START_PROPERTY, session.property(RESET)).lower()
    if reset not in STARTS:
        raise StatementRefused(f"The property start must be one of {', '.join(STARTS)}")
    start = await start_offsets(
        server.cluster, analysed.sources, "earliest" if reset == "earliest" else "latest"
    )
    return QuerySpec(
        query.id,
        target,
        analysed.plan,
        analysed.sources,
        query.generation,
        {START: start, **read_limits(properties, session)},
        analysed.functions,
    )


def read_limits(properties: Mapping[str, str], session: Session) -> dict[str, str]:
    """How much a query reads at once, and how often."""
    found: dict[str, str] = {}
    limit = properties.get("max_offsets_per_trigger", session.property(MAX_OFFSETS_PROPERTY))
    if limit:
        if not limit.isdecimal() or not int(limit):
            raise StatementRefused(f"max_offsets_per_trigger is a whole number, not {limit!r}")
        found[MAX_OFFSETS] = limit
    if interval := properties.get("trigger_interval"):
        found["trigger.interval"] = interval
    return found


async def new_query_id(
    server: SqlServer, properties: Mapping[str, str], prefix: str, name: str | None
) -> QueryIdentity:
    """An id that no query of this service has had: the end of the command topic only grows.

    An id that the statement names may be used again after the query was terminated. The generation
    tells the two apart, for the ledger of the sink remembers the epochs of both.
    """
    number = await server.commands.end()
    given = properties.get("query_id")
    if given is None:
        middle = "" if name is None else f"_{re.sub(r'[^A-Za-z0-9_]', '_', name)}"
        return QueryIdentity(f"{prefix}{middle}_{number}", 0)
    if QUERY_ID.fullmatch(given) is None:
        raise StatementRefused(f"The query id {given!r} must be letters, digits and _")
    if server.catalog.query(given) is not None:
        raise StatementRefused(f"There is a query {given} already")
    return QueryIdentity(given, number)
