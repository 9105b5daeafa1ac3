"""Brings queries to the same offsets of their inputs, so that their results can be compared.

The queries are stopped, the ends of their inputs are read, and the queries run up to these. Holds
are in the memory of the runner only: after a crash of the server the queries run on as before.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence

from headrace.pipelines.running.checkpoints import InputOffsets, QueryPosition
from headrace.sql.catalog import CatalogQuery
from headrace.sql.errors import NOT_READY, StatementRefused
from headrace.sql.execution.topics import BEGINNING, input_ends, input_starts, quiet_ends
from headrace.sql.hosting import START, HostedState, QuerySpec
from headrace.sql.server import SqlServer

MAX_LAG = 100_000
"""How many records a query may be behind before a comparison or a switch begins."""
ALIGNED_WITHIN_S = 600.0
QUIET_S = 5.0
"""A query that has reached its end and begins no epoch for this time begins none."""
_PAUSE_S = 0.2


def input_topics(query: CatalogQuery) -> set[str]:
    return {each.topic for each in query.query.spec.sources}


async def align(server: SqlServer, queries: Sequence[CatalogQuery]) -> InputOffsets:
    """The offsets that all queries have reached, and are held at until they are released.

    StatementRefused if one cannot reach them.
    """
    for each in queries:
        await server.runner.hold(each.id, None)
    # No query has planned an epoch beyond these ends, because none runs.
    topics = set[str]().union(*map(input_topics, queries))
    end = await input_ends(server.cluster, topics)
    for each in queries:
        await server.runner.hold(each.id, end)
    for each in queries:
        await reach(server, each, end)
    return end


async def reach(server: SqlServer, query: CatalogQuery, end: InputOffsets) -> QueryPosition | None:
    """Returns when all results of a query that is held at these offsets are in its topic.

    The position is None if there was nothing to read.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + ALIGNED_WITHIN_S
    spec = query.query.spec
    seen, seen_at = None, loop.time()
    while True:
        position = await server.host.position(spec)
        if position != seen:
            seen, seen_at = position, loop.time()
        if position is None:
            if await _begins_at(server, spec, end):
                return None
        elif (
            position.is_finished
            and _is_at(position.offsets, spec, end)
            # The next epoch of a watermark begins at once, if there is one.
            and (position.is_quiet or loop.time() - seen_at > QUIET_S)
        ):
            return position
        status = await server.host.status(query.id)
        if status.state is HostedState.FAILED:
            raise StatementRefused(f"Query {query.id} has failed: {status.error}")
        if loop.time() > deadline:
            raise StatementRefused(
                f"Query {query.id} has not reached the end of its inputs within "
                f"{ALIGNED_WITHIN_S:.0f} s. DESCRIBE shows how far it is; repeat the statement",
                NOT_READY,
            )
        await asyncio.sleep(_PAUSE_S)


def _is_at(offsets: InputOffsets, spec: QuerySpec, end: InputOffsets) -> bool:
    """Whether all inputs are read up to these ends."""
    return all(
        offsets.get(topic, {}).get(partition, 0) >= offset
        for topic in {each.topic for each in spec.sources}
        for partition, offset in end.get(topic, {}).items()
    )


async def _begins_at(server: SqlServer, spec: QuerySpec, end: InputOffsets) -> bool:
    """Whether a query without an epoch has nothing to read before these ends."""
    return _is_at(await first_offsets(server, spec), spec, end)


async def first_offsets(server: SqlServer, spec: QuerySpec) -> InputOffsets:
    """Where a query begins to read its inputs."""
    starts = await input_starts(server.cluster, {each.topic for each in spec.sources})
    given = spec.properties.get(START, "earliest")
    chosen: Mapping[str, Mapping[str, int]] = json.loads(given) if given.startswith("{") else {}
    tables = {each.topic for each in spec.sources if each.is_table}
    return {
        topic: {
            partition: offset
            if topic in tables or chosen.get(topic, {}).get(partition, BEGINNING) == BEGINNING
            else chosen[topic][partition]
            for partition, offset in partitions.items()
        }
        for topic, partitions in starts.items()
    }


async def positions(server: SqlServer, query: CatalogQuery) -> InputOffsets:
    """How far a query is in each partition of its inputs."""
    found = await server.host.position(query.query.spec)
    first = await first_offsets(server, query.query.spec)
    if found is None:
        return first
    return {topic: {**first[topic], **found.offsets.get(topic, {})} for topic in first}


async def lag(server: SqlServer, query: CatalogQuery) -> int:
    """How many offsets of its inputs a query has not read yet."""
    at = await positions(server, query)
    ends = await input_ends(server.cluster, input_topics(query))
    return sum(
        max(0, end - at.get(topic, {}).get(partition, 0))
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
    )


async def check_lag(server: SqlServer, query: CatalogQuery, most: int = MAX_LAG) -> None:
    """StatementRefused for a query that is far behind: both versions would wait for it."""
    behind = await lag(server, query)
    if behind > most:
        raise StatementRefused(
            f"Query {query.id} of {query.target.name} is {behind} records behind, more than "
            f"{most}. Wait until LIST QUERIES shows less; SWITCH has the property max_lag"
        )


async def output_ends(server: SqlServer, topic: str) -> dict[str, int]:
    """The ends of the topic of a query that has reached its end: its transactions are decided, and
    a moment later their markers are in the topic."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + ALIGNED_WITHIN_S
    while (found := await quiet_ends(server.cluster, topic)) is None:
        if loop.time() > deadline:
            raise StatementRefused(
                f"A transaction in topic {topic} has been open for {ALIGNED_WITHIN_S:.0f} s. "
                "Repeat the statement when it has ended",
                NOT_READY,
            )
        await asyncio.sleep(_PAUSE_S)
    return found
