"""SWITCH and ROLLBACK: which version of a query has the name.

In mode alias one transaction in the command topic gives the name to the other version. In mode
merge the topic of the name gets the rows of the other version: the intention is recorded first,
both versions stay at the same input offsets while rows are written, and the server completes it
after any crash. The writes have names, and add nothing if they are repeated.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.sql.catalog import CatalogQuery
from headrace.sql.commands.records import (
    REPLAY,
    SOURCE,
    PersistentQuery,
    QueryTarget,
    ReplayPhase,
    Stored,
    StoredReplay,
    StoredSource,
    key_of,
)
from headrace.sql.errors import NOT_READY, StatementRefused
from headrace.sql.execution.creating import wanted_topic
from headrace.sql.execution.entities import Entity, done, warning
from headrace.sql.execution.replays.aligning import (
    MAX_LAG,
    align,
    check_lag,
    input_topics,
    lag,
    output_ends,
    reach,
)
from headrace.sql.execution.replays.comparing import check_runs
from headrace.sql.execution.replays.creating import renamed
from headrace.sql.execution.replays.merging import check_mergeable, row_copy
from headrace.sql.execution.topics import ensure_topic, find_topics, input_ends
from headrace.sql.hosting import EPOCHS, HostUnavailable, QueryRefused
from headrace.sql.language.statements import RollbackReplay, SwitchReplay
from headrace.sql.server import SqlServer

log = logging.getLogger("headrace.sql")

ALIAS, MERGE = "alias", "merge"
RETRY_S = 2.0
ANSWERED_WITHIN_S = 600.0
"""A merge that takes longer goes on after the statement is answered."""


@dataclass(frozen=True, slots=True)
class Versions:
    """The version that has the name, and the one that gets it."""

    out: StoredSource
    into: StoredSource

    @property
    def queries(self) -> tuple[CatalogQuery, CatalogQuery]:
        return _query(self.out), _query(self.into)


def _query(stored: StoredSource) -> CatalogQuery:
    if stored.query is None:
        raise StatementRefused(
            f"The query of {stored.name} was terminated. DROP the replay, and create the "
            "statement again"
        )
    return CatalogQuery(stored, stored.query)


class ReplaySwitches:
    """The switches of a server. Methods run in the event loop."""

    def __init__(self, server: SqlServer) -> None:
        self._server = server
        self._merges: dict[str, asyncio.Task[None]] = {}
        """By the name of the replay."""

    def resume(self) -> None:
        """Complete merges that were under way when the server ended."""
        for replay in self._server.catalog.replays():
            if replay.phase in (ReplayPhase.MERGING, ReplayPhase.RETURNING):
                log.info("the merge of %s and its replay %s goes on", replay.of, replay.name)
                self._merge_soon(replay)

    async def stop(self) -> None:
        """Merges go on with the next server."""
        tasks = list(self._merges.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---------------------------------------------------------------------------------- SWITCH

    async def switch(self, statement: SwitchReplay) -> Entity:
        server = self._server
        async with server.turn:
            server.check_ready()
            replay = _replay(server, statement.replay)
            if replay.of.casefold() != statement.name.casefold():
                raise StatementRefused(f"{replay.name} is a replay of {replay.of}, not of "
                                       f"{statement.name}")  # fmt: skip
            if replay.phase is ReplayPhase.SWITCHED:
                return warning(statement.text, f"{replay.of} is {replay.name} already.")
            if replay.phase is ReplayPhase.RETURNING:
                raise StatementRefused(f"A ROLLBACK of {replay.of} is under way")
            if replay.phase is ReplayPhase.RUNNING:
                mode = _mode(statement.properties)
                versions = Versions(_source(server, replay.of), _source(server, replay.name))
                self._check_unread(versions, mode)
                await self._switch(replay, versions, mode, _max_lag(statement.properties))
        await self._merged(replay.name)
        return self._answer(statement.text, replay, f"{replay.of} is {replay.name} now")

    def _check_unread(self, versions: Versions, mode: str) -> None:
        catalog = self._server.catalog
        own = {each.id for each in versions.queries}
        name = versions.into.name
        users = [*catalog.readers(name), *catalog.writers(name)]
        others = [each.id for each in users if each.id not in own]
        if others:
            raise StatementRefused(
                f"{name} is used by {', '.join(others)}, and its name will be gone. TERMINATE them "
                "first"
            )
        readers = [each.id for each in catalog.readers(versions.out.name)]
        if readers and mode == ALIAS:
            raise StatementRefused(
                f"{versions.out.name} is read by {', '.join(readers)}, which would go on with the "
                f"old version: they read topic {versions.out.source.topic}. Use WITH "
                "(mode='merge'), which writes the rows of the new version to that topic"
            )
        if mode == MERGE:
            check_mergeable(versions.out.source, versions.into.source)

    async def _switch(self, replay: StoredReplay, versions: Versions, mode: str, most: int) -> None:
        """Under the server's turn: everything up to the record that decides."""
        server = self._server
        for query in versions.queries:
            check_runs(query)
            await check_lag(server, query, most)
        kept_topic = ""
        if mode == MERGE:
            kept_topic = await self._kept_topic(replay, versions.out)
        try:
            end = await align(server, versions.queries)
            if mode == ALIAS:
                await self._give_name(replace(replay, mode=mode), versions)
                return
            topics = (versions.out.source.topic, versions.into.source.topic, kept_topic)
            ends = {each: await output_ends(server, each) for each in topics}
            merging = replace(
                replay,
                phase=ReplayPhase.MERGING,
                mode=mode,
                switches=replay.switches + 1,
                kept_topic=kept_topic,
                end=end,
                ends=ends,
            )
            await server.change([merging])
        finally:
            await server.runner.release(each.id for each in versions.queries)

    async def _kept_topic(self, replay: StoredReplay, out: StoredSource) -> str:
        """The topic with the rows of the old version while another one writes to its topic."""
        server = self._server
        name = replay.kept_topic or f"{out.source.topic}.before_{replay.name}"
        partitions = (await find_topics(server.cluster, [out.source.topic]))[out.source.topic]
        wanted = wanted_topic(server, replace(out.source, topic=name), {}, None)
        if name not in await find_topics(server.cluster, [name]):
            wanted = replace(wanted, partitions=len(partitions.partitions))
        await ensure_topic(server.cluster, wanted, "TABLE")
        return name

    # -------------------------------------------------------------------------------- ROLLBACK

    async def rollback(self, statement: RollbackReplay) -> Entity:
        server = self._server
        async with server.turn:
            server.check_ready()
            replay = server.catalog.replay_of(statement.name)
            if replay is None:
                raise StatementRefused(f"There is no replay of {statement.name}")
            if replay.phase is ReplayPhase.RUNNING:
                return warning(statement.text, f"{replay.of} has not been switched.")
            if replay.phase is ReplayPhase.MERGING:
                raise StatementRefused(
                    f"SWITCH {replay.of} TO {replay.name} is under way. Repeat ROLLBACK when "
                    f"DESCRIBE REPLAY {replay.name} shows the phase switched"
                )
            if replay.phase is ReplayPhase.SWITCHED:
                assert replay.kept is not None, "a version is kept after a switch"
                versions = Versions(_source(server, replay.of), replay.kept)
                if replay.mode == ALIAS:
                    self._check_unread(versions, ALIAS)
                await self._return(replay, versions)
        await self._merged(replay.name)
        return self._answer(
            statement.text, replay, f"{replay.of} is the version before {replay.name} again"
        )

    async def _return(self, replay: StoredReplay, versions: Versions) -> None:
        server = self._server
        new, old = versions.queries
        check_runs(new)
        try:
            # The old version goes on where it was stopped, beside the new one.
            while await lag(server, old) > MAX_LAG // 10:
                ends = await input_ends(server.cluster, input_topics(old))
                await server.runner.hold(old.id, ends)
                await reach(server, old, ends)
            end = await align(server, versions.queries)
            if replay.mode == ALIAS:
                await self._give_name_back(replay, versions)
                return
            topics = (versions.out.source.topic, versions.into.source.topic, replay.topic)
            ends = {each: await output_ends(server, each) for each in topics}
            returning = replace(
                replay,
                phase=ReplayPhase.RETURNING,
                switches=replay.switches + 1,
                end=end,
                ends=ends,
            )
            await server.change([returning])
        finally:
            await server.runner.release(each.id for each in versions.queries)

    # ------------------------------------------------------------------------------------ merge

    async def _merged(self, name: str) -> None:
        """Returns when a merge that is under way is complete; StatementRefused if it takes long."""
        replay = self._server.catalog.replay_named(name)
        if replay is None or replay.phase not in (ReplayPhase.MERGING, ReplayPhase.RETURNING):
            return
        task = self._merge_soon(replay)
        found, _ = await asyncio.wait({task}, timeout=ANSWERED_WITHIN_S)
        if not found:
            raise StatementRefused(
                f"The rows of {replay.of} and {name} are still being merged. It goes on: DESCRIBE "
                f"REPLAY {name} shows when it is done",
                NOT_READY,
            )

    def _merge_soon(self, replay: StoredReplay) -> asyncio.Task[None]:
        key = replay.name.casefold()
        task = self._merges.get(key)
        if task is None or task.done():
            task = self._merges[key] = asyncio.create_task(self._merge(replay.name))
        return task

    async def _merge(self, name: str) -> None:
        """Complete a merge, however often Spark or the cluster fails."""
        while True:
            replay = self._server.catalog.replay_named(name)
            if replay is None or replay.phase in (ReplayPhase.RUNNING, ReplayPhase.SWITCHED):
                return
            try:
                await self._merge_once(replay)
                return
            except (StatementRefused, HostUnavailable, QueryRefused) as error:
                log.warning("the merge of %s and %s is tried again: %s", replay.of, name, error)
            except Exception:
                log.exception("the merge of %s and %s is tried again", replay.of, name)
            await asyncio.sleep(RETRY_S)

    async def _merge_once(self, replay: StoredReplay) -> None:
        server = self._server
        back = replay.phase is ReplayPhase.RETURNING
        named = _source(server, replay.of)
        other = replay.kept if back else _source(server, replay.name)
        assert other is not None, "a version is kept after a switch"
        versions = Versions(named, other)
        out, into = versions.queries
        at = {each.id: await reach(server, each, replay.end) for each in (out, into)}
        aside = replay.topic if back else replay.kept_topic
        await server.host.copy(
            row_copy(replay, "keep", (named.source, named.source.topic, aside), at[out.id])
        )
        topic = other.source.topic
        await server.host.copy(
            row_copy(replay, "merge", (named.source, topic, named.source.topic), at[into.id])
        )
        async with server.turn:
            plain = replace(replay, end={}, ends={})
            if back:
                await self._give_name_back(plain, versions)
            else:
                await self._give_name(plain, versions)

    # ------------------------------------------------------------------------------------ names

    async def _give_name(self, replay: StoredReplay, versions: Versions) -> None:
        """The record that decides a switch. Each query is in a record at every moment."""
        server, merged = self._server, replay.mode == MERGE
        out, into = versions.queries
        topic = versions.out.source.topic if merged else versions.into.source.topic
        query = _written_by_epochs(into.query) if merged else into.query
        named = replace(
            renamed(server, versions.into, versions.out.name, topic, query),
            created=versions.out.created,
        )
        kept = replace(versions.out, query=replace(out.query, target=QueryTarget.PAUSED))
        if merged:
            kept = _moved(kept, replay.kept_topic)
        switched = replace(replay, phase=ReplayPhase.SWITCHED, kept=kept)
        await self._store([switched, named], [key_of(SOURCE, replay.name)], replay)
        await server.views.remove(replay.name)

    async def _give_name_back(self, replay: StoredReplay, versions: Versions) -> None:
        """The record that decides a rollback."""
        merged = replay.mode == MERGE
        new, old = versions.queries
        query = _written_by_epochs(new.query) if merged else new.query
        version = replace(
            renamed(self._server, versions.out, replay.name, replay.topic, query),
            created=replay.created,
        )
        named = replace(versions.into, query=replace(old.query, target=QueryTarget.RUNNING))
        if merged:
            named = _moved(named, versions.out.source.topic)
        running = replace(replay, phase=ReplayPhase.RUNNING, kept=None)
        await self._store([version, named, running], [], replay)

    async def _store(
        self, written: Sequence[Stored], removed: Sequence[str], replay: StoredReplay
    ) -> None:
        server = self._server
        await server.change(written, removed)
        for kind, name in ((REPLAY, replay.name), (SOURCE, replay.of), (SOURCE, replay.name)):
            await server.runner.settle(key_of(kind, name))

    def _answer(self, text: str, replay: StoredReplay, message: str) -> Entity:
        found = self._server.catalog.source(replay.of)
        topic = "" if found is None else f" (topic: {found.source.topic})"
        query = None if found is None or found.query is None else found.query.spec.id
        return done(text, f"replay/{replay.name}/switch", f"{message}{topic}.", 0, query)


def _replay(server: SqlServer, name: str) -> StoredReplay:
    found = server.catalog.replay_named(name)
    if found is None:
        raise StatementRefused(f"There is no replay {name}. LIST REPLAYS shows the replays")
    return found


def _source(server: SqlServer, name: str) -> StoredSource:
    found = server.catalog.source(name)
    if found is None:
        raise StatementRefused(f"There is no stream or table {name}")
    return found


def _mode(properties: Mapping[str, str]) -> str:
    mode = properties.get("mode", ALIAS).lower()
    if mode not in (ALIAS, MERGE):
        raise StatementRefused(f"The property mode is {ALIAS} or {MERGE}, not {mode}")
    return mode


def _max_lag(properties: Mapping[str, str]) -> int:
    text = properties.get("max_lag", str(MAX_LAG))
    if not text.isdecimal():
        raise StatementRefused(f"The property max_lag is a whole number, not {text!r}")
    return int(text)


def _written_by_epochs(query: PersistentQuery) -> PersistentQuery:
    properties = {**query.spec.properties, EPOCHS: "true"}
    return replace(query, spec=replace(query.spec, properties=properties))


def _moved(stored: StoredSource, topic: str) -> StoredSource:
    """A version that writes to another topic from now on."""
    assert stored.query is not None
    source = replace(stored.source, topic=topic)
    query = _written_by_epochs(stored.query)
    spec = replace(query.spec, target=replace(query.spec.target, topic=topic))
    return replace(stored, source=source, query=replace(query, spec=spec))
