"""INSERT INTO ... VALUES, and rows of `/inserts-stream`: rows as records, which are produced."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.partitioner import partition_of
from headrace.client.producing import init_producer, produce
from headrace.client.topics import describe_topics
from headrace.sql.errors import StatementRefused
from headrace.sql.execution.persistent import writable
from headrace.sql.language.statements import InsertValues
from headrace.sql.plans import ROWTIME
from headrace.sql.records.encoding import RowWriter
from headrace.sql.records.errors import UnwritableRow
from headrace.sql.server import SqlServer
from headrace.sql.sources import ColumnRole, SqlSource
from headrace.types import TopicPartition
from headrace.wire.records import Record, encode_batch

MOST_WRITERS = 100


@dataclass(frozen=True, slots=True)
class _Writer:
    source: SqlSource
    rows: RowWriter


class RowInserter:
    """Produces rows of statements, and remembers where they are.

    A producer of its own for each request: a row is acknowledged when all in-sync replicas have it,
    and a retry cannot write it twice.
    """

    def __init__(self, server: SqlServer) -> None:
        self._server = server
        self._writers: dict[str, _Writer] = {}
        self.ends: dict[TopicPartition, int] = {}
        """The offsets that follow the rows that were inserted; pull queries wait for them."""

    async def insert(self, target: SqlSource, rows: Sequence[Mapping[str, object]]) -> None:
        """Returns when all rows are stored; StatementRefused if one is not a row of the target."""
        writer = await self._writer(target)
        try:
            # Formats with a schema may ask the registry.
            records = await asyncio.to_thread(_records, target, writer, rows)
        except UnwritableRow as error:
            raise StatementRefused(str(error)) from None
        offsets = await self._server.cluster.ask(
            f"Inserting into {target.name}",
            lambda cluster: _produce(cluster, target.topic, records),
        )
        for partition, end in offsets.items():
            self.ends[partition] = max(end, self.ends.get(partition, 0))

    async def _writer(self, target: SqlSource) -> RowWriter:
        found = self._writers.get(target.name)
        if found is not None and found.source == target:
            return found.rows
        registry = self._server.options.registry
        try:
            made = await asyncio.to_thread(RowWriter, target, registry)
        except ClientError as error:
            raise StatementRefused(f"Rows of {target.name} cannot be written: {error}") from error
        if len(self._writers) >= MOST_WRITERS:
            self._writers.clear()
        self._writers[target.name] = _Writer(target, made)
        return made


def _records(
    target: SqlSource, writer: RowWriter, rows: Sequence[Mapping[str, object]]
) -> list[Record]:
    return [_record(target, writer, row) for row in rows]


def _record(target: SqlSource, writer: RowWriter, row: Mapping[str, object]) -> Record:
    when = next((value for name, value in row.items() if name.upper() == ROWTIME), None)
    if when is not None and not isinstance(when, int):
        raise UnwritableRow(f"{target.name}: ROWTIME is milliseconds since 1970, not {when!r}")
    given = {name: value for name, value in row.items() if name.upper() != ROWTIME}
    if target.is_table and _is_tombstone(target, given):
        key, value = writer.tombstone(given)
    else:
        key, value = writer.write(given)
    if target.is_table and key is None:
        raise UnwritableRow(f"{target.name}: a row of a table needs its primary key")
    return Record(0, int(time.time() * 1000) if when is None else when, key, value)


def _is_tombstone(target: SqlSource, row: Mapping[str, object]) -> bool:
    """Whether a row names all value columns, and all of them are null: it deletes its key."""
    by_name = {name.casefold(): value for name, value in row.items()}
    names = [each.name.casefold() for each in target.values]
    return all(name in by_name and by_name[name] is None for name in names)


def _produce(cluster: Cluster, topic: str, records: Sequence[Record]) -> dict[TopicPartition, int]:
    """The offsets that follow the records by partition."""
    found = describe_topics(cluster, [topic]).get(topic)
    if found is None or not found.partitions:
        raise ClientError(f"topic {topic} does not exist")
    by_partition: dict[TopicPartition, list[Record]] = {}
    for record in records:
        chosen = partition_of(record.key, len(found.partitions))
        by_partition.setdefault(TopicPartition(topic, chosen), []).append(record)
    producer = init_producer(cluster)
    batches = {
        partition: encode_batch(
            rows,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,
        )
        for partition, rows in by_partition.items()
    }
    offsets = produce(cluster, batches, producer)
    return {each: offset + len(by_partition[each]) for each, offset in offsets.items()}


def row_of(target: SqlSource, statement: InsertValues) -> dict[str, object]:
    """The row of a statement, by names of columns; StatementRefused."""
    names: Sequence[str] = statement.columns
    if not names:
        names = [each.name for each in target.columns if each.role is not ColumnRole.HEADER]
        if len(names) != len(statement.values):
            raise StatementRefused(
                f"{target.name} has {len(names)} columns ({', '.join(names)}), and the statement "
                f"has {len(statement.values)} values"
            )
    return dict(zip(names, statement.values, strict=True))


async def insert_values(server: SqlServer, inserter: RowInserter, statement: InsertValues) -> None:
    target = writable(server, statement.target)
    await inserter.insert(target, [row_of(target, statement)])
