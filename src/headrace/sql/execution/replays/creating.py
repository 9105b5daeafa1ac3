"""CREATE REPLAY and DROP REPLAY."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from headrace.sql.commands.records import (
    REPLAY,
    SOURCE,
    PersistentQuery,
    ReplayPhase,
    StoredReplay,
    StoredSource,
    key_of,
    key_of_record,
)
from headrace.sql.errors import StatementRefused
from headrace.sql.execution.changing import check_unused
from headrace.sql.execution.creating import now_ms
from headrace.sql.execution.entities import Entity, done, warning, with_warnings
from headrace.sql.execution.persistent import (
    Analysed,
    analyse,
    check_not_merging,
    derived_target,
    ensure_target,
    new_query_id,
    read_limits,
)
from headrace.sql.execution.session import Session
from headrace.sql.execution.topics import (
    find_topics,
    input_ends,
    input_starts,
    offsets_at,
    remove_topic,
    start_offsets,
)
from headrace.sql.hosting import START, QuerySpec
from headrace.sql.language.parsing import parse
from headrace.sql.language.statements import CreateAs, CreateReplay, DropReplay
from headrace.sql.server import SqlServer
from headrace.sql.sources import SqlSource
from headrace.sql.type_names import quoted

_OF_THE_ORIGINAL = ("kafka_topic", "query_id", "start", "partitions", "replicas")
"""Properties of the original's statement that its replay does not have."""


async def create_replay(server: SqlServer, statement: CreateReplay, session: Session) -> Entity:
    """The new version has a query and a topic of its own, and the ends of the inputs now are noted:
    from there on it is as far as the original was when it was created."""
    catalog = server.catalog
    if catalog.has(SOURCE, statement.name) or catalog.has(REPLAY, statement.name):
        raise StatementRefused(f"There is a stream, table or replay {statement.name} already")
    original = _original(server, statement)
    create = _create_as(server, statement, original)
    analysed = await analyse(server, create.select, into_table=create.is_table)
    if any(each.name.casefold() == original.name.casefold() for each in analysed.sources):
        raise StatementRefused(
            f"The replay reads {original.name}, which it is to replace. Read its inputs instead"
        )
    target = derived_target(server, create, analysed)
    start, warnings = await _start(server, statement.start, analysed.sources)
    cut = await input_ends(server.cluster, {each.topic for each in analysed.sources})
    await _ensure_empty(server, create, target, analysed)
    identity = await new_query_id(server, statement.properties, "REPLAY", statement.name)
    limits = read_limits(create.properties, session)
    spec = QuerySpec(
        identity.id,
        target,
        analysed.plan,
        analysed.sources,
        identity.generation,
        {START: start, **limits},
        analysed.functions,
    )
    settings = session.effective()
    version = StoredSource(
        statement.name,
        create.text,
        now_ms(),
        target,
        PersistentQuery(spec),
        is_derived=True,
        settings=settings,
        needs=analysed.needs,
    )
    replay = StoredReplay(
        statement.name,
        statement.text,
        version.created,
        original.name,
        cut,
        topic=target.topic,
        settings=settings,
        needs=(*analysed.needs, key_of(SOURCE, original.name)),
    )
    sequence = await server.change([version, replay])
    await server.runner.settle(key_of_record(version))
    message = (
        f"Created replay {statement.name} of {original.name} with query {identity.id}, into topic "
        f"{target.topic}"
    )
    command = f"replay/{statement.name}/create"
    return with_warnings(done(statement.text, command, message, sequence, identity.id), warnings)


def _original(server: SqlServer, statement: CreateReplay) -> StoredSource:
    found = server.catalog.source(statement.of)
    if found is None:
        raise StatementRefused(f"There is no stream or table {statement.of}")
    if not found.is_derived or found.query is None:
        raise StatementRefused(
            f"{found.name} has no query of CREATE ... AS SELECT that could be replayed"
        )
    existing = server.catalog.replay_named(found.name) or server.catalog.replay_of(found.name)
    if existing is not None:
        raise StatementRefused(
            f"{existing.name} is a replay of {existing.of} already. DROP REPLAY {existing.name} "
            "first"
        )
    own = found.query.spec.id
    others = [each.id for each in server.catalog.writers(found.name) if each.id != own]
    if others:
        raise StatementRefused(
            f"{found.name} is also written by {', '.join(others)}. A replay has the rows of one "
            "query: give the rows of each a stream of their own first"
        )
    return found


def _create_as(server: SqlServer, statement: CreateReplay, original: StoredSource) -> CreateAs:
    """The statement that makes the new version: formats are those of the original."""
    old = parsed_as(server, original)
    select = old.select if statement.select is None else statement.select
    given = {name: text for name, text in old.properties.items() if name not in _OF_THE_ORIGINAL}
    properties = {**given, **statement.properties}
    text = create_text(statement.name, original.source, properties, select.text)
    return CreateAs(text, statement.name, original.source.is_table, properties, select)


def parsed_as(server: SqlServer, stored: StoredSource) -> CreateAs:
    """The statement of a stream or table that was made by CREATE AS SELECT."""
    types = {each.name.casefold(): each.type for each in server.catalog.types()}
    found = parse(stored.sql, types)
    assert isinstance(found, CreateAs), "derived sources have such a statement"
    return found


def create_text(name: str, source: SqlSource, properties: Mapping[str, str], select: str) -> str:
    """CREATE STREAM|TABLE AS SELECT without a semicolon."""
    what = "TABLE" if source.is_table else "STREAM"
    parts = (f"{key}='{text.replace(chr(39), chr(39) * 2)}'" for key, text in properties.items())
    given = f" WITH ({', '.join(parts)})" if properties else ""
    return f"CREATE {what} {quoted(name)}{given} AS {select}"


async def _start(
    server: SqlServer, start: str, sources: tuple[SqlSource, ...]
) -> tuple[str, list[str]]:
    """The property `start` of the query, and warnings about input that is gone."""
    if start in ("LATEST", "NOW"):
        return await start_offsets(server.cluster, sources, "latest"), []
    streams = {each.topic for each in sources if not each.is_table}
    gone = await input_starts(server.cluster, streams) if streams else {}
    if start == "EARLIEST":
        warnings = [
            f"Partition {partition} of topic {topic} begins at offset {offset}: earlier records "
            "were deleted, and are not in the replay"
            for topic, partitions in gone.items()
            for partition, offset in partitions.items()
            if offset
        ]
        return "earliest", warnings
    found = await offsets_at(server.cluster, sources, _time_ms(start))
    warnings = [
        f"Partition {partition} of topic {topic} begins at offset {offset}, which is not older "
        f"than {start}: earlier records of that time were deleted"
        for topic, partitions in gone.items()
        for partition, offset in partitions.items()
        if offset and found[topic][partition] <= offset
    ]
    return json.dumps(found, separators=(",", ":")), warnings


def _time_ms(text: str) -> int:
    if text.isdecimal():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise StatementRefused(
            f"{text!r} is no time. Expected one such as '2026-01-31', '2026-01-31T12:00:00' (UTC), "
            "or milliseconds since 1970"
        ) from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


async def _ensure_empty(
    server: SqlServer, create: CreateAs, target: SqlSource, analysed: Analysed
) -> None:
    """A topic with other rows would make every comparison wrong."""
    if target.topic in await find_topics(server.cluster, [target.topic]):
        starts = await input_starts(server.cluster, [target.topic])
        if starts != await input_ends(server.cluster, [target.topic]):
            raise StatementRefused(
                f"Topic {target.topic} exists, and has records. Delete it, or name another one "
                "with KAFKA_TOPIC"
            )
    await ensure_target(server, create, target, analysed)


async def drop_replay(server: SqlServer, statement: DropReplay) -> Entity:
    """Removes the new version; after a SWITCH, the old one that was kept."""
    replay = server.catalog.replay_named(statement.name)
    command = f"replay/{statement.name}/drop"
    key = key_of(REPLAY, statement.name)
    if replay is None:
        if server.catalog.has_failed(REPLAY, statement.name):
            sequence = await server.change(removed=[key])
            return done(statement.text, command, f"Replay {statement.name} was dropped.", sequence)
        if statement.if_exists:
            return warning(statement.text, f"There is no replay {statement.name}.")
        raise StatementRefused(f"There is no replay {statement.name}")
    check_not_merging(server, replay.name)
    if replay.phase is ReplayPhase.RUNNING:
        version = server.catalog.source(replay.name)
        if version is not None:
            check_unused(server, version)
        topic = replay.topic
        removed = [key_of(SOURCE, replay.name), key]
        what = f"Replay {replay.name} (topic: {topic}) was dropped."
    else:
        assert replay.kept is not None, "a version is kept after a switch"
        topic = replay.kept.source.topic
        removed = [key]
        what = f"The version of {replay.of} before {replay.name} (topic: {topic}) was dropped."
    sequence = await server.change(removed=removed)
    for each in removed:
        await server.runner.settle(each)
    await server.views.remove(replay.name)
    if statement.delete_topic:
        await remove_topic(server.cluster, topic)
    return done(statement.text, command, what, sequence)


def renamed(
    server: SqlServer, stored: StoredSource, name: str, topic: str, query: PersistentQuery
) -> StoredSource:
    """A version under another name, which writes to a topic."""
    old = parsed_as(server, stored)
    properties = {**old.properties, "kafka_topic": topic}
    source = replace(stored.source, name=name, topic=topic)
    spec = replace(query.spec, target=source)
    return replace(
        stored,
        name=name,
        sql=create_text(name, source, properties, old.select.text),
        source=source,
        query=replace(query, spec=spec),
    )
