"""COMPARE: the differences between two streams or tables, at equal offsets of their inputs."""

from headrace.pipelines.running.checkpoints import InputOffsets
from headrace.sql.catalog import CatalogQuery
from headrace.sql.commands.records import QueryTarget, StoredSource
from headrace.sql.errors import NOT_READY, StatementRefused
from headrace.sql.execution.entities import Entity, entity, with_warnings
from headrace.sql.execution.persistent import check_not_merging
from headrace.sql.execution.replays.aligning import align, check_lag, output_ends
from headrace.sql.hosting import ComparedTopic, HostUnavailable, QueryRefused
from headrace.sql.language.statements import CompareReplay
from headrace.sql.server import SqlServer


async def compare(server: SqlServer, statement: CompareReplay) -> Entity:
    """Both queries are stopped for moments, to note the ends of their results at the same input;
    they run on while Spark compares."""
    found = [_source(server, name) for name in (statement.left, statement.right)]
    at: InputOffsets | None = None
    async with server.turn:
        for each in found:
            check_not_merging(server, each.name)
        queries = [CatalogQuery(each, each.query) for each in found if each.query is not None]
        if len(queries) == len(found) and queries[0].id != queries[1].id:
            for query in queries:
                check_runs(query)
                await check_lag(server, query)
            try:
                at = await align(server, queries)
                ends = [await output_ends(server, each.source.topic) for each in found]
            finally:
                await server.runner.release(each.id for each in queries)
        else:
            ends = [await output_ends(server, each.source.topic) for each in found]
    left, right = (ComparedTopic(each.source, end) for each, end in zip(found, ends, strict=True))
    try:
        report = await server.host.compare(left, right, statement.ignore, statement.tolerance)
    except QueryRefused as error:
        raise StatementRefused(f"The two cannot be compared: {error}") from None
    except HostUnavailable as error:
        raise StatementRefused(f"Spark cannot compare now: {error}. Repeat it", NOT_READY) from None
    answer = entity(
        "comparison",
        statement.text,
        comparison={
            "left": found[0].name,
            "right": found[1].name,
            "inputOffsets": at,
            **report,
            "ignored": list(statement.ignore),
            "tolerance": dict(statement.tolerance),
        },
    )
    return with_warnings(
        answer,
        []
        if at is not None
        else ["Not both have a query: the records of now are compared, not those of equal input"],
    )


def check_runs(query: CatalogQuery) -> None:
    """StatementRefused for a query that was paused: it must not run unless its user says so."""
    if query.query.target is QueryTarget.PAUSED:
        raise StatementRefused(
            f"Query {query.id} of {query.target.name} is paused. RESUME {query.id} first"
        )


def _source(server: SqlServer, name: str) -> StoredSource:
    found = server.catalog.source(name)
    if found is None:
        raise StatementRefused(f"There is no stream or table {name}")
    return found
