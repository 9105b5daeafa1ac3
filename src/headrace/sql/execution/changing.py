"""DROP, TERMINATE, PAUSE and RESUME."""

from dataclasses import replace

from headrace.sql.catalog import CatalogQuery
from headrace.sql.commands.records import (
    SOURCE,
    QueryTarget,
    Stored,
    StoredInsert,
    StoredSource,
    key_of,
    key_of_record,
)
from headrace.sql.errors import StatementRefused
from headrace.sql.execution.entities import Entity, done, entity, warning
from headrace.sql.execution.persistent import check_not_merging
from headrace.sql.execution.topics import remove_topic
from headrace.sql.language.statements import (
    DropSource,
    PauseQuery,
    ResumeQuery,
    TerminateQuery,
)
from headrace.sql.server import SqlServer

_DONE = {QueryTarget.PAUSED: "Query paused.", QueryTarget.RUNNING: "Query resumed."}


async def drop_source(server: SqlServer, statement: DropSource) -> Entity:
    """Refused while queries read it, and while queries of INSERT INTO write to it."""
    what = "table" if statement.is_table else "stream"
    found = server.catalog.source(statement.name)
    key = key_of(SOURCE, statement.name)
    command = f"{what}/{statement.name}/drop"
    if found is None:
        if server.catalog.has_failed(SOURCE, statement.name):
            sequence = await server.change(removed=[key])
            return done(statement.text, command, f"Source {statement.name} was dropped.", sequence)
        if statement.if_exists:
            return warning(statement.text, f"There is no {what} {statement.name}.")
        raise StatementRefused(f"There is no {what} {statement.name}")
    if found.source.is_table != statement.is_table:
        actual = "table" if found.source.is_table else "stream"
        raise StatementRefused(
            f"{found.name} is a {actual}, not a {what}: use DROP {actual.upper()} {found.name}"
        )
    check_no_replay(server, found)
    check_unused(server, found)
    if statement.delete_topic and found.source.read_only:
        raise StatementRefused(
            f"{found.name} is a source {what}, which cannot delete its topic. Use DROP without "
            "DELETE TOPIC"
        )
    sequence = await server.change(removed=[key])
    await server.runner.settle(key)
    if found.source.is_table:
        await server.views.remove(found.name)
    if statement.delete_topic:
        await remove_topic(server.cluster, found.source.topic)
    message = f"Source {found.name} (topic: {found.source.topic}) was dropped."
    return done(statement.text, command, message, sequence)


def check_no_replay(server: SqlServer, found: StoredSource) -> None:
    """StatementRefused while there is a replay of a stream or table, or it is one."""
    replay = server.catalog.replay_named(found.name) or server.catalog.replay_of(found.name)
    if replay is not None:
        raise StatementRefused(
            f"Cannot drop {found.name}: {replay.name} is a replay of {replay.of}. "
            f"DROP REPLAY {replay.name} first"
        )


def check_unused(server: SqlServer, found: StoredSource) -> None:
    """StatementRefused while other queries than its own read or write a stream or table."""
    own = None if found.query is None else found.query.spec.id
    readers = [each.id for each in server.catalog.readers(found.name) if each.id != own]
    writers = [each.id for each in server.catalog.writers(found.name) if each.id != own]
    if readers or writers:
        uses = [
            f"The following queries {verb} this source: [{', '.join(ids)}]."
            for verb, ids in (("read from", readers), ("write into", writers))
            if ids
        ]
        raise StatementRefused(
            f"Cannot drop {found.name}.\n" + "\n".join(uses) + "\nYou need to terminate them "
            f"before dropping {found.name}: "
            + " ".join(f"TERMINATE {each};" for each in (*readers, *writers))
        )


async def terminate(server: SqlServer, statement: TerminateQuery) -> list[Entity]:
    """The stream or table stays, and nothing writes to it any more."""
    found = _queries(server, statement.query)
    for each in found:
        check_not_merging(server, each.target.name)
    written: list[Stored] = []
    removed: list[str] = []
    for each in found:
        if isinstance(each.statement, StoredInsert):
            removed.append(key_of_record(each.statement))
        else:
            written.append(replace(each.statement, query=None))
    if not found:
        return []
    sequence = await server.change(written, removed)
    for each in found:
        await server.runner.settle(key_of_record(each.statement))
    if statement.query is None:
        return [
            entity("terminate_query", statement.text, queryId=each.id, wasTerminated=True)
            for each in found
        ]
    command = f"terminate/{found[0].id}/execute"
    return [done(statement.text, command, "Query terminated.", sequence)]


async def set_target(
    server: SqlServer, statement: PauseQuery | ResumeQuery, target: QueryTarget
) -> list[Entity]:
    """A paused query has its checkpoint, and continues there."""
    found = _queries(server, statement.query)
    for each in found:
        check_not_merging(server, each.target.name)
    changed = [each for each in found if each.query.target is not target]
    written: list[Stored] = [
        replace(each.statement, query=replace(each.query, target=target)) for each in changed
    ]
    sequence = await server.change(written) if written else 0
    for each in changed:
        await server.runner.settle(key_of_record(each.statement))
    verb = "pause" if target is QueryTarget.PAUSED else "resume"
    return [
        done(statement.text, f"{verb}/{each.id}/execute", _DONE[target], sequence) for each in found
    ]


def _queries(server: SqlServer, query: str | None) -> list[CatalogQuery]:
    if query is None:
        return list(server.catalog.queries())
    found = server.catalog.query(query)
    if found is None:
        raise StatementRefused(f"There is no query {query}. LIST QUERIES shows the queries")
    return [found]
