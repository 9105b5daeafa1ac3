"""The catalog: streams, tables, queries, types and functions, as the command topic has them.

Only replaying records changes it. A record that cannot be read does not stop the others: it is
kept with the reason, listed as failed, and can be dropped.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.client.committed_records import TopicRecord
from headrace.sql.commands.records import (
    FUNCTION,
    REPLAY,
    SOURCE,
    TYPE,
    MalformedCommand,
    PersistentQuery,
    ServerClaim,
    StatementRecord,
    StoredFunction,
    StoredInsert,
    StoredReplay,
    StoredSource,
    StoredType,
    decode,
    key_of,
    key_of_record,
)
from headrace.sql.sources import SqlSource

log = logging.getLogger("headrace.sql")


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """A record of the command topic that cannot be read."""

    key: str
    reason: str
    offset: int


@dataclass(frozen=True, slots=True)
class CatalogQuery:
    """A query, and the statement that it is from."""

    statement: StoredSource | StoredInsert
    query: PersistentQuery

    @property
    def id(self) -> str:
        return self.query.spec.id

    @property
    def target(self) -> SqlSource:
        return self.query.spec.target

    def reads(self, name: str) -> bool:
        wanted = name.casefold()
        return any(each.name.casefold() == wanted for each in self.query.spec.sources)

    def writes(self, name: str) -> bool:
        return self.target.name.casefold() == name.casefold()


class Catalog:
    """All that statements have made."""

    def __init__(self) -> None:
        self._records: dict[str, StatementRecord] = {}
        self.failed: dict[str, FailedRecord] = {}
        self.claim: ServerClaim | None = None

    def replay(self, record: TopicRecord) -> str:
        """Take over one record of the command topic; returns its key."""
        key = (record.key or b"").decode(errors="replace")
        self.failed.pop(key, None)
        if record.value is None:
            self._records.pop(key, None)
            return key
        try:
            found = decode(record.value)
            if key_of_record(found) != key:
                raise MalformedCommand(f"its value is that of {key_of_record(found)}")
        except MalformedCommand as error:
            self._records.pop(key, None)
            self.failed[key] = FailedRecord(key, str(error), record.offset)
            log.error(
                "the statement at offset %d, %s, cannot be read: %s", record.offset, key, error
            )
            return key
        if isinstance(found, ServerClaim):
            self.claim = found
        else:
            self._records[key] = found
        return key

    # -------------------------------------------------------------------------------- by name

    def source(self, name: str) -> StoredSource | None:
        """The stream or table with this name, in any case."""
        found = self._records.get(key_of(SOURCE, name))
        assert found is None or isinstance(found, StoredSource)
        return found

    def definition(self, name: str) -> SqlSource | None:
        """Topic, columns and formats of a stream or table."""
        found = self.source(name)
        return None if found is None else found.source

    def function(self, name: str) -> StoredFunction | None:
        found = self._records.get(key_of(FUNCTION, name))
        assert found is None or isinstance(found, StoredFunction)
        return found

    def type(self, name: str) -> StoredType | None:
        found = self._records.get(key_of(TYPE, name))
        assert found is None or isinstance(found, StoredType)
        return found

    def replay_of(self, name: str) -> StoredReplay | None:
        """The replay of a stream or table, or the one that has become it."""
        wanted = name.casefold()
        return next((each for each in self.replays() if each.of.casefold() == wanted), None)

    def replay_named(self, name: str) -> StoredReplay | None:
        found = self._records.get(key_of(REPLAY, name))
        assert found is None or isinstance(found, StoredReplay)
        return found

    def query(self, query_id: str) -> CatalogQuery | None:
        """The query with this id, in any case."""
        wanted = query_id.casefold()
        return next((each for each in self.queries() if each.id.casefold() == wanted), None)

    def owned_query(self, key: str) -> CatalogQuery | None:
        """The query that belongs to a record, kept ones of replays included."""
        found = self._records.get(key)
        if isinstance(found, StoredReplay):
            found = found.kept
        if isinstance(found, (StoredSource, StoredInsert)) and found.query is not None:
            return CatalogQuery(found, found.query)
        return None

    def hosted_query(self, query_id: str) -> CatalogQuery | None:
        """The query with exactly this id, kept ones of replays included."""
        return next((each for each in self.hosted_queries() if each.id == query_id), None)

    def has_failed(self, kind: str, name: str) -> bool:
        """Whether the record of an object is there, and cannot be read."""
        return key_of(kind, name) in self.failed

    def has(self, kind: str, name: str) -> bool:
        """Whether there is a record of an object, which may be one that cannot be read."""
        key = key_of(kind, name)
        return key in self._records or key in self.failed

    # ------------------------------------------------------------------------------------- all

    def sources(self) -> list[StoredSource]:
        """Streams and tables by name."""
        found = [each for each in self._records.values() if isinstance(each, StoredSource)]
        return sorted(found, key=lambda each: each.name.casefold())

    def functions(self) -> list[StoredFunction]:
        found = [each for each in self._records.values() if isinstance(each, StoredFunction)]
        return sorted(found, key=lambda each: each.name.casefold())

    def types(self) -> list[StoredType]:
        found = [each for each in self._records.values() if isinstance(each, StoredType)]
        return sorted(found, key=lambda each: each.name.casefold())

    def replays(self) -> list[StoredReplay]:
        found = [each for each in self._records.values() if isinstance(each, StoredReplay)]
        return sorted(found, key=lambda each: each.name.casefold())

    def hosted_queries(self) -> Iterator[CatalogQuery]:
        """The queries whose checkpoints are kept: all, and those of versions before a SWITCH."""
        yield from self.queries()
        for each in self.replays():
            if each.kept is not None and each.kept.query is not None:
                yield CatalogQuery(each.kept, each.kept.query)

    def queries(self) -> Iterator[CatalogQuery]:
        """All queries, in the order in which they can be started."""
        for record in self.in_order():
            if isinstance(record, (StoredSource, StoredInsert)) and record.query is not None:
                yield CatalogQuery(record, record.query)

    def readers(self, name: str) -> list[CatalogQuery]:
        """The queries that read a stream or table."""
        return [each for each in self.queries() if each.reads(name)]

    def writers(self, name: str) -> list[CatalogQuery]:
        """The queries that write to a stream or table."""
        return [each for each in self.queries() if each.writes(name)]

    def in_order(self) -> list[StatementRecord]:
        """Each statement after those that it needs; otherwise in the order of creation.

        Inserts can form a cycle through their targets: they come after all sources.
        """
        waiting = sorted(
            self._records.items(),
            key=lambda item: (isinstance(item[1], StoredInsert), item[1].created, item[0]),
        )
        done: set[str] = set()
        ordered: list[StatementRecord] = []

        def add(key: str, record: StatementRecord) -> None:
            if key in done:
                return
            done.add(key)
            for need in record.needs:
                if need in self._records:
                    add(need, self._records[need])
            ordered.append(record)

        for key, record in waiting:
            add(key, record)
        return ordered
