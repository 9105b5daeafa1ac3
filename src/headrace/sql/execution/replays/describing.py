"""LIST REPLAYS and DESCRIBE REPLAY: which version has the name, and how far both are."""

from headrace.sql.catalog import CatalogQuery
from headrace.sql.commands.records import ReplayPhase, StoredReplay, StoredSource
from headrace.sql.errors import StatementRefused
from headrace.sql.execution.entities import Entity, entity, running_query
from headrace.sql.execution.replays.aligning import input_topics, positions
from headrace.sql.execution.topics import input_ends
from headrace.sql.language.errors import did_you_mean
from headrace.sql.language.statements import DescribeReplay
from headrace.sql.server import SqlServer


def replay_list(server: SqlServer, text: str) -> Entity:
    rows = [_summary(each) for each in server.catalog.replays()]
    return entity("replays", text, replays=rows)


async def describe_replay(server: SqlServer, statement: DescribeReplay) -> Entity:
    replay = server.catalog.replay_named(statement.name)
    if replay is None:
        known = [each.name for each in server.catalog.replays()]
        raise StatementRefused(
            f"There is no replay {statement.name}.{did_you_mean(statement.name, known)}"
        )
    versions = _versions(server, replay)
    described = {
        **_summary(replay),
        "statement": f"{replay.sql};",
        "versions": [await _version(server, role, stored) for role, stored in versions.items()],
        "partitions": await _partitions(server, replay, versions.get("new")),
    }
    return entity("replayDescription", statement.text, replayDescription=described)


def _summary(replay: StoredReplay) -> Entity:
    return {
        "name": replay.name,
        "of": replay.of,
        "phase": replay.phase.value,
        "mode": replay.mode,
        "topic": replay.topic,
        "created": replay.created,
    }


def _versions(server: SqlServer, replay: StoredReplay) -> dict[str, StoredSource]:
    named, own = server.catalog.source(replay.of), server.catalog.source(replay.name)
    if replay.phase in (ReplayPhase.RUNNING, ReplayPhase.MERGING):
        found = {"old": named, "new": own}
    else:
        found = {"old": replay.kept, "new": named}
    return {role: each for role, each in found.items() if each is not None}


async def _version(server: SqlServer, role: str, stored: StoredSource) -> Entity:
    found: Entity = {"version": role, "name": stored.name, "topic": stored.source.topic}
    if stored.query is None:
        return {**found, "query": None}
    query = CatalogQuery(stored, stored.query)
    return {**found, "query": running_query(query, await server.runner.status(query))}


async def _partitions(
    server: SqlServer, replay: StoredReplay, new: StoredSource | None
) -> list[Entity]:
    """How far the new version is: up to the cut it catches up, after that it is live."""
    if new is None or new.query is None:
        return []
    query = CatalogQuery(new, new.query)
    at = await positions(server, query)
    ends = await input_ends(server.cluster, input_topics(query))
    return [
        {
            "topic": topic,
            "partition": int(partition),
            "position": at.get(topic, {}).get(partition, 0),
            "cut": replay.cut.get(topic, {}).get(partition, 0),
            "end": end,
        }
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
    ]
